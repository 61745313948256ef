// Convolutions, on the CPU only: elsewhere the library behind torch chooses the layout of the result, and only torch
// knows which library that is. Here the results of image convolutions are channels last when the input or the weight
// suggests it.
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// The format of results. With one or three dimensions only row-major operands have a certain answer.
std::optional<MemoryFormat> result_format(const Call& call, const TensorType& input, const TensorType& weight) {
  if (input.sizes.size() != 4)
    return row_major(call, input) && row_major(call, weight) ? std::optional(MemoryFormat::kContiguous) : std::nullopt;
  const auto of_input = suggested_format(call, input), of_weight = suggested_format(call, weight);
  if (!of_input || !of_weight) return std::nullopt;
  return *of_input == MemoryFormat::kContiguous ? of_weight : of_input;
}

std::optional<Result> result_in(MemoryFormat format, const TensorType& like, Sizes sizes) {
  auto strides = strides_in(sizes, format);
  if (!strides) return std::nullopt;
  return fresh(TensorType{like.dtype, like.device, std::move(sizes), std::move(*strides), 0});
}

struct Shape {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};
std::optional<std::vector<int64_t>> spatial(const Call& call, size_t i, size_t rank) {
  auto list = numbers(call, i);
  if (!list) return std::nullopt;
  if (list->size() == 1) list->resize(rank, (*list)[0]);
  return list->size() == rank ? list : std::nullopt;
}
// stride, padding, dilation, transposed, output padding, groups from argument `at` on
std::optional<Shape> shape_at(const Call& call, size_t at, size_t rank) {
  const auto stride = spatial(call, at, rank), padding = spatial(call, at + 1, rank),
             dilation = spatial(call, at + 2, rank), output_padding = spatial(call, at + 4, rank);
  const auto transposed = flag(call, at + 3);
  const auto groups = number(call, at + 5);
  if (!stride || !padding || !dilation || !output_padding || !transposed || !groups || *groups <= 0)
    return std::nullopt;
  return Shape{*stride, *padding, *dilation, *output_padding, *transposed, *groups};
}

std::optional<Sizes> convolved(const Call& call, const TensorType& input, const TensorType& weight,
                               const Shape& shape) {
  const size_t rank = input.sizes.size() - 2;
  const Expr groups = shape.groups;
  const Expr channels = shape.transposed ? weight.sizes[0] : weight.sizes[1] * groups;
  const Expr out_channels = shape.transposed ? weight.sizes[1] * groups : weight.sizes[0];
  if (!known(equal(call, input.sizes[1], channels)) || Expr::mod(weight.sizes[0], groups) != Expr(0))
    return std::nullopt;
  Sizes sizes = {input.sizes[0], out_channels};
  for (size_t i = 0; i < rank; ++i) {
    const Expr& n = input.sizes[i + 2];
    const auto kernel = fixed_size(call, weight.sizes[i + 2]);
    const int64_t stride = shape.stride[i], padding = shape.padding[i], dilation = shape.dilation[i];
    if (!kernel || stride <= 0 || dilation <= 0 || padding < 0) return std::nullopt;
    if (shape.transposed) {
      const int64_t more = shape.output_padding[i];
      if (more < 0 || (more >= stride && more >= dilation)) return std::nullopt;
      sizes.push_back((n - 1) * stride - 2 * padding + dilation * (*kernel - 1) + more + 1);
    } else {
      const Expr room = n + 2 * padding - dilation * (*kernel - 1) - 1;
      if (less(call, room, 0) != false) return std::nullopt;
      sizes.push_back(Expr::floor_div(room, stride) + 1);
    }
    if (!known(less(call, 0, sizes.back()))) return std::nullopt;
  }
  return sizes;
}

bool operands_fit(const Call& call, const TensorType* input, const TensorType* weight) {
  return input && weight && input->sizes.size() >= 3 && input->sizes.size() <= 5 &&
         weight->sizes.size() == input->sizes.size() && input->dtype == weight->dtype &&
         accepts(kFloats, input->dtype) && input->device == Device{} && weight->device == Device{} &&
         is_empty(call, input->sizes) == false && is_empty(call, weight->sizes) == false;
}

Results convolution(const Call& call) {
  const TensorType *input = tensor(call, 0), *weight = tensor(call, 1);
  if (!operands_fit(call, input, weight)) return std::nullopt;
  const auto shape = shape_at(call, 3, input->sizes.size() - 2);
  auto sizes = shape ? convolved(call, *input, *weight, *shape) : std::nullopt;
  if (!sizes) return std::nullopt;
  if (!is_absent(call, 2)) {
    const TensorType* bias = tensor(call, 2);
    if (!bias || bias->dtype != input->dtype || !same(call, bias->sizes, Sizes{(*sizes)[1]})) return std::nullopt;
  }
  const auto format = result_format(call, *input, *weight);
  auto result = format ? result_in(*format, *input, std::move(*sizes)) : std::nullopt;
  return result ? just(std::move(*result)) : std::nullopt;
}

Results convolution_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *input = tensor(call, 1), *weight = tensor(call, 2);
  const auto* wanted = call.args.size() == 11 ? std::get_if<std::vector<bool>>(&call.args[10]) : nullptr;
  if (!grad || !wanted || wanted->size() != 3 || !operands_fit(call, input, weight)) return std::nullopt;
  if (grad->dtype != input->dtype || grad->device != Device{}) return std::nullopt;
  const auto shape = shape_at(call, 4, input->sizes.size() - 2);
  const auto sizes = shape ? convolved(call, *input, *weight, *shape) : std::nullopt;
  if (!sizes || !same(call, *sizes, grad->sizes)) return std::nullopt;
  const auto format = result_format(call, *input, *weight);
  if (!format || (*format != MemoryFormat::kContiguous && input->dtype != Dtype::kF32)) return std::nullopt;
  auto of_input = result_in(*format, *input, input->sizes), of_weight = result_in(*format, *weight, weight->sizes);
  if (!of_input || !of_weight) return std::nullopt;
  return std::vector<Result>{
      (*wanted)[0] ? std::move(*of_input) : undefined(),
      (*wanted)[1] ? std::move(*of_weight) : undefined(),
      (*wanted)[2] ? fresh(grad->dtype, grad->device, {(*sizes)[1]}) : undefined(),
  };
}

// Fourier transforms along dimensions of a row-major tensor.
Results fft(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto dims = numbers(call, 1);
  if (!self || !dims || dims->size() != 1 || (self->dtype != Dtype::kC64 && self->dtype != Dtype::kC128))
    return std::nullopt;
  const auto dim = dimension((*dims)[0], self->sizes.size());
  if (!dim || *dim + 1 != self->sizes.size() || !row_major(call, *self)) return std::nullopt;
  if (self->device != Device{} || is_empty(call, self->sizes) != false) return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

constexpr Op kOps[] = {
    {.name = "aten::_fft_c2c", .type = fft},
    {.name = "aten::convolution", .type = convolution},
    {.name = "aten::convolution_backward", .type = convolution_backward},
};

}  // namespace

std::span<const Op> convolution_ops() { return kOps; }

}  // namespace magneto::ops
