// Operators that draw from a generator. Their layouts are those of the factories and elementwise operators.
#include <algorithm>
#include <limits>

#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

// A factory of the same arguments, with a generator or not; found by the position of its sizes.
Results drawn(const Call& call, size_t sizes_argument, size_t options_argument, Dtype dtype) {
  const Sizes* sizes = integers(call, sizes_argument);
  if (!sizes || options_argument + 3 >= call.args.size()) return std::nullopt;
  const auto wanted = dtype_or(call, options_argument, dtype);
  if (!wanted) return std::nullopt;
  for (const Expr& size : *sizes)
    if (less(call, size, 0) != false) return std::nullopt;
  if (!is_absent(call, options_argument + 1) && !std::holds_alternative<types::Layout>(call.args[options_argument + 1]))
    return std::nullopt;
  Device device;
  if (const auto* named = std::get_if<Device>(&call.args[options_argument + 2])) {
    if (named->kind == Device::Kind::kCuda && named->index < 0) return std::nullopt;
    device = named->kind == Device::Kind::kCpu ? Device{} : *named;
  }
  if (flag(call, options_argument + 3).value_or(false)) return std::nullopt;
  return just(fresh(*wanted, device, *sizes));
}
Results rand(const Call& call) {
  auto result = drawn(call, 0, 1, call.default_dtype);
  return result && types::is_floating((*result)[0].type.dtype) ? result : std::nullopt;
}
Results drawn_between(const Call& call, const Expr& low, size_t high, size_t sizes_argument) {
  const auto end = integer(call, high);
  if (!end || less(call, low, *end) != true) return std::nullopt;
  auto result = drawn(call, sizes_argument, sizes_argument + 1, Dtype::kI64);
  constexpr int64_t kMost = 127;  // of a dtype that is no i64, both ends must fit
  const bool fits = low.value_or(-kMost - 1) >= -kMost && end->value_or(kMost + 1) <= kMost;
  return result && ((*result)[0].type.dtype == Dtype::kI64 || fits) ? result : std::nullopt;
}
Results randint_below(const Call& call) { return drawn_between(call, 0, 0, 1); }
Results randint_between(const Call& call) {
  const auto low = integer(call, 0);
  return low ? drawn_between(call, *low, 1, 2) : std::nullopt;
}
Results permutation(const Call& call) {
  const auto n = integer(call, 0);
  const auto dtype = dtype_or(call, 1, Dtype::kI64);
  if (!n || less(call, *n, 0) != false || dtype != Dtype::kI64 || !is_absent(call, 3)) return std::nullopt;
  return just(fresh(Dtype::kI64, {}, {*n}));
}

Results like_at(const Call& call, size_t options_argument, unsigned accepted) {
  const TensorType* self = tensor(call, 0);
  if (!self || options_argument + 4 >= call.args.size()) return std::nullopt;
  const auto dtype = dtype_or(call, options_argument, self->dtype);
  const auto format = format_or(call, options_argument + 4, MemoryFormat::kPreserve);
  if (!dtype || !accepts(accepted, *dtype) || !format || !is_absent(call, options_argument + 2)) return std::nullopt;
  auto result = fresh_like(call, *self, *dtype, *format);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results rand_like(const Call& call) { return like_at(call, 1, kFloats); }
Results randint_like(const Call& call) { return like_at(call, 2, kReals); }
Results randint_like_between(const Call& call) { return like_at(call, 3, kReals); }

// The drawn tensor is empty_like, with torch's legacy contiguous format.
Results bernoulli(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kFloats, self->dtype)) return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

template <unsigned accepted>
Results draw_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(accepted, self->dtype)) return std::nullopt;
  return in_place(call, {}, self->dtype);
}

// Numbers of a distribution that torch refuses are not covered: the error comes from the operator, not from who reads
// what it draws.
// Where torch counts a probability from another one, 0 is where it takes another way.
bool is_probability(const Call& call) {
  const auto p = real(call, 1);
  return p ? *p >= 0 && *p <= 1 : takes_between(call, 1, std::numeric_limits<double>::denorm_min(), 1);
}
bool is_rate(const Call& call) {
  const auto rate = real(call, 1);
  return rate ? *rate > 0 : takes_positive(call, 1);
}
bool is_spread(const Call& call) {
  takes_real(call, 1);
  const auto deviation = real(call, 2);
  return deviation ? *deviation > 0 : takes_positive(call, 2);
}
bool is_interval(const Call& call) {
  constexpr double kMost = 6e4;  // of half numbers
  const auto from = real(call, 1), to = real(call, 2);
  if (from && to) return *from <= *to && *from >= -kMost / 2 && *to <= kMost / 2;
  // Two floats that change are apart if zero lies between them.
  const bool begins =
      from ? *from >= -kMost / 2 : takes_between(call, 1, -kMost / 2, std::min(to.value_or(0), kMost / 2));
  const bool ends = to ? *to <= kMost / 2 : takes_between(call, 2, std::max(from.value_or(0), -kMost / 2), kMost / 2);
  return begins && ends;
}
template <bool (*holds)(const Call& call)>
Results draw_if(const Call& call) {
  return holds(call) ? draw_<kFloats>(call) : std::nullopt;
}
Results bernoulli_of(const Call& call) { return is_probability(call) ? bernoulli(call) : std::nullopt; }

Results dropout(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto train = flag(call, 2);
  if (!self || !accepts(kFloats, self->dtype) || !train || !*train) return std::nullopt;
  const auto probability = real(call, 1);
  if (probability ? *probability <= 0 || *probability >= 1
                  : !takes_between(call, 1, std::numeric_limits<double>::denorm_min(), 1 - 0x1p-53))
    return std::nullopt;
  if (call.reals && !probability) call.reals->untyped |= uint64_t{1} << 1;
  if (!on_cpu(*self)) return std::nullopt;
  const auto strides = strides_like(call, *self);
  if (!strides || known(is_empty(call, self->sizes))) return std::nullopt;
  if (!known(dense(call, *self))) return std::nullopt;
  TensorType output{self->dtype, self->device, self->sizes, *strides, 0};
  TensorType mask = output;
  mask.dtype = Dtype::kBool;
  return std::vector<Result>{fresh(std::move(output)), fresh(std::move(mask))};
}

Results multinomial(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto count = number(call, 1);
  const auto again = flag(call, 2);
  if (!self || !accepts(kFloats, self->dtype) || !count || *count <= 0 || !again) return std::nullopt;
  const size_t rank = self->sizes.size();
  if (rank != 1 && rank != 2) return std::nullopt;
  const auto choices = self->sizes.back().constant();
  if (!choices || *choices <= 0 || (!*again && *count > *choices)) return std::nullopt;
  Sizes sizes = self->sizes;
  sizes.back() = *count;
  return just(fresh(Dtype::kI64, self->device, std::move(sizes)));
}

constexpr Op kOps[] = {
    {.name = "aten::bernoulli", .type = bernoulli, .may_raise_on_data = true, .random = true},
    {.name = "aten::bernoulli.p", .type = bernoulli_of, .random = true},
    {.name = "aten::bernoulli_.Tensor",
     .type = draw_<kFloats>,
     .writes = kFirst,
     .may_raise_on_data = true,
     .random = true,
     .functional = "aten::bernoulli.Tensor"},
    {.name = "aten::bernoulli_.float",
     .type = draw_if<is_probability>,
     .writes = kFirst,
     .random = true,
     .functional = "aten::bernoulli.p"},
    {.name = "aten::exponential_",
     .type = draw_if<is_rate>,
     .writes = kFirst,
     .random = true,
     .functional = "aten::exponential"},
    {.name = "aten::log_normal_",
     .type = draw_if<is_spread>,
     .writes = kFirst,
     .random = true,
     .functional = "aten::log_normal"},
    {.name = "aten::multinomial", .type = multinomial, .may_raise_on_data = true, .random = true},
    {.name = "aten::native_dropout", .type = dropout, .random = true},
    {.name = "aten::normal_",
     .type = draw_if<is_spread>,
     .writes = kFirst,
     .random = true,
     .functional = "aten::normal_functional"},
    {.name = "aten::rand", .type = rand, .random = true},
    {.name = "aten::rand_like", .type = rand_like, .random = true},
    {.name = "aten::randint", .type = randint_below, .random = true},
    {.name = "aten::randint.low", .type = randint_between, .random = true},
    {.name = "aten::randint_like", .type = randint_like, .random = true},
    {.name = "aten::randint_like.low_dtype", .type = randint_like_between, .random = true},
    {.name = "aten::randn", .type = rand, .random = true},
    {.name = "aten::randn_like", .type = rand_like, .random = true},
    {.name = "aten::randperm", .type = permutation, .random = true},
    {.name = "aten::random_", .type = draw_<kReals>, .writes = kFirst, .random = true, .functional = "aten::random"},
    {.name = "aten::_sample_dirichlet", .random = true},
    {.name = "aten::_standard_gamma", .random = true},
    {.name = "aten::binomial", .may_raise_on_data = true, .random = true},
    {.name = "aten::normal.Tensor_Tensor", .may_raise_on_data = true, .random = true},
    {.name = "aten::normal.Tensor_float", .random = true},
    {.name = "aten::normal.float_Tensor", .may_raise_on_data = true, .random = true},
    {.name = "aten::poisson", .may_raise_on_data = true, .random = true},
    // Only functionalisation writes these: the first argument tells the type.
    {.name = "aten::bernoulli.Tensor", .may_raise_on_data = true, .random = true},
    {.name = "aten::exponential", .random = true},
    {.name = "aten::log_normal", .random = true},
    {.name = "aten::normal_functional", .random = true},
    {.name = "aten::random", .random = true},
    {.name = "aten::uniform", .random = true},
    {.name = "aten::uniform_",
     .type = draw_if<is_interval>,
     .writes = kFirst,
     .random = true,
     .functional = "aten::uniform"},
};

}  // namespace

std::span<const Op> random_ops() { return kOps; }

}  // namespace magneto::ops
