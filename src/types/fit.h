// types/fit.h: an expression for numbers that were seen.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "types/expr.h"

namespace magneto::types {

/// The values of all symbols, once for each time.
using Points = std::vector<std::vector<int64_t>>;

/// The simplest expression that has the values `seen` at `points`. `symbols` are those that were moved, one or more of
/// them at a time, from where they are in the first point; others follow them. It is a number, one of `known`, the less
/// or the larger of two of them, a sum of multiples of symbols, such a sum divided and rounded down, a product of two,
/// a polynomial of degree two. Nothing: it is none of these. What it is elsewhere nobody has seen: whoever counts on it
/// must look.
std::optional<Expr> fit(const Points& points, std::span<const int64_t> seen, std::span<const uint32_t> symbols,
                        std::span<const Expr> known);

}  // namespace magneto::types
