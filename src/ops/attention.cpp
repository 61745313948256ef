// Scaled dot product attention, as the CPU's fused kernel lays its results out. Tensors are [batch, heads, length,
// size].
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

bool is_attention(const Call& call, const TensorType* query, const TensorType* key, const TensorType* value) {
  if (!query || !key || !value) return false;
  for (const TensorType* one : {query, key, value})
    if (one->sizes.size() != 4 || one->dtype != query->dtype || one->device != Device{} ||
        is_empty(call, one->sizes) != false)
      return false;
  if (!accepts(kFloats, query->dtype)) return false;
  for (const size_t same : {0, 1, 3})
    if (!known(equal(call, query->sizes[same], key->sizes[same])) ||
        !known(equal(call, key->sizes[same], value->sizes[same])))
      return false;
  return known(equal(call, key->sizes[2], value->sizes[2]));
}

// Heads next to each other: memory in the order batch, length, heads, size.
Sizes heads_inside(const Sizes& sizes) {
  const Sizes strides = types::contiguous_strides({sizes[0], sizes[2], sizes[1], sizes[3]});
  return {strides[0], strides[2], strides[1], strides[3]};
}

bool no_dropout(const Call& call, size_t i) { return real(call, i) == 0.0; }

Results forward(const Call& call) {
  const TensorType *query = tensor(call, 0), *key = tensor(call, 1), *value = tensor(call, 2);
  takes_real(call, 6);  // the scale
  if (!is_attention(call, query, key, value) || !no_dropout(call, 3)) return std::nullopt;
  if (!is_absent(call, 5)) {
    const TensorType* mask = tensor(call, 5);
    if (!mask || (mask->dtype != query->dtype && mask->dtype != Dtype::kBool)) return std::nullopt;
    if (mask->sizes.size() != 4 && mask->sizes.size() != 2) return std::nullopt;
  }
  auto output = fresh_like(call, *query, query->dtype, MemoryFormat::kPreserve);
  if (!output) return std::nullopt;
  const Sizes& n = query->sizes;
  const bool is_short = query->dtype == Dtype::kF16 || query->dtype == Dtype::kBF16;
  const Sizes stats = types::contiguous_strides({n[0], n[2], n[1]});
  return std::vector<Result>{std::move(*output), fresh(TensorType{is_short ? Dtype::kF32 : query->dtype,
                                                                  query->device,
                                                                  {n[0], n[1], n[2]},
                                                                  {stats[0], stats[2], stats[1]},
                                                                  0})};
}

Results backward(const Call& call) {
  takes_real(call, 9);
  const TensorType *grad = tensor(call, 0), *query = tensor(call, 1), *key = tensor(call, 2), *value = tensor(call, 3);
  if (!grad || !is_attention(call, query, key, value) || !no_dropout(call, 6) ||
      !known(equal(call, grad->sizes, query->sizes)))
    return std::nullopt;
  std::vector<Result> results;
  for (const TensorType* one : {query, key, value})
    results.push_back(fresh(TensorType{one->dtype, one->device, one->sizes, heads_inside(one->sizes), 0}));
  return results;
}

// On a GPU: gradients of query, key and value, heads next to each other.
std::optional<std::vector<Result>> gradients(const Call& call) {
  std::vector<Result> results;
  for (size_t i = 1; i <= 3; ++i) {
    const TensorType* one = tensor(call, i);
    if (!one || one->sizes.size() != 4 || is_empty(call, one->sizes) != false) return std::nullopt;
    results.push_back(fresh(TensorType{one->dtype, one->device, one->sizes, heads_inside(one->sizes), 0}));
  }
  return results;
}
Results efficient_backward(const Call& call) {  // and of the bias, which has a layout of its own
  auto results = gradients(call);
  const auto* wanted = std::get_if<std::vector<bool>>(&call.args[10]);
  if (!results || !wanted || wanted->size() != 4 || (*wanted)[3]) return std::nullopt;
  results->push_back(undefined());
  return results;
}

constexpr Op kOps[] = {
    {.name = "aten::_scaled_dot_product_flash_attention_for_cpu", .type = forward},
    {.name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward", .type = backward},
    {.name = "aten::_scaled_dot_product_efficient_attention_backward", .type = efficient_backward},
    {.name = "aten::_local_scalar_dense"},  // reads data and returns no tensor
};

}  // namespace

std::span<const Op> attention_ops() { return kOps; }

}  // namespace magneto::ops
