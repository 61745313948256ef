// Tensors made from sizes, from numbers, or in the image of another tensor; and copies.
#include <cmath>

#include "ops/body.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// dtype, layout, device, pin_memory: the four arguments that every factory ends with, the first at `at`.
struct Options {
  Dtype dtype;
  Device device;
};
std::optional<Options> options_at(const Call& call, size_t at, Dtype dtype, Device device) {
  const auto wanted = dtype_or(call, at, dtype);
  if (!wanted || at + 3 >= call.args.size()) return std::nullopt;
  if (!is_absent(call, at + 1)) {
    const auto* layout = std::get_if<types::Layout>(&call.args[at + 1]);
    if (!layout || *layout != types::Layout::kStrided) return std::nullopt;
  }
  if (!is_absent(call, at + 2)) {
    const auto* named = std::get_if<Device>(&call.args[at + 2]);
    if (!named) return std::nullopt;
    if (named->kind == device.kind && (named->index == device.index || named->index < 0))
      ;  // the device that it has anyway
    else if (named->kind == Device::Kind::kCuda && named->index < 0)
      return std::nullopt;  // which one is current is not known here
    else
      device = named->kind == Device::Kind::kCpu ? Device{} : *named;
  }
  if (!is_absent(call, at + 3) && flag(call, at + 3) != false) return std::nullopt;  // pinned memory
  return Options{*wanted, device};
}

bool are_sizes(const Call& call, const Sizes& sizes) {
  for (const Expr& size : sizes)
    if (less(call, size, 0) != false) return false;
  return true;
}

Results filled(const Call& call, const Sizes* sizes, std::optional<Options> options) {
  if (!sizes || !options || !are_sizes(call, *sizes)) return std::nullopt;
  return just(fresh(options->dtype, options->device, *sizes));
}
Results zeros(const Call& call) { return filled(call, integers(call, 0), options_at(call, 1, call.default_dtype, {})); }

Results empty(const Call& call) {
  const Sizes* sizes = integers(call, 0);
  const auto options = options_at(call, 1, call.default_dtype, {});
  const auto format = format_or(call, 5, MemoryFormat::kContiguous);
  if (!sizes || !options || !format || !are_sizes(call, *sizes)) return std::nullopt;
  auto strides = strides_in(*sizes, *format);
  if (!strides) return std::nullopt;
  return just(fresh(TensorType{options->dtype, options->device, *sizes, std::move(*strides), 0}));
}

Results strided(const Sizes* sizes, const Sizes* strides, std::optional<Options> options, const Call& call) {
  if (!sizes || !strides || !options || sizes->size() != strides->size() || !are_sizes(call, *sizes))
    return std::nullopt;
  if (!are_sizes(call, *strides)) return std::nullopt;
  return just(fresh(TensorType{options->dtype, options->device, *sizes, *strides, 0}));
}
Results empty_strided(const Call& call) {
  return strided(integers(call, 0), integers(call, 1), options_at(call, 2, call.default_dtype, {}), call);
}

std::optional<Dtype> dtype_of_number(const Call& call, size_t i) {
  const auto one = operand(call, i);
  if (!one || !one->wrapped) return std::nullopt;
  if (types::is_floating(one->type.dtype)) return call.default_dtype;
  if (types::is_complex(one->type.dtype)) return std::nullopt;
  return one->type.dtype;
}
Results full(const Call& call) {
  const auto dtype = dtype_of_number(call, 1);
  if (!dtype) return std::nullopt;
  const auto options = options_at(call, 2, *dtype, {});
  return options && number_fits(call, 1, options->dtype) ? filled(call, integers(call, 0), options) : std::nullopt;
}
Results scalar_tensor(const Call& call) {
  const auto options = options_at(call, 1, call.default_dtype, {});
  if (!options || !number_fits(call, 0, options->dtype)) return std::nullopt;
  return just(fresh(options->dtype, options->device, {}));
}

std::optional<Options> options_of(const Call& call, size_t at) {
  const TensorType* self = tensor(call, 0);
  return self ? options_at(call, at, self->dtype, self->device) : std::nullopt;
}
Results new_filled(const Call& call) { return filled(call, integers(call, 1), options_of(call, 2)); }
Results new_full(const Call& call) {
  const auto options = options_of(call, 3);
  return options && number_fits(call, 2, options->dtype) ? filled(call, integers(call, 1), options) : std::nullopt;
}
Results new_empty_strided(const Call& call) {
  return strided(integers(call, 1), integers(call, 2), options_of(call, 3), call);
}

Results like_at(const Call& call, size_t options_argument) {
  const TensorType* self = tensor(call, 0);
  const auto options = options_of(call, options_argument);
  const auto format = format_or(call, options_argument + 4, MemoryFormat::kPreserve);
  if (!self || !options || !format) return std::nullopt;
  auto result = fresh_like(call, *self, options->dtype, *format);
  if (!result) return std::nullopt;
  result->type.device = options->device;
  return just(std::move(*result));
}
Results like(const Call& call) { return like_at(call, 1); }
Results full_like(const Call& call) {
  auto made = like_at(call, 2);
  return made && number_fits(call, 1, (*made)[0].type.dtype) ? made : std::nullopt;
}

Results clone(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto format = format_or(call, 1, MemoryFormat::kPreserve);
  if (!self || !format) return std::nullopt;
  auto result = fresh_like(call, *self, self->dtype, *format);
  return result ? just(std::move(*result)) : std::nullopt;
}

// dtype, layout, device, pin_memory, non_blocking, memory_format
Results to_copy(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto options = options_of(call, 1);
  const auto format = format_or(call, 6, MemoryFormat::kPreserve);
  if (!self || !options || !format) return std::nullopt;
  auto result = fresh_like(call, *self, options->dtype, *format);
  if (!result) return std::nullopt;
  result->type.device = options->device;
  return just(std::move(*result));
}

Results copy_(const Call& call) {
  const TensorType *self = tensor(call, 0), *source = tensor(call, 1);
  if (!self || !source) return std::nullopt;
  return in_place(call, source->sizes, self->dtype);
}
Results fill_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto value = operand(call, 1);
  if (!self || !value || !value->type.sizes.empty()) return std::nullopt;
  if (value->wrapped ? !number_fits(call, 1, self->dtype) : !accepts(kNoComplex, value->type.dtype))
    return std::nullopt;
  return in_place(call, {}, self->dtype);
}
Results zero_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  return self ? in_place(call, {}, self->dtype) : std::nullopt;
}

// How many numbers lie in [start, end) at distance step.
std::optional<Expr> range_size(const Call& call, size_t start, size_t end, size_t step, Dtype dtype) {
  const auto first = start == end ? std::optional(Expr(0)) : integer(call, start);
  const auto last = integer(call, end);
  const auto distance = step == end ? std::optional<int64_t>(1) : number(call, step);
  if (first && last && distance) {
    if (*distance == 0 || (dtype != Dtype::kI64 && dtype != Dtype::kI32 && !types::is_floating(dtype)))
      return std::nullopt;
    const bool up = *distance > 0;
    if (less(call, up ? *last : *first, up ? *first : *last) != false) return std::nullopt;
    return Expr::ceil_div(*last - *first, *distance);
  }
  // f32 counts in double only on the CPU; elsewhere the last element may or may not be there
  const auto a = start == end ? std::optional(0.0) : real(call, start), b = real(call, end),
             by = step == end ? std::optional(1.0) : real(call, step);
  if (!a || !b || !by || *by == 0 || !types::is_floating(dtype)) return std::nullopt;
  const double count = std::ceil((*b - *a) / *by);
  if (!(count >= 0 && count < 1e15)) return std::nullopt;
  return Expr(static_cast<int64_t>(count));
}

Results range(const Call& call, size_t start, size_t end, size_t step, size_t options_argument) {
  bool whole = true;
  for (const size_t i : {start, end, step}) {
    if (std::holds_alternative<double>(call.args[i]))
      whole = false;
    else if (!std::holds_alternative<Expr>(call.args[i]))
      return std::nullopt;
  }
  const auto options = options_at(call, options_argument, whole ? Dtype::kI64 : call.default_dtype, {});
  if (!options || (!whole && options->device != Device{})) return std::nullopt;
  const auto size = range_size(call, start, end, step, options->dtype);
  if (!size) return std::nullopt;
  return just(fresh(options->dtype, options->device, {*size}));
}
Results range_to(const Call& call) { return range(call, 0, 0, 0, 1); }
Results range_from(const Call& call) { return range(call, 0, 1, 1, 2); }
Results range_by(const Call& call) { return range(call, 0, 1, 2, 3); }

Results eye(const Call& call) {
  const auto n = integer(call, 0);
  if (!n) return std::nullopt;
  const Sizes sizes = {*n, *n};
  return filled(call, &sizes, options_at(call, 1, call.default_dtype, {}));
}
Results eye_rectangle(const Call& call) {
  const auto n = integer(call, 0), m = integer(call, 1);
  if (!n || !m) return std::nullopt;
  const Sizes sizes = {*n, *m};
  return filled(call, &sizes, options_at(call, 2, call.default_dtype, {}));
}
Results linspace(const Call& call) {
  const auto steps = integer(call, 2);
  const auto options = options_at(call, 3, call.default_dtype, {});
  const bool takes = options && accepts(kInexact, options->dtype);
  const auto is_end = [&](size_t i) { return real(call, i) || (takes && takes_real(call, i)); };
  if (!steps || !is_end(0) || !is_end(1)) return std::nullopt;
  const Sizes sizes = {*steps};
  return filled(call, &sizes, options);
}

// ---- bodies --------------------------------------------------------------------------------------------------------

template <int value>
Element constant_body(Body& b) {
  b.compute_as(b.type.dtype);
  return b.number(value);
}
template <size_t argument>
Element number_body(Body& b) {
  b.compute_as(b.type.dtype);
  return b.x(argument, {});  // a number, or a tensor without dimensions
}
// An empty tensor may hold anything; zeros are the same in every run. (constant_body<0>)
// Elements in another type or layout.
Element copy_body(Body& b) {
  if (const TensorType* from = tensor(b.call, 0); from && b.type.device != from->device)
    return {};  // between devices a copy is no kernel; a number has none
  b.compute_as(b.type.dtype);
  return b.x(0);
}
Element copied_body(Body& b) {  // copy: self, source
  if (b.type.device != b.type_of(1).device) return {};
  b.compute_as(b.type.dtype);
  return b.x(1);
}
// start + i * step, in the type that torch counts in.
Element range_of(Body& b, std::optional<size_t> start, std::optional<size_t> step) {
  const bool whole = !types::is_floating(b.type.dtype);
  b.dtype = whole ? Dtype::kI64 : b.type.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const Element i = cast(b.dtype, b.index[0]);
  const Element walked = step ? i * b.scalar(*step) : i;
  return start ? b.scalar(*start) + walked : walked;
}
Element range_to_body(Body& b) { return range_of(b, std::nullopt, std::nullopt); }
Element range_from_body(Body& b) { return range_of(b, 0, std::nullopt); }
Element range_by_body(Body& b) { return range_of(b, 0, 2); }
Element eye_body(Body& b) { return b.index[0] == b.index[1]; }

constexpr Op kOps[] = {
    {.name = "aten::_to_copy", .type = to_copy, .body = copy_body},
    {.name = "aten::arange", .type = range_to, .body = range_to_body},
    {.name = "aten::arange.start", .type = range_from, .body = range_from_body},
    {.name = "aten::arange.start_step", .type = range_by, .body = range_by_body},
    {.name = "aten::clone", .type = clone, .body = copy_body},
    {.name = "aten::copy_", .type = copy_, .writes = kFirst, .functional = "aten::copy"},
    {.name = "aten::empty.memory_format", .type = empty, .body = constant_body<0>},
    {.name = "aten::empty_like", .type = like, .body = constant_body<0>},
    {.name = "aten::empty_strided", .type = empty_strided, .body = constant_body<0>},
    {.name = "aten::eye", .type = eye, .body = eye_body},
    {.name = "aten::eye.m", .type = eye_rectangle, .body = eye_body},
    {.name = "aten::fill_.Scalar", .type = fill_, .writes = kFirst, .functional = "aten::fill.Scalar"},
    {.name = "aten::fill_.Tensor", .type = fill_, .writes = kFirst, .functional = "aten::fill.Tensor"},
    {.name = "aten::full", .type = full, .body = number_body<1>},
    {.name = "aten::full_like", .type = full_like, .body = number_body<1>},
    {.name = "aten::linspace", .type = linspace},
    {.name = "aten::new_empty", .type = new_filled, .body = constant_body<0>},
    {.name = "aten::new_empty_strided", .type = new_empty_strided, .body = constant_body<0>},
    {.name = "aten::new_full", .type = new_full, .body = number_body<2>},
    {.name = "aten::new_ones", .type = new_filled, .body = constant_body<1>},
    {.name = "aten::new_zeros", .type = new_filled, .body = constant_body<0>},
    {.name = "aten::ones", .type = zeros, .body = constant_body<1>},
    {.name = "aten::ones_like", .type = like, .body = constant_body<1>},
    {.name = "aten::scalar_tensor", .type = scalar_tensor, .body = number_body<0>},
    {.name = "aten::zero_", .type = zero_, .writes = kFirst, .functional = "aten::zero"},
    {.name = "aten::zeros", .type = zeros, .body = constant_body<0>},
    {.name = "aten::zeros_like", .type = like, .body = constant_body<0>},
    // Only functionalisation writes these.
    {.name = "aten::copy", .body = copied_body},
    {.name = "aten::fill.Scalar", .body = number_body<1>},
    {.name = "aten::fill.Tensor", .body = number_body<1>},
    {.name = "aten::zero", .body = constant_body<0>},
};

}  // namespace

std::span<const Op> factory_ops() { return kOps; }

}  // namespace magneto::ops
