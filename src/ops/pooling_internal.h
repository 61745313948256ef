// ops/pooling_internal.h: windows over images, shared by the shape rules and the bodies of pooling and upsampling.
#pragma once
#include "ops/body.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

struct Pair {
  int64_t h = 0, w = 0;
};
struct Window {
  Pair kernel, stride, padding, dilation;
  bool ceil_mode = false;
};
/// Two numbers, or one for both; `otherwise` for an empty list.
std::optional<Pair> pair_at(const Call& call, size_t i, std::optional<Pair> otherwise = std::nullopt);
/// kernel, stride, padding, dilation, ceil mode from argument `at` on; of an average there is no dilation
std::optional<Window> max_window(const Call& call, size_t at);
std::optional<Window> average_window(const Call& call, size_t at);

Element max_pool_body(Body& b);
bool max_pool_backward_equation(Body& b, loop::Equation& equation);
Element average_pool_body(Body& b);
Element average_pool_backward_body(Body& b);
Element adaptive_pool_body(Body& b);
Element adaptive_pool_backward_body(Body& b);
Element nearest_body(Body& b);
Element nearest_backward_body(Body& b);
Element bilinear_body(Body& b);

}  // namespace magneto::ops
