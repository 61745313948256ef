// Operators with positions from data: they fail when a position lies outside, which only the run can tell.
#include "ops/body.h"
#include "ops/expander.h"
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

bool is_index(const TensorType& type) { return type.dtype == Dtype::kI64 || type.dtype == Dtype::kI32; }

Results embedding(const Call& call) {
  const TensorType *weight = tensor(call, 0), *indices = tensor(call, 1);
  if (!weight || !indices || weight->sizes.size() != 2 || !is_index(*indices) || !is_plain(weight->dtype))
    return std::nullopt;
  if (weight->device != indices->device) return std::nullopt;
  Sizes sizes = indices->sizes;
  sizes.push_back(weight->sizes[1]);
  return just(fresh(weight->dtype, weight->device, std::move(sizes)));
}

Results embedding_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *indices = tensor(call, 1);
  const auto rows = integer(call, 2);
  if (!grad || !indices || !rows || grad->sizes.empty() || !is_index(*indices) || !accepts(kFloats, grad->dtype))
    return std::nullopt;
  Sizes expected = indices->sizes;
  expected.push_back(grad->sizes.back());
  if (grad->sizes != expected || grad->device != indices->device) return std::nullopt;
  return just(fresh(grad->dtype, grad->device, {*rows, grad->sizes.back()}));
}

// grad, indices, offsets, bag of each, sizes of bags, largest, rows, by frequency, mode, sparse
Results embedding_bag_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *indices = tensor(call, 1);
  const auto rows = integer(call, 6);
  if (!grad || !indices || !rows || grad->sizes.size() != 2 || !is_index(*indices) || flag(call, 9) != false)
    return std::nullopt;
  if ((grad->dtype != Dtype::kF32 && grad->dtype != Dtype::kF64) || !on_cpu(*grad) || !on_cpu(*indices))
    return std::nullopt;
  if (less(call, *rows, 0) != false) return std::nullopt;
  return just(fresh(grad->dtype, grad->device, {*rows, grad->sizes[1]}));
}

Results index_select(const Call& call) {
  const TensorType *self = tensor(call, 0), *index = tensor(call, 2);
  if (!self || !index || !is_plain(self->dtype) || !is_index(*index) || index->sizes.size() > 1) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  if (!dim || self->sizes.empty() || self->device != index->device) return std::nullopt;
  Sizes sizes = self->sizes;
  sizes[*dim] = index->sizes.empty() ? Expr(1) : index->sizes[0];
  return just(fresh(self->dtype, self->device, std::move(sizes)));
}

// Index and self have one rank, and the index reaches outside in no dimension but `dim`.
bool index_fits(const Call& call, const TensorType& index, const TensorType& self, std::optional<size_t> except) {
  if (index.dtype != Dtype::kI64 || index.device != self.device) return false;
  if (index.sizes.size() != self.sizes.size()) return false;
  for (size_t i = 0; i < index.sizes.size(); ++i)
    if (i != except && less(call, self.sizes[i], index.sizes[i]) != false) return false;
  return true;
}

Results gather(const Call& call) {
  const TensorType *self = tensor(call, 0), *index = tensor(call, 2);
  if (!self || !index || !is_plain(self->dtype)) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  if (!dim || !index_fits(call, *index, *self, dim)) return std::nullopt;
  return just(fresh(self->dtype, self->device, index->sizes));
}

bool scatters(const Call& call, bool has_source) {
  const TensorType *self = tensor(call, 0), *index = tensor(call, 2);
  if (!self || !index || !is_plain(self->dtype)) return false;
  const auto dim = dimension(call, 1, self->sizes.size());
  if (!dim || !index_fits(call, *index, *self, dim)) return false;
  if (!has_source) {
    return number_fits(call, 3, self->dtype);
  }
  const TensorType* source = tensor(call, 3);
  return source && source->dtype == self->dtype && index_fits(call, *index, *source, std::nullopt);
}
template <bool has_source>
Results scatter(const Call& call) {
  if (!scatters(call, has_source)) return std::nullopt;
  const TensorType& self = *tensor(call, 0);
  return just(fresh(self.dtype, self.device, self.sizes));
}
template <bool has_source>
Results scatter_(const Call& call) {
  if (!scatters(call, has_source)) return std::nullopt;
  return in_place(call, {}, tensor(call, 0)->dtype);
}
Results scatter_reduce(const Call& call) {
  const std::string* how = text(call, 4);
  if (!how || !accepts(kReals, tensor(call, 0) ? tensor(call, 0)->dtype : Dtype::kC64)) return std::nullopt;
  return scatter<true>(call);
}

// index_add, index_copy: self, dim, index, source
bool adds_at(const Call& call) {
  const TensorType *self = tensor(call, 0), *index = tensor(call, 2), *source = tensor(call, 3);
  if (!self || !index || !source || !is_plain(self->dtype) || !is_index(*index) || index->sizes.size() != 1)
    return false;
  const auto dim = dimension(call, 1, self->sizes.size());
  if (!dim || self->sizes.empty() || self->sizes.size() != source->sizes.size() || self->dtype != source->dtype)
    return false;
  if (self->device != source->device || self->device != index->device) return false;
  for (size_t i = 0; i < self->sizes.size(); ++i)
    if (!known(equal(call, source->sizes[i], i == *dim ? index->sizes[0] : self->sizes[i]))) return false;
  return true;
}
bool alpha_is_plain(const Call& call) {
  const TensorType& self = *tensor(call, 0);
  return number(call, 4) || (accepts(kInexact, self.dtype) && real(call, 4)) ||
         (accepts(kInexact, self.dtype) && converts_real(call, 4));
}
Results index_add(const Call& call) {
  if (!adds_at(call) || !alpha_is_plain(call)) return std::nullopt;
  const TensorType& self = *tensor(call, 0);
  return just(fresh(self.dtype, self.device, self.sizes));
}
Results index_add_(const Call& call) {
  if (!adds_at(call) || !alpha_is_plain(call)) return std::nullopt;
  return in_place(call, {}, tensor(call, 0)->dtype);
}
bool fills_at(const Call& call) {  // self, dim, index, number
  const TensorType *self = tensor(call, 0), *index = tensor(call, 2);
  if (!self || !index || !is_plain(self->dtype) || index->dtype != Dtype::kI64 || index->sizes.size() > 1) return false;
  const auto value = operand(call, 3);
  if (self->sizes.empty() || !dimension(call, 1, self->sizes.size()) || self->device != index->device) return false;
  return value && value->wrapped && !types::is_complex(value->type.dtype) && number_fits(call, 3, self->dtype);
}
Results index_fill(const Call& call) {
  if (!fills_at(call)) return std::nullopt;
  auto result = fresh_like(call, *tensor(call, 0), tensor(call, 0)->dtype, MemoryFormat::kPreserve);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results index_fill_(const Call& call) {
  return fills_at(call) ? in_place(call, {}, tensor(call, 0)->dtype) : std::nullopt;
}
Results index_copy(const Call& call) {
  if (!adds_at(call) || tensor(call, 2)->dtype != Dtype::kI64) return std::nullopt;
  const TensorType& self = *tensor(call, 0);
  return just(fresh(self.dtype, self.device, self.sizes));
}

// ---- x[i, :, j] ----------------------------------------------------------------------------------------------------

// Indices and the tensor they select from, brought into the form that torch's kernel iterates over: dimensions before
// the indices, those of the broadcast indices, dimensions after. Indexed dimensions have stride 0: the kernel adds the
// positions itself.
struct Selection {
  TensorType source;
  std::vector<Operand> indices;
};
std::optional<Selection> select(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto* list = call.args.size() > 1 ? std::get_if<std::vector<graph::ValueId>>(&call.args[1]) : nullptr;
  if (!self || !list || list->empty() || list->size() > self->sizes.size()) return std::nullopt;
  std::vector<const TensorType*> given(self->sizes.size(), nullptr);
  Sizes shape;
  bool any = false;
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].valid()) continue;
    const TensorType& index = call.type((*list)[i]);
    if (!is_index(index) || index.device != self->device) return std::nullopt;  // masks: their count is data
    auto wide = broadcast(call, shape, index.sizes);
    if (!wide) return std::nullopt;
    shape = std::move(*wide);
    given[i] = &index;
    any = true;
  }
  if (!any) return std::nullopt;
  // Indexed dimensions apart from one another go to the front.
  std::vector<size_t> order;
  size_t first = given.size(), last = 0;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i]) {
      first = std::min(first, i);
      last = i;
    }
  bool adjacent = true;
  for (size_t i = first; i <= last; ++i) adjacent = adjacent && given[i];
  for (size_t i = 0; i < given.size(); ++i)
    if (adjacent || given[i]) order.push_back(i);
  for (size_t i = 0; i < given.size() && !adjacent; ++i)
    if (!given[i]) order.push_back(i);
  Selection made;
  made.source = TensorType{self->dtype, self->device, {}, {}, 0};
  size_t before = 0, after = 0;
  bool placed = false;
  for (const size_t d : order) {
    if (given[d]) {
      if (!placed)
        for (const Expr& size : shape) {
          made.source.sizes.push_back(size);
          made.source.strides.push_back(0);
        }
      placed = true;
      const Truth empty = equal(call, self->sizes[d], 0);
      if (empty != false) return std::nullopt;
      continue;
    }
    made.source.sizes.push_back(self->sizes[d]);
    made.source.strides.push_back(self->strides[d]);
    ++(placed ? after : before);
  }
  for (const size_t d : order) {
    if (!given[d]) continue;
    // as the kernel sees it: expanded to `shape`, with 1 for the dimensions around
    Operand index{*given[d], false};
    index.type.sizes.clear();
    index.type.strides.clear();
    const size_t shift = shape.size() - given[d]->sizes.size();
    const auto surround = [&](size_t count) {
      index.type.sizes.insert(index.type.sizes.end(), count, Expr(1));
      index.type.strides.insert(index.type.strides.end(), count, Expr(0));  // never compared
    };
    surround(before);
    for (size_t i = 0; i < shape.size(); ++i) {
      index.type.sizes.push_back(shape[i]);
      const bool own = i >= shift && given[d]->sizes[i - shift] == shape[i];
      index.type.strides.push_back(own ? given[d]->strides[i - shift] : Expr(0));
    }
    surround(after);
    made.indices.push_back(std::move(index));
  }
  return made;
}

Results index(const Call& call) {
  const auto selection = select(call);
  if (!selection || !is_plain(selection->source.dtype)) return std::nullopt;
  std::vector<Operand> all = {{selection->source, false}};
  all.insert(all.end(), selection->indices.begin(), selection->indices.end());
  return elementwise(call, all, std::nullopt, selection->source.dtype);
}

// x[mask] = value of one number, x[:, mask] = value: the dimension where the one mask begins. How many elements it
// selects is nobody's business then.
std::optional<size_t> masked_from(const Call& call) {
  const TensorType *self = tensor(call, 0), *value = tensor(call, 2);
  const auto* list = call.args.size() > 3 ? std::get_if<std::vector<graph::ValueId>>(&call.args[1]) : nullptr;
  if (!self || !value || !list || list->empty() || !is_plain(self->dtype) || flag(call, 3) != false) return {};
  if (!value->sizes.empty() || value->dtype != self->dtype || value->device != self->device) return {};
  const size_t begin = list->size() - 1;
  for (size_t d = 0; d < begin; ++d)
    if ((*list)[d].valid()) return {};
  if (!list->back().valid()) return {};
  const TensorType& mask = call.type(list->back());
  if (mask.dtype != Dtype::kBool || mask.device != self->device || mask.sizes.empty()) return {};
  if (begin + mask.sizes.size() > self->sizes.size()) return {};
  for (size_t d = 0; d < mask.sizes.size(); ++d)
    if (!known(equal(call, mask.sizes[d], self->sizes[begin + d]))) return {};
  return begin;
}
bool puts(const Call& call) {
  if (masked_from(call)) return true;
  const auto selection = select(call);
  const TensorType* values = tensor(call, 2);
  if (!selection || !values || values->dtype != selection->source.dtype || values->device != selection->source.device)
    return false;
  const auto shape = broadcast(call, selection->source.sizes, values->sizes);
  return shape && *shape == selection->source.sizes;
}
Results index_put(const Call& call) {
  if (!puts(call)) return std::nullopt;
  auto result = fresh_like(call, *tensor(call, 0), tensor(call, 0)->dtype, MemoryFormat::kPreserve);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results index_put_(const Call& call) { return puts(call) ? in_place(call, {}, tensor(call, 0)->dtype) : std::nullopt; }

// ---- masks ---------------------------------------------------------------------------------------------------------

bool fills(const Call& call) {
  const TensorType *self = tensor(call, 0), *mask = tensor(call, 1);
  const auto value = operand(call, 2);
  if (!self || !mask || !value || mask->dtype != Dtype::kBool || mask->device != self->device) return false;
  if (!value->type.sizes.empty() || !is_plain(self->dtype)) return false;
  if (!value->wrapped) return value->type.dtype == self->dtype;
  return number_fits(call, 2, self->dtype) && (can_cast(value->type.dtype, self->dtype) || self->dtype != Dtype::kBool);
}
Results masked_fill(const Call& call) {
  if (!fills(call)) return std::nullopt;
  const TensorType &self = *tensor(call, 0), &mask = *tensor(call, 1);
  auto sizes = broadcast(call, self.sizes, mask.sizes);
  if (!sizes) return std::nullopt;
  return just(fresh(self.dtype, self.device, std::move(*sizes)));
}
Results masked_fill_(const Call& call) {
  return fills(call) ? in_place(call, tensor(call, 1)->sizes, tensor(call, 0)->dtype) : std::nullopt;
}

// ---- bodies: elements at positions from data, each checked against the size of its dimension
// -------------------------

using graph::ValueId;

// Whether negative positions count from the end: so they do in x[i], but not in gather and its like.
enum class Negative : uint8_t { kWrong, kFromEnd };
Element position(Body& b, Element index, const Expr& size, Negative negative) {
  Element at = cast(Dtype::kI64, index);
  if (negative == Negative::kFromEnd) at = where(at < 0, at + b.size(size), at);
  return checked(at, b.size(size));
}

// Without elements, no index is read: torch's kernels check it all the same.
bool has_no_elements(const Body& b) {
  return std::any_of(b.type.sizes.begin(), b.type.sizes.end(), [](const Expr& size) { return size == Expr(0); });
}
Element embedding_body(Body& b) {  // weight, indices
  if (has_no_elements(b)) return b.decline();
  const Index at(b.index.begin(), b.index.end() - 1);
  return b.at(0, {position(b, b.at(1, at), b.type_of(0).sizes[0], Negative::kWrong), b.index.back()});
}
Element index_select_body(Body& b) {  // self, dim, index
  const TensorType& self = b.type_of(0);
  const auto dim = dimension(b.call, 1, self.sizes.size());
  if (!dim || self.sizes.empty() || has_no_elements(b)) return b.decline();
  Index at = b.index;
  const Index of_index = b.type_of(2).sizes.empty() ? Index() : Index{b.index[*dim]};
  at[*dim] = position(b, b.at(2, of_index), self.sizes[*dim], Negative::kWrong);
  return b.at(0, at);
}
Element gather_body(Body& b) {  // self, dim, index
  const TensorType& self = b.type_of(0);
  const auto dim = dimension(b.call, 1, self.sizes.size());
  if (!dim) return b.decline();
  if (std::max<size_t>(self.sizes.size(), 1) != std::max<size_t>(b.index.size(), 1)) return b.decline();  // all empty
  if (self.sizes.empty()) {  // counts as one of size 1, and so does an index without dimensions
    const Element only = position(b, b.at(2, b.index), 1, Negative::kWrong);
    return where(only == 0, b.at(0, {}), b.at(0, {}));
  }
  Index at = b.index.empty() ? Index{b.whole(0)} : b.index;
  at[*dim] = position(b, b.at(2, b.index), self.sizes[*dim], Negative::kWrong);
  return b.at(0, at);
}

// x[i, :, j]: which dimensions of self have an index, and where the dimensions of the broadcast indices stand in the
// result.
struct Indexed {
  std::vector<ValueId> of_dim;  // invalid: the dimension is kept
  size_t begin = 0, rank = 0;   // of the indices in the result
};
std::optional<Indexed> indexed(const Call& call, const TensorType& self) {
  const auto* list = std::get_if<std::vector<ValueId>>(&call.args[1]);
  if (!list || list->size() > self.sizes.size()) return std::nullopt;
  Indexed made;
  made.of_dim.resize(self.sizes.size());
  size_t first = self.sizes.size(), last = 0, count = 0;
  for (size_t d = 0; d < list->size(); ++d) {
    if (!(*list)[d].valid()) continue;
    if (!is_index(call.type((*list)[d]))) return std::nullopt;
    made.of_dim[d] = (*list)[d];
    made.rank = std::max(made.rank, call.type((*list)[d]).sizes.size());
    first = std::min(first, d);
    last = d;
    ++count;
  }
  if (count == 0) return std::nullopt;
  made.begin = last - first + 1 == count ? first : 0;
  return made;
}
// The place in self of an element of the result.
std::optional<Index> place_of(Body& b, const Indexed& at, const TensorType& self, const Index& index) {
  Index place;
  size_t next = 0;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (!at.of_dim[d].valid()) {
      if (next == at.begin) next += at.rank;
      place.push_back(index[next++]);
      continue;
    }
    const Sizes& sizes = b.call.type(at.of_dim[d]).sizes;
    Index from;
    for (size_t k = 0; k < sizes.size(); ++k)
      from.push_back(sizes[k] == Expr(1) ? b.whole(0) : index[at.begin + at.rank - sizes.size() + k]);
    place.push_back(position(b, b.at(at.of_dim[d], from), self.sizes[d], Negative::kFromEnd));
  }
  return place;
}
Element index_body(Body& b) {
  const TensorType& self = b.type_of(0);
  const auto at = indexed(b.call, self);
  const auto place = at ? place_of(b, *at, self, b.index) : std::nullopt;
  return place ? b.at(0, *place) : b.decline();
}

Element masked_fill_body(Body& b) {  // self, mask, value
  b.dtype = Dtype::kBool;
  const Element mask = b.x(1);
  b.compute_as(b.type.dtype);
  // torch converts a value of another dtype as a number, which must fit
  if (const TensorType* value = tensor(b.call, 2); value && value->dtype != b.type.dtype) return b.decline();
  return where(mask, b.x(2), b.x(0));
}

// ---- scatters ------------------------------------------------------------------------------------------------------

// Half types are added up in f32. `tensors`: the arguments that hold elements.
template <const char* name, size_t... tensors>
Values added_widened(Expander& e) {
  if (!loop::is_half(e.results[0].dtype)) return {};
  std::vector<graph::Arg> args(e.call.args.begin(), e.call.args.end());
  for (const size_t i : {tensors...})
    if (e.tensor(i).valid()) args[i] = e.widened(e.tensor(i));
  return {e.to(e.results[0].dtype, e.add(name, std::move(args)))};
}
constexpr char kScatterAdd[] = "aten::scatter_add";
constexpr char kIndexAdd[] = "aten::index_add";
constexpr char kIndexPut[] = "aten::index_put";
constexpr char kEmbeddingBackward[] = "aten::embedding_dense_backward";
Values put_widened(Expander& e) { return known(flag(e.call, 3)) ? added_widened<kIndexPut, 0, 2>(e) : Values(); }

void start_scatter(Body& b, loop::Equation& equation, std::optional<loop::Fold> fold) {
  equation.kind = loop::Equation::Kind::kScatter;
  equation.fold = fold;
  b.compute_as(b.type.dtype);
}
bool finish_scatter(Body& b, loop::Equation& equation, const Index& at, Element value) {
  for (const Element& e : at) equation.index.push_back(e.term());
  if (equation.fold && (loop::is_half(b.type.dtype) || b.type.dtype == Dtype::kBool)) return false;
  equation.value = cast(b.type.dtype, value).term();
  return !equation.over.empty();
}
template <bool adds>
bool scatter_equation(Body& b, loop::Equation& equation) {  // self, dim, index, source or number
  const size_t rank = b.type.sizes.size();
  const auto dim = dimension(b.call, 1, rank);
  if (!dim || rank == 0 || b.type_of(2).sizes.size() != rank) return false;
  if (tensor(b.call, 3) && b.type_of(3).sizes.size() != rank) return false;
  start_scatter(b, equation, adds ? std::optional(loop::Fold::kSum) : std::nullopt);
  Index at = b.open(b.type_of(2).sizes, equation.over);
  const Element value = tensor(b.call, 3) ? b.at(3, at) : b.scalar(3);
  at[*dim] = position(b, b.at(2, at), b.type.sizes[*dim], Negative::kWrong);
  b.base = std::get<ValueId>(b.call.args[0]);
  return finish_scatter(b, equation, at, value);
}
template <bool adds>
bool index_add_equation(Body& b, loop::Equation& equation) {  // self, dim, index, source, alpha
  const size_t rank = b.type.sizes.size();
  const auto dim = dimension(b.call, 1, rank);
  if (!dim || rank == 0 || b.type_of(2).sizes.size() != 1 || b.type_of(3).sizes.size() != rank) return false;
  start_scatter(b, equation, adds ? std::optional(loop::Fold::kSum) : std::nullopt);
  Index at = b.open(b.type_of(3).sizes, equation.over);
  Element value = cast(b.dtype, b.at(3, at));
  if (adds && number(b.call, 4) != 1) value = b.scalar(4) * value;
  at[*dim] = position(b, b.at(2, {at[*dim]}), b.type.sizes[*dim], Negative::kWrong);
  b.base = std::get<ValueId>(b.call.args[0]);
  return finish_scatter(b, equation, at, value);
}
bool index_fill_equation(Body& b, loop::Equation& equation) {  // self, dim, index, number
  const auto dim = dimension(b.call, 1, b.type.sizes.size());
  if (!dim || !fills_at(b.call)) return false;
  start_scatter(b, equation, std::nullopt);
  const Sizes& places = b.type_of(2).sizes;
  Sizes space = b.type.sizes;
  space[*dim] = places.empty() ? Expr(1) : places[0];
  Index at = b.open(space, equation.over);
  const Element index = b.at(2, places.empty() ? Index() : Index{at[*dim]});
  at[*dim] = position(b, index, b.type.sizes[*dim], Negative::kFromEnd);
  b.base = std::get<ValueId>(b.call.args[0]);
  return finish_scatter(b, equation, at, b.scalar(3));
}
bool masked_equation(Body& b, loop::Equation& equation, size_t begin) {
  const ValueId mask = std::get<std::vector<ValueId>>(b.call.args[1]).back();
  const auto first = b.index.begin() + static_cast<std::ptrdiff_t>(begin);
  const Index at(first, first + static_cast<std::ptrdiff_t>(b.call.type(mask).sizes.size()));
  b.dtype = Dtype::kBool;
  const Element chosen = cast(Dtype::kBool, b.at(mask, at));
  b.compute_as(b.type.dtype);
  equation.value = cast(b.type.dtype, where(chosen, b.x(2), b.x(0))).term();
  return true;
}
bool index_put_equation(Body& b, loop::Equation& equation) {  // self, indices, values, accumulate
  if (const auto begin = masked_from(b.call)) return masked_equation(b, equation, *begin);
  const auto accumulate = flag(b.call, 3);
  const auto at = indexed(b.call, b.type);
  if (!accumulate || !at) return false;
  start_scatter(b, equation, *accumulate ? std::optional(loop::Fold::kSum) : std::nullopt);
  // the space of the selection: dimensions before the indices, those of the indices, the rest
  Sizes shape(at->rank, Expr(1)), space;
  for (const ValueId id : at->of_dim) {
    if (!id.valid()) continue;
    const Sizes& sizes = b.call.type(id).sizes;
    for (size_t k = 0; k < sizes.size(); ++k)
      if (sizes[k] != Expr(1)) shape[at->rank - sizes.size() + k] = sizes[k];
  }
  for (size_t d = 0; d < at->of_dim.size(); ++d) {
    if (at->of_dim[d].valid()) continue;
    if (space.size() == at->begin) space.insert(space.end(), shape.begin(), shape.end());
    space.push_back(b.type.sizes[d]);
  }
  if (space.size() <= at->begin) space.insert(space.end(), shape.begin(), shape.end());
  const Index index = b.open(space, equation.over);
  const auto place = place_of(b, *at, b.type, index);
  if (!place) return false;
  const Sizes& values = b.type_of(2).sizes;
  Index from;
  for (size_t k = 0; k < values.size(); ++k)
    from.push_back(values[k] == Expr(1) ? b.whole(0) : index[space.size() - values.size() + k]);
  b.base = std::get<ValueId>(b.call.args[0]);
  return finish_scatter(b, equation, *place, b.at(2, from));
}
bool embedding_backward_equation(Body& b, loop::Equation& equation) {  // grad, indices, rows, padding, by frequency
  const auto padding = integer(b.call, 3);
  if (!padding || flag(b.call, 4) != false) return false;
  start_scatter(b, equation, loop::Fold::kSum);
  const Index at = b.open(b.type_of(0).sizes, equation.over);
  const Element row = cast(Dtype::kI64, b.at(1, Index(at.begin(), at.end() - 1)));
  const Element grad = b.at(0, at);
  // the row of the padding gets no gradient; torch counts no other index as wrong
  const Element value = where(row == b.size(*padding), b.number(0), grad);
  return finish_scatter(b, equation, {checked(row, b.size(b.type.sizes[0])), at.back()}, value);
}

constexpr Op kOps[] = {
    {.name = "aten::_embedding_bag", .may_raise_on_data = true, .checks_arguments = true},
    {.name = "aten::_embedding_bag_backward", .type = embedding_bag_backward, .may_raise_on_data = true},
    {.name = "aten::_unsafe_index.Tensor", .type = index, .may_raise_on_data = true, .body = index_body},
    {.name = "aten::_unsafe_index_put",
     .type = index_put,
     .may_raise_on_data = true,
     .equation = index_put_equation,
     .expand = put_widened},
    {.name = "aten::_index_put_impl_",  // what the gradient of an index calls
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::_index_put_impl"},
    {.name = "aten::_index_put_impl", .may_raise_on_data = true},
    {.name = "aten::embedding", .type = embedding, .may_raise_on_data = true, .body = embedding_body},
    {.name = "aten::embedding_dense_backward",
     .type = embedding_backward,
     .may_raise_on_data = true,
     .equation = embedding_backward_equation,
     .expand = added_widened<kEmbeddingBackward, 0>},
    {.name = "aten::gather", .type = gather, .may_raise_on_data = true, .body = gather_body},
    {.name = "aten::index.Tensor", .type = index, .may_raise_on_data = true, .body = index_body},
    {.name = "aten::index_add",
     .type = index_add,
     .may_raise_on_data = true,
     .equation = index_add_equation<true>,
     .expand = added_widened<kIndexAdd, 0, 3>},
    {.name = "aten::index_add_",
     .type = index_add_,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::index_add"},
    {.name = "aten::index_copy", .type = index_copy, .may_raise_on_data = true, .equation = index_add_equation<false>},
    {.name = "aten::index_fill.int_Scalar",
     .type = index_fill,
     .may_raise_on_data = true,
     .equation = index_fill_equation},
    {.name = "aten::index_fill_.int_Scalar",
     .type = index_fill_,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::index_fill.int_Scalar"},
    {.name = "aten::index_put",
     .type = index_put,
     .may_raise_on_data = true,
     .equation = index_put_equation,
     .expand = put_widened},
    {.name = "aten::index_put_",
     .type = index_put_,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::index_put"},
    {.name = "aten::index_select", .type = index_select, .may_raise_on_data = true, .body = index_select_body},
    {.name = "aten::masked_fill.Scalar", .type = masked_fill, .body = masked_fill_body},
    // a value of another dtype is converted, and must fit
    {.name = "aten::masked_fill.Tensor", .type = masked_fill, .may_raise_on_data = true, .body = masked_fill_body},
    {.name = "aten::masked_fill_.Scalar",
     .type = masked_fill_,
     .writes = kFirst,
     .functional = "aten::masked_fill.Scalar"},
    {.name = "aten::masked_fill_.Tensor",
     .type = masked_fill_,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::masked_fill.Tensor"},
    {.name = "aten::nonzero"},  // its size is data
    {.name = "aten::_unique2"},
    {.name = "aten::scatter.src",
     .type = scatter<true>,
     .may_raise_on_data = true,
     .equation = scatter_equation<false>},
    {.name = "aten::scatter.value",
     .type = scatter<false>,
     .may_raise_on_data = true,
     .equation = scatter_equation<false>},
    {.name = "aten::scatter_.src",
     .type = scatter_<true>,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::scatter.src"},
    {.name = "aten::scatter_.value",
     .type = scatter_<false>,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::scatter.value"},
    {.name = "aten::scatter_add",
     .type = scatter<true>,
     .may_raise_on_data = true,
     .equation = scatter_equation<true>,
     .expand = added_widened<kScatterAdd, 0, 3>},
    {.name = "aten::scatter_add_",
     .type = scatter_<true>,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::scatter_add"},
    {.name = "aten::scatter_reduce.two", .type = scatter_reduce, .may_raise_on_data = true},
};

}  // namespace

std::span<const Op> indexing_ops() { return kOps; }

}  // namespace magneto::ops
