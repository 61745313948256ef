// Reductions: one result element for all elements along some dimensions. Results are row-major.
#include <cmath>

#include "ops/body.h"
#include "ops/expander.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// The dimensions of argument i: a list, one number, or none, which is all of them.
std::optional<std::vector<int64_t>> dims_at(const Call& call, size_t i) {
  if (is_absent(call, i)) return std::vector<int64_t>();
  if (const auto one = number(call, i)) return std::vector<int64_t>{*one};
  return numbers(call, i);
}

// Sums of integers are i64.
Dtype sum_dtype(Dtype dtype) { return dtype == Dtype::kBool || types::is_integral(dtype) ? Dtype::kI64 : dtype; }

struct Reduced {
  const TensorType* self;
  Sizes sizes;
  Sizes over;  ///< of the dimensions that are reduced
};
std::optional<Reduced> all_elements(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !is_plain(self->dtype)) return std::nullopt;
  return Reduced{self, {}, self->sizes};
}
// dims and keepdim at these arguments
std::optional<Reduced> along(const Call& call, size_t dims_argument, size_t keep_argument) {
  const TensorType* self = tensor(call, 0);
  const auto dims = dims_at(call, dims_argument);
  const auto keep = flag(call, keep_argument);
  if (!self || !is_plain(self->dtype) || !dims || !keep) return std::nullopt;
  auto sizes = reduced(self->sizes, *dims, *keep);
  if (!sizes) return std::nullopt;
  Sizes over = dims->empty() ? self->sizes : Sizes();
  const auto rank = static_cast<int64_t>(self->sizes.size());
  for (const int64_t d : *dims)
    if (rank > 0) over.push_back(self->sizes[static_cast<size_t>(d < 0 ? d + rank : d)]);
  return Reduced{self, std::move(*sizes), std::move(over)};
}

// Whether an element exists for each result: max and its like have no value for nothing, and say so though there is no
// result.
bool has_elements(const Call& call, const Reduced& r) {
  const Truth empty = is_empty(call, r.self->sizes);
  return empty && (!*empty || is_empty(call, r.over) == false);
}

Results give(const Reduced& r, std::optional<Dtype> dtype) {
  if (!dtype || !is_plain(*dtype)) return std::nullopt;
  return just(fresh(*dtype, r.self->device, r.sizes));
}

Results sum(const Call& call) {
  const auto r = all_elements(call);
  return r ? give(*r, dtype_or(call, 1, sum_dtype(r->self->dtype))) : std::nullopt;
}
Results sum_dims(const Call& call) {
  const auto r = along(call, 1, 2);
  return r ? give(*r, dtype_or(call, 3, sum_dtype(r->self->dtype))) : std::nullopt;
}

Results mean_of(const Call& call, const std::optional<Reduced>& r, size_t dtype_argument) {
  if (!r) return std::nullopt;
  const auto dtype = dtype_or(call, dtype_argument, r->self->dtype);
  return dtype && accepts(kInexact, *dtype) ? give(*r, dtype) : std::nullopt;
}
Results mean(const Call& call) { return mean_of(call, all_elements(call), 1); }
Results mean_dims(const Call& call) { return mean_of(call, along(call, 1, 2), 3); }

Results truth_of(const std::optional<Reduced>& r) {  // all, any: bytes stay bytes
  return r ? give(*r, r->self->dtype == Dtype::kU8 ? Dtype::kU8 : Dtype::kBool) : std::nullopt;
}
Results truth(const Call& call) { return truth_of(all_elements(call)); }
Results truth_dims(const Call& call) {
  // an empty list stands for no dimension here
  const Sizes* dims = integers(call, 1);
  if (dims && dims->empty()) return std::nullopt;
  return truth_of(along(call, 1, 2));
}

Results extreme(const Call& call) {
  const auto r = all_elements(call);
  if (!r || !accepts(kNoComplex, r->self->dtype) || !has_elements(call, *r)) return std::nullopt;
  return give(*r, r->self->dtype);
}
Results extreme_dims(const Call& call) {  // amax, amin
  const auto r = along(call, 1, 2);
  if (!r || !accepts(kNoComplex, r->self->dtype) || !has_elements(call, *r)) return std::nullopt;
  return give(*r, r->self->dtype);
}
template <unsigned accepted>
Results value_and_index(const Call& call) {  // max.dim and its like
  const auto r = along(call, 1, 2);
  if (!r || !accepts(accepted, r->self->dtype) || !has_elements(call, *r)) return std::nullopt;
  return std::vector<Result>{fresh(r->self->dtype, r->self->device, r->sizes),
                             fresh(Dtype::kI64, r->self->device, r->sizes)};
}
Results position(const Call& call) {  // argmax, argmin
  const auto r = along(call, 1, 2);
  if (!r || !accepts(kReals, r->self->dtype) || !has_elements(call, *r)) return std::nullopt;
  Sizes sizes = r->sizes;
  if (is_absent(call, 1)) sizes = known(flag(call, 2)) ? Sizes(r->self->sizes.size(), Expr(1)) : Sizes();
  return just(fresh(Dtype::kI64, r->self->device, std::move(sizes)));
}

Results spread_of(const std::optional<Reduced>& r, bool with_mean) {
  if (!r || !accepts(kFloats, r->self->dtype)) return std::nullopt;
  std::vector<Result> results = {fresh(r->self->dtype, r->self->device, r->sizes)};
  if (with_mean) results.push_back(results[0]);
  return results;
}
template <bool with_mean>
Results spread_dims(const Call& call) {
  return spread_of(along(call, 1, 3), with_mean);
}

Results vector_norm(const Call& call) {
  const auto r = along(call, 2, 3);
  const auto order = real(call, 1);
  if (!r || !order || !accepts(kInexact, r->self->dtype)) return std::nullopt;
  if (*order != 0 && !known(is_empty(call, r->self->sizes)) && !has_elements(call, *r)) return std::nullopt;
  if (known(is_empty(call, r->self->sizes)) && (*order < 0 || *order > 1e300)) return std::nullopt;
  const auto dtype = dtype_or(call, 4, r->self->dtype);
  if (!dtype || !accepts(kInexact, *dtype) || types::is_complex(*dtype) != types::is_complex(r->self->dtype))
    return std::nullopt;
  if (promote(*dtype, r->self->dtype) != *dtype) return std::nullopt;  // torch narrows nothing
  return give(*r, real_dtype(*dtype));
}

Results log_sum_exp(const Call& call) {
  const auto r = along(call, 1, 2);
  return r && accepts(kFloats, r->self->dtype) ? give(*r, r->self->dtype) : std::nullopt;
}

Results histogram(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto bins = number(call, 1);
  if (!self || !accepts(kFloats, self->dtype) || !bins || *bins <= 0) return std::nullopt;
  return just(fresh(self->dtype, self->device, {Expr(*bins)}));
}

// ---- bodies --------------------------------------------------------------------------------------------------------

// Which dimensions an operator folds: those of an argument, or all (no argument).
constexpr size_t kAllDims = 99;
std::vector<bool> folded_dims(Body& b, size_t dims_argument) {
  const size_t rank = b.type_of(0).sizes.size();
  const auto dims = dims_argument == kAllDims ? std::optional(std::vector<int64_t>()) : dims_at(b.call, dims_argument);
  std::vector<bool> folded(rank, dims && dims->empty());
  if (!dims) b.decline();
  for (const int64_t dim : dims.value_or(std::vector<int64_t>()))
    if (const auto d = dimension(dim, rank); d && rank > 0) folded[*d] = true;
  return folded;
}

// Folds what `element` makes of each element of the first argument.
Element fold_of(Body& b, loop::Fold how, size_t dims_argument, Element (*element)(Body&, Element)) {
  const Sizes& sizes = b.type_of(0).sizes;
  const std::vector<bool> folded = folded_dims(b, dims_argument);
  Sizes extents;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (folded[d]) extents.push_back(sizes[d]);
  const bool kept = b.index.size() == sizes.size();
  return b.fold(how, extents, [&](const Index& over) {
    Index at;
    size_t next = 0, next_over = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      at.push_back(folded[d] ? over[next_over++] : b.index[kept ? d : next]);
      if (!folded[d]) ++next;
    }
    return element(b, b.at(0, at));
  });
}
Element as_result(Body& b, Element x) {
  // bools are counted: their sum is true where it is not zero
  if (b.type.dtype == Dtype::kBool) return cast(Dtype::kI64, cast(Dtype::kBool, x));
  return cast(computed_in(b.type.dtype), x);
}
Element as_it_is(Body&, Element x) { return x.dtype() == Dtype::kBool ? cast(Dtype::kU8, x) : x; }
Element as_truth(Body&, Element x) { return cast(Dtype::kBool, x); }

template <loop::Fold how, size_t dims>
Element folded(Body& b) {  // in the type of the result
  return fold_of(b, how, dims, as_result);
}
template <loop::Fold how, size_t dims>
Element folded_as_is(Body& b) {
  return fold_of(b, how, dims, as_it_is);
}
template <loop::Fold how, size_t dims>
Element folded_truth(Body& b) {
  return fold_of(b, how, dims, as_truth);
}
template <size_t dims>
Element mean_body(Body& b) {
  const std::vector<bool> folded = folded_dims(b, dims);
  Expr count = 1;
  for (size_t d = 0; d < folded.size(); ++d)
    if (folded[d]) count = count * b.type_of(0).sizes[d];
  const Element sum = fold_of(b, loop::Fold::kSum, dims, as_result);
  return sum / cast(sum.dtype(), b.size(count));
}
template <loop::Fold value, loop::Fold position>
Element value_or_index(Body& b) {
  return fold_of(b, b.output == 0 ? value : position, 1, as_it_is);
}

// ---- expansions ----------------------------------------------------------------------------------------------------

Sizes all_dims(size_t rank) {
  Sizes dims;
  for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}
Sizes dims_of(Expander& e, size_t argument, size_t rank) {
  const auto dims = dims_at(e.call, argument);
  if (!dims) e.fail();
  if (!dims || dims->empty()) return all_dims(rank);
  Sizes list;
  for (const int64_t dim : *dims) list.push_back(dim);
  return list;
}

// The mean first, then squared distances: what Welford's way gives, without its order. On a CPU in f64, as torch does
// it: squares of f32 neither overflow nor vanish there, and a mean that is far from zero is exact enough. Where an
// element is infinite, Welford's mean is no number. self, dims, correction, keepdim
template <bool root, bool with_mean>
Values spread(Expander& e) {
  const graph::ValueId self = e.tensor(0);
  if (!self.valid() || !accepts(kFloats, e.type(self).dtype)) return {};
  const Sizes dims = dims_of(e, 1, e.type(self).sizes.size());
  const auto keep = flag(e.call, 3);
  const auto correction = is_absent(e.call, 2) ? std::optional(1.0) : real(e.call, 2);
  if (!keep || !correction) return {};
  Expr count = 1;
  for (const Expr& dim : dims)
    if (const auto d = dimension(dim.value_or(0), e.type(self).sizes.size()); d && !e.type(self).sizes.empty())
      count = count * e.type(self).sizes[*d];
  if (!count.is_constant() && *correction != std::floor(*correction)) return {};
  const graph::ValueId x = on_cpu(e.type(self)) ? e.to(Dtype::kF64, self) : e.widened(self);
  const graph::ValueId mean = e.add("aten::mean.dim", {x, dims, true, graph::Arg()});
  const graph::ValueId away = e.difference(x, mean);
  const graph::ValueId squares = e.sum(e.product(away, away), dims, *keep);
  const double degrees = std::max(0.0, static_cast<double>(count.value_or(1)) - *correction);
  graph::ValueId result = e.quotient(
      squares, count.is_constant() ? graph::Arg(degrees)
                                   : graph::Arg(Expr::max(0, count - Expr(static_cast<int64_t>(*correction)))));
  if (root) result = e.apply("aten::sqrt", result);
  Values values = {e.to(e.results[0].dtype, result)};
  if (with_mean) {
    const graph::ValueId shaped = *keep ? mean : e.add("aten::mean.dim", {x, dims, false, graph::Arg()});
    const graph::ValueId is_nan = e.add("aten::ne.Tensor", {squares, squares});
    values.push_back(e.to(e.results[1].dtype, e.add("aten::where.self", {is_nan, squares, shaped})));
  }
  return values;
}

Values vector_norm_expanded(Expander& e) {  // self, order, dims, keepdim, dtype
  const auto order = real(e.call, 1);
  const auto keep = flag(e.call, 3);
  const graph::ValueId self = e.tensor(0);
  if (!order || !keep || !self.valid() || !accepts(kFloats, e.type(self).dtype)) return {};
  const Sizes dims = dims_of(e, 2, e.type(self).sizes.size());
  const graph::ValueId x = e.widened(e.to(e.results[0].dtype, self));
  const auto give = [&](graph::ValueId made) -> Values { return {e.to(e.results[0].dtype, made)}; };
  if (*order == 2) return give(e.apply("aten::sqrt", e.sum(e.product(x, x), dims, *keep)));
  const graph::ValueId size = e.apply("aten::abs", x);
  if (std::isinf(*order)) return give(e.add(*order > 0 ? "aten::amax" : "aten::amin", {size, dims, *keep}));
  if (*order == 1) return give(e.sum(size, dims, *keep));
  if (*order == 0) return give(e.sum(e.to(e.type(x).dtype, e.add("aten::ne.Scalar", {x, Expr(0)})), dims, *keep));
  const graph::ValueId powers = e.add("aten::pow.Tensor_Scalar", {size, *order});
  return give(e.add("aten::pow.Tensor_Scalar", {e.sum(powers, dims, *keep), 1 / *order}));
}

// Shifted by the greatest, unless that is infinite: log(0) and log(inf) come out by themselves then.
Values log_sum_exp_expanded(Expander& e) {  // self, dims, keepdim
  const graph::ValueId self = e.tensor(0);
  const auto keep = flag(e.call, 2);
  if (!self.valid() || !keep || !accepts(kFloats, e.type(self).dtype)) return {};
  const Sizes dims = dims_of(e, 1, e.type(self).sizes.size());
  const graph::ValueId x = e.widened(self), most = e.greatest(x, dims);
  const double infinity = INFINITY;
  const graph::ValueId endless = e.add("aten::eq.Scalar", {e.apply("aten::abs", most), infinity});
  const graph::ValueId shift = e.add("aten::where.ScalarSelf", {endless, 0.0, most});
  const graph::ValueId sum = e.sum(e.apply("aten::exp", e.difference(x, shift)), dims, true);
  graph::ValueId made = e.sum_of(e.apply("aten::log", sum), shift);
  if (!*keep && !e.failed) made = e.sum(made, dims, false);  // of one element each
  return {e.to(e.results[0].dtype, made)};
}

constexpr Op kOps[] = {
    {.name = "aten::all", .type = truth, .body = folded_truth<loop::Fold::kAll, kAllDims>},
    {.name = "aten::all.dim", .type = truth_dims, .body = folded_truth<loop::Fold::kAll, 1>},
    {.name = "aten::all.dims", .type = truth_dims, .body = folded_truth<loop::Fold::kAll, 1>},
    {.name = "aten::amax", .type = extreme_dims, .body = folded_as_is<loop::Fold::kMax, 1>},
    {.name = "aten::amin", .type = extreme_dims, .body = folded_as_is<loop::Fold::kMin, 1>},
    {.name = "aten::any", .type = truth, .body = folded_truth<loop::Fold::kAny, kAllDims>},
    {.name = "aten::any.dim", .type = truth_dims, .body = folded_truth<loop::Fold::kAny, 1>},
    {.name = "aten::any.dims", .type = truth_dims, .body = folded_truth<loop::Fold::kAny, 1>},
    {.name = "aten::argmax", .type = position, .body = folded_as_is<loop::Fold::kArgmax, 1>},
    {.name = "aten::argmin", .type = position, .body = folded_as_is<loop::Fold::kArgmin, 1>},
    {.name = "aten::histc", .type = histogram, .may_raise_on_data = true},  // the range of the data must be finite
    {.name = "aten::linalg_vector_norm", .type = vector_norm, .expand = vector_norm_expanded},
    {.name = "aten::logsumexp", .type = log_sum_exp, .expand = log_sum_exp_expanded},
    {.name = "aten::max", .type = extreme, .body = folded_as_is<loop::Fold::kMax, kAllDims>},
    {.name = "aten::max.dim",
     .type = value_and_index<kNoComplex>,
     .body = value_or_index<loop::Fold::kMax, loop::Fold::kArgmax>},
    {.name = "aten::mean", .type = mean, .body = mean_body<kAllDims>},
    {.name = "aten::mean.dim", .type = mean_dims, .body = mean_body<1>},
    {.name = "aten::min", .type = extreme, .body = folded_as_is<loop::Fold::kMin, kAllDims>},
    {.name = "aten::min.dim",
     .type = value_and_index<kNoComplex>,
     .body = value_or_index<loop::Fold::kMin, loop::Fold::kArgmin>},
    {.name = "aten::prod", .type = sum, .body = folded<loop::Fold::kProd, kAllDims>},
    {.name = "aten::prod.dim_int", .type = sum_dims, .body = folded<loop::Fold::kProd, 1>},
    {.name = "aten::std.correction", .type = spread_dims<false>, .expand = spread<true, false>},
    {.name = "aten::std_mean.correction", .type = spread_dims<true>, .expand = spread<true, true>},
    {.name = "aten::sum", .type = sum, .body = folded<loop::Fold::kSum, kAllDims>},
    {.name = "aten::sum.dim_IntList", .type = sum_dims, .body = folded<loop::Fold::kSum, 1>},
    {.name = "aten::var.correction", .type = spread_dims<false>, .expand = spread<false, false>},
    {.name = "aten::var_mean.correction", .type = spread_dims<true>, .expand = spread<false, true>},
};

}  // namespace

std::span<const Op> reduction_ops() { return kOps; }

}  // namespace magneto::ops
