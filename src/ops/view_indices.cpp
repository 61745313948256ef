// Views as arithmetic on indices: where in the viewed tensor the element at an index of the view lies. Also the
// *_scatter operators, which are views the other way round: the tensor with other elements in the place of a view.
#include "ops/rules_internal.h"
#include "ops/views_internal.h"

namespace magneto::ops {

Mapped same_elements(Body& b) { return reshaped(b, b.type.sizes, b.index, b.type_of(0).sizes); }

Mapped no_index(Body&) { return std::nullopt; }

Mapped expand_index(Body& b) {
  const TensorType& self = b.type_of(0);
  const size_t shift = b.index.size() - self.sizes.size();
  Index at;
  for (size_t d = 0; d < self.sizes.size(); ++d)
    at.push_back(self.sizes[d] == Expr(1) ? b.whole(0) : b.index[d + shift]);
  return at;
}

Mapped permute_index(Body& b) {
  const auto dims = numbers(b.call, 1);
  if (!dims || dims->size() != b.index.size()) return std::nullopt;
  Index at(b.index.size());
  for (size_t i = 0; i < dims->size(); ++i) at[*dimension((*dims)[i], dims->size())] = b.index[i];
  return at;
}
Mapped transpose_index(Body& b) {
  const auto x = dimension(b.call, 1, b.index.size()), y = dimension(b.call, 2, b.index.size());
  if (!x || !y) return std::nullopt;
  Index at = b.index;
  if (!at.empty()) std::swap(at[*x], at[*y]);
  return at;
}
Mapped t_index(Body& b) {
  Index at = b.index;
  if (at.size() == 2) std::swap(at[0], at[1]);
  return at;
}

namespace {

// Where a slice begins, and its step.
struct Cut {
  size_t dim;
  Expr start;
  int64_t step;
};
std::optional<Cut> cut_at(const Call& call, const TensorType& self, size_t dim_argument) {
  if (self.sizes.empty()) return std::nullopt;
  const auto dim = dimension(call, dim_argument, self.sizes.size());
  auto start = is_absent(call, dim_argument + 1) ? std::optional(Expr(0)) : integer(call, dim_argument + 1);
  const auto step = number(call, dim_argument + 3);
  if (!dim || !start || !step || *step <= 0) return std::nullopt;
  start = clamp_position(call, *start, self.sizes[*dim]);
  if (!start) return std::nullopt;
  return Cut{*dim, *start, *step};
}
std::optional<Expr> chosen(const Call& call, size_t argument, const Expr& size) {  // the index of a select
  auto index = integer(call, argument);
  const Truth negative = index ? less(call, *index, 0) : std::nullopt;
  if (!negative) return std::nullopt;
  return *negative ? *index + size : *index;
}
Expr start_of_piece(const Sizes& lengths, size_t output) {
  Expr start = 0;
  for (size_t i = 0; i < output; ++i) start = start + lengths[i];
  return start;
}
Index shifted(const Index& index, size_t dim, const Element& by) {
  Index at = index;
  at[dim] = at[dim] + by;
  return at;
}
Index inserted(const Index& index, size_t dim, const Element& value) {
  Index at = index;
  at.insert(at.begin() + static_cast<ptrdiff_t>(dim), value);
  return at;
}
Index erased(const Index& index, size_t dim) {
  Index at = index;
  at.erase(at.begin() + static_cast<ptrdiff_t>(dim));
  return at;
}

}  // namespace

Mapped slice_index(Body& b) {
  const auto cut = cut_at(b.call, b.type_of(0), 1);
  if (!cut) return std::nullopt;
  Index at = b.index;
  at[cut->dim] = at[cut->dim] * b.whole(cut->step) + b.size(cut->start);
  return at;
}
Mapped select_index(Body& b) {
  const TensorType& self = b.type_of(0);
  const auto dim = dimension(b.call, 1, self.sizes.size());
  const auto index = dim && !self.sizes.empty() ? chosen(b.call, 2, self.sizes[*dim]) : std::nullopt;
  if (!index) return std::nullopt;
  return inserted(b.index, *dim, b.size(*index));
}
Mapped split_index(Body& b) {
  const auto length = integer(b.call, 1);
  const auto dim = dimension(b.call, 2, b.index.size());
  if (!length || !dim || b.index.empty()) return std::nullopt;
  return shifted(b.index, *dim, b.size(*length * Expr(static_cast<int64_t>(b.output))));
}
Mapped split_sizes_index(Body& b) {
  const Sizes* lengths = integers(b.call, 1);
  const auto dim = dimension(b.call, 2, b.index.size());
  if (!lengths || !dim || b.index.empty()) return std::nullopt;
  return shifted(b.index, *dim, b.size(start_of_piece(*lengths, b.output)));
}
Mapped unbind_index(Body& b) {
  const auto dim = dimension(b.call, 1, b.type_of(0).sizes.size());
  if (!dim) return std::nullopt;
  return inserted(b.index, *dim, b.whole(static_cast<int64_t>(b.output)));
}

// The diagonal of dimensions x and y is the last dimension of the view.
Mapped diagonal_index(Body& b) {
  const size_t rank = b.type_of(0).sizes.size();
  const auto shift = number(b.call, 1);
  const auto x = dimension(b.call, 2, rank), y = dimension(b.call, 3, rank);
  if (!shift || !x || !y) return std::nullopt;
  Index at(rank);
  size_t next = 0;
  for (size_t d = 0; d < rank; ++d)
    if (d != *x && d != *y) at[d] = b.index[next++];
  at[*x] = b.index.back() + b.whole(std::max<int64_t>(0, -*shift));
  at[*y] = b.index.back() + b.whole(std::max<int64_t>(0, *shift));
  return at;
}
Mapped unfold_index(Body& b) {
  const auto dim = dimension(b.call, 1, b.index.size() - 1);
  const auto step = number(b.call, 3);
  if (!dim || !step) return std::nullopt;
  Index at(b.index.begin(), b.index.end() - 1);
  if (at.empty()) return at;  // of a tensor without dimensions: its only element
  at[*dim] = at[*dim] * b.whole(*step) + b.index.back();
  return at;
}

// Strides count in memory. Where the viewed tensor is row-major without gaps, its memory is its row-major order.
static Mapped by_strides(Body& b, const Sizes* strides, const std::optional<Expr>& offset) {
  const TensorType& self = b.type_of(0);
  if (!types::is_contiguous(self) || !strides || strides->size() != b.index.size() || !offset) return std::nullopt;
  // within the tensor itself: what lies around it in its storage has no index
  Expr last = *offset - self.offset;
  for (size_t d = 0; d < strides->size(); ++d) last = last + (b.type.sizes[d] - 1) * (*strides)[d];
  if ((*offset - self.offset).lower_bound().value_or(-1) < 0) return std::nullopt;
  if ((types::numel(self.sizes) - 1 - last).lower_bound().value_or(-1) < 0) return std::nullopt;
  Element position = b.size(*offset - self.offset);
  for (size_t d = 0; d < b.index.size(); ++d) position = position + b.index[d] * b.size((*strides)[d]);
  return reshaped(b, {types::numel(self.sizes)}, {position}, self.sizes);
}
Mapped strided_index(Body& b) {  // self, sizes, strides, offset
  return by_strides(b, integers(b.call, 2), is_absent(b.call, 3) ? b.type_of(0).offset : integer(b.call, 3));
}
// ---- the other way round -------------------------------------------------------------------------------------------

namespace {

graph::ValueId source_of(Body& b) { return std::get<graph::ValueId>(b.call.args[1]); }
// The element of the source where the condition holds, else that of self; each read only where it exists.
Element either(Body& b, Element in_view, const Index& at) {
  const Element other = b.at(0, b.index);
  return where(in_view, cast(other.dtype(), b.at_if(source_of(b), at, in_view, 0)), other);
}
Element slice_scatter(Body& b) {  // self, src, dim, start, end, step
  const TensorType &self = b.type_of(0), &source = b.type_of(1);
  const auto cut = cut_at(b.call, self, 2);
  if (!cut) return b.decline();
  const Element step = b.whole(cut->step), distance = b.index[cut->dim] - b.size(cut->start);
  Index at = b.index;
  at[cut->dim] = floor_div(distance, step);
  Element inside = distance >= 0;
  if (cut->step != 1) inside = inside & (distance % step == 0);
  return either(b, inside & (at[cut->dim] < b.size(source.sizes[cut->dim])), at);
}
Element select_scatter(Body& b) {  // self, src, dim, index
  const TensorType& self = b.type_of(0);
  const auto dim = dimension(b.call, 2, self.sizes.size());
  const auto index = dim && !self.sizes.empty() ? chosen(b.call, 3, self.sizes[*dim]) : std::nullopt;
  if (!index) return b.decline();
  return either(b, b.index[*dim] == b.size(*index), erased(b.index, *dim));
}
Element diagonal_scatter(Body& b) {  // self, src, offset, dim1, dim2
  const size_t rank = b.index.size();
  const auto shift = number(b.call, 2);
  const auto x = dimension(b.call, 3, rank), y = dimension(b.call, 4, rank);
  if (!shift || !x || !y) return b.decline();
  Index at;
  for (size_t d = 0; d < rank; ++d)
    if (d != *x && d != *y) at.push_back(b.index[d]);
  at.push_back(b.index[*x] - b.whole(std::max<int64_t>(0, -*shift)));
  return either(b, b.index[*y] - b.index[*x] == b.whole(*shift), at);
}

// The gradient of a view: zeros with the gradient in the place of the view. grad, sizes of the input, ...
Element slice_backward(Body& b) {
  TensorType self = b.type;
  const auto cut = cut_at(b.call, self, 2);
  if (!cut) return b.decline();
  const Element step = b.whole(cut->step), distance = b.index[cut->dim] - b.size(cut->start);
  Index at = b.index;
  at[cut->dim] = floor_div(distance, step);
  Element inside = distance >= 0;
  if (cut->step != 1) inside = inside & (distance % step == 0);
  inside = inside & (at[cut->dim] < b.size(b.type_of(0).sizes[cut->dim]));
  return b.at_if(std::get<graph::ValueId>(b.call.args[0]), at, inside, 0);
}
Element select_backward(Body& b) {
  const auto dim = dimension(b.call, 2, b.index.size());
  const auto index = dim && !b.index.empty() ? chosen(b.call, 3, b.type.sizes[*dim]) : std::nullopt;
  if (!index) return b.decline();
  return b.at_if(std::get<graph::ValueId>(b.call.args[0]), erased(b.index, *dim), b.index[*dim] == b.size(*index), 0);
}
Element diagonal_backward(Body& b) {  // grad, sizes, offset, dim1, dim2
  const size_t rank = b.index.size();
  const auto shift = number(b.call, 2);
  const auto x = dimension(b.call, 3, rank), y = dimension(b.call, 4, rank);
  if (!shift || !x || !y) return b.decline();
  Index at;
  for (size_t d = 0; d < rank; ++d)
    if (d != *x && d != *y) at.push_back(b.index[d]);
  at.push_back(b.index[*x] - b.whole(std::max<int64_t>(0, -*shift)));
  return b.at_if(std::get<graph::ValueId>(b.call.args[0]), at, b.index[*y] - b.index[*x] == b.whole(*shift), 0);
}

Results zeros_of(const Call& call) {
  const TensorType* grad = tensor(call, 0);
  const Sizes* sizes = integers(call, 1);
  if (!grad || !sizes || !is_plain(grad->dtype)) return std::nullopt;
  return just(fresh(grad->dtype, grad->device, *sizes));
}

constexpr Op kOps[] = {
    {.name = "aten::select_backward", .type = zeros_of, .body = select_backward},
    {.name = "aten::slice_backward", .type = zeros_of, .body = slice_backward},
    {.name = "aten::diagonal_backward", .type = zeros_of, .body = diagonal_backward},
    // Only functionalisation writes these.
    {.name = "aten::diagonal_scatter", .body = diagonal_scatter},
    {.name = "aten::select_scatter", .body = select_scatter},
    {.name = "aten::slice_scatter", .body = slice_scatter},
};

}  // namespace

std::span<const Op> scattered_view_ops() { return kOps; }

// ---- writing through views -----------------------------------------------------------------------------------------

namespace {

using graph::ValueId;
// What is written to may be a view itself: the new value is row-major.
TensorType base_type(const Expander& e) {
  const TensorType& of = e.type(e.tensor(0));
  return row_major(of.dtype, of.device, of.sizes);
}
std::vector<graph::Arg> with_base(Expander& e, ValueId value) {  // self, src, then the arguments of the view
  std::vector<graph::Arg> args = {e.tensor(0), value};
  args.insert(args.end(), e.call.args.begin() + 1, e.call.args.end());
  return args;
}
ValueId put_slice(Expander& e, ValueId value, Expr dim, const Expr& start, const Expr& length) {
  return e.add("aten::slice_scatter", {e.tensor(0), value, dim, start, start + length, Expr(1)}, base_type(e));
}

}  // namespace

ValueId put_reshaped(Expander& e, size_t, ValueId value) {
  if (e.type(value).sizes == base_type(e).sizes) return value;
  return e.view(value, base_type(e).sizes);
}
ValueId put_permuted(Expander& e, size_t, ValueId value) {
  const auto dims = numbers(e.call, 1);
  if (!dims) return {};
  Sizes back(dims->size());
  for (size_t i = 0; i < dims->size(); ++i) back[*dimension((*dims)[i], dims->size())] = static_cast<int64_t>(i);
  return e.add("aten::permute", {value, back});
}
ValueId put_swapped(Expander& e, size_t, ValueId value) {
  return e.add("aten::transpose.int", {value, e.call.args[1], e.call.args[2]});
}
ValueId put_transposed(Expander& e, size_t, ValueId value) { return e.add("aten::t", {value}); }
ValueId put_sliced(Expander& e, size_t, ValueId value) {
  return e.add("aten::slice_scatter", with_base(e, value), base_type(e));
}
ValueId put_selected(Expander& e, size_t, ValueId value) {
  return e.add("aten::select_scatter", with_base(e, value), base_type(e));
}
ValueId put_diagonal(Expander& e, size_t, ValueId value) {
  return e.add("aten::diagonal_scatter", with_base(e, value), base_type(e));
}
ValueId put_strided(Expander& e, size_t, ValueId value) {
  const Sizes *sizes = integers(e.call, 1), *strides = integers(e.call, 2);
  if (!sizes || !strides || sizes->size() != strides->size()) return {};
  for (size_t d = 0; d < sizes->size(); ++d)  // several elements in one place: the last writer is not known
    if ((*strides)[d] == Expr(0) && (*sizes)[d] != Expr(1)) return {};
  return e.add("aten::as_strided_scatter", with_base(e, value), base_type(e));
}
ValueId put_piece(Expander& e, size_t output, ValueId value) {
  const auto length = integer(e.call, 1), dim = integer(e.call, 2);
  const auto d = dimension(e.call, 2, base_type(e).sizes.size());
  if (!length || !dim || !d) return {};
  return put_slice(e, value, *dim, *length * Expr(static_cast<int64_t>(output)), e.type(value).sizes[*d]);
}
ValueId put_piece_of_sizes(Expander& e, size_t output, ValueId value) {
  const Sizes* lengths = integers(e.call, 1);
  const auto dim = integer(e.call, 2);
  if (!lengths || !dim) return {};
  return put_slice(e, value, *dim, start_of_piece(*lengths, output), (*lengths)[output]);
}
ValueId put_unbound(Expander& e, size_t output, ValueId value) {
  const auto dim = integer(e.call, 1);
  if (!dim) return {};
  return e.add("aten::select_scatter", {e.tensor(0), value, *dim, Expr(static_cast<int64_t>(output))}, base_type(e));
}

}  // namespace magneto::ops
