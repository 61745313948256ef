// Reductions: one result element for all elements along some dimensions. Results are row-major.
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
};
std::optional<Reduced> all_elements(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !is_plain(self->dtype)) return std::nullopt;
  return Reduced{self, {}};
}
// dims and keepdim at these arguments
std::optional<Reduced> along(const Call& call, size_t dims_argument, size_t keep_argument) {
  const TensorType* self = tensor(call, 0);
  const auto dims = dims_at(call, dims_argument);
  const auto keep = flag(call, keep_argument);
  if (!self || !is_plain(self->dtype) || !dims || !keep) return std::nullopt;
  auto sizes = reduced(self->sizes, *dims, *keep);
  if (!sizes) return std::nullopt;
  return Reduced{self, std::move(*sizes)};
}

// Whether an element exists for each result: max and its like have no value for nothing.
bool has_elements(const Call& call, const Reduced& r) {
  const Truth empty = is_empty(call, r.self->sizes);
  return empty && (!*empty || known(is_empty(call, r.sizes)));
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

constexpr Op kOps[] = {
    {.name = "aten::all", .type = truth},
    {.name = "aten::all.dim", .type = truth_dims},
    {.name = "aten::all.dims", .type = truth_dims},
    {.name = "aten::amax", .type = extreme_dims},
    {.name = "aten::amin", .type = extreme_dims},
    {.name = "aten::any", .type = truth},
    {.name = "aten::any.dim", .type = truth_dims},
    {.name = "aten::any.dims", .type = truth_dims},
    {.name = "aten::argmax", .type = position},
    {.name = "aten::argmin", .type = position},
    {.name = "aten::histc", .type = histogram, .may_raise_on_data = true},  // the range of the data must be finite
    {.name = "aten::linalg_vector_norm", .type = vector_norm},
    {.name = "aten::logsumexp", .type = log_sum_exp},
    {.name = "aten::max", .type = extreme},
    {.name = "aten::max.dim", .type = value_and_index<kNoComplex>},
    {.name = "aten::mean", .type = mean},
    {.name = "aten::mean.dim", .type = mean_dims},
    {.name = "aten::min", .type = extreme},
    {.name = "aten::min.dim", .type = value_and_index<kNoComplex>},
    {.name = "aten::prod", .type = sum},
    {.name = "aten::prod.dim_int", .type = sum_dims},
    {.name = "aten::std.correction", .type = spread_dims<false>},
    {.name = "aten::std_mean.correction", .type = spread_dims<true>},
    {.name = "aten::sum", .type = sum},
    {.name = "aten::sum.dim_IntList", .type = sum_dims},
    {.name = "aten::var.correction", .type = spread_dims<false>},
    {.name = "aten::var_mean.correction", .type = spread_dims<true>},
};

}  // namespace

std::span<const Op> reduction_ops() { return kOps; }

}  // namespace magneto::ops
