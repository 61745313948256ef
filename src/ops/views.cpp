// Views: other sizes, strides and offset over the same memory.
#include "ops/rules_internal.h"
#include "ops/views_internal.h"

namespace magneto::ops {

namespace {

Results alias(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self) return std::nullopt;
  return just(view_of(0, *self));
}

// A size of -1 is what the others leave over.
std::optional<Sizes> infer_sizes(const Call& call, const TensorType& self, const Sizes& wanted) {
  Sizes sizes = wanted;
  std::optional<size_t> open;
  Expr rest = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == Expr(-1)) {
      if (open) return std::nullopt;
      open = i;
    } else {
      if (less(call, sizes[i], 0) != false) return std::nullopt;
      rest = rest * sizes[i];
    }
  }
  const Expr count = types::numel(self.sizes);
  if (!open) return known(equal(call, rest, count)) ? std::optional(sizes) : std::nullopt;
  if (equal(call, rest, 0) != false) {
    // Numbers that are not zero divide; a symbol of both sides cancels whatever its value, but at 0 torch raises.
    return std::nullopt;
  }
  if (Expr::mod(count, rest) != Expr(0)) return std::nullopt;
  sizes[*open] = Expr::floor_div(count, rest);
  return sizes;
}

// The strides of a view with other sizes, when there is one. Follows at::detail::computeStride.
std::optional<Sizes> view_strides(const Call& call, const TensorType& self, const Sizes& sizes) {
  if (self.sizes.empty()) return Sizes(sizes.size(), Expr(1));
  if (self.strides == types::contiguous_strides(self.sizes)) return types::contiguous_strides(sizes);
  const Truth empty = is_empty(call, self.sizes);
  if (!empty) {
    if (sizes == self.sizes) return self.strides;
    return known(contiguous(call, self)) ? std::optional(types::contiguous_strides(sizes)) : std::nullopt;
  }
  if (*empty) {  // the same sizes keep their strides
    bool all = sizes.size() == self.sizes.size(), none = !all;
    for (size_t d = 0; d < sizes.size() && !none; ++d) {
      const Truth same = equal(call, sizes[d], self.sizes[d]);
      all = all && same == true;
      none = same == false;
    }
    if (!all && !none) return std::nullopt;
    return all ? self.strides : types::contiguous_strides(sizes);
  }
  Sizes strides(sizes.size());
  size_t left = sizes.size();  // dimensions of the view that have no stride yet
  Expr base = self.strides.back(), chunk = 1, filled = 1;
  for (size_t d = self.sizes.size(); d-- > 0;) {
    chunk = chunk * self.sizes[d];
    if (d > 0) {
      const Truth one = equal(call, self.sizes[d - 1], 1), joined = equal(call, self.strides[d - 1], chunk * base);
      if (!one || (!*one && !joined)) return std::nullopt;
      if (*one || *joined) continue;
    }
    while (left > 0) {
      const Truth more = less(call, filled, chunk), one = equal(call, sizes[left - 1], 1);
      if (!more || (!*more && !one)) return std::nullopt;
      if (!*more && !*one) break;
      --left;
      strides[left] = filled * base;
      filled = filled * sizes[left];
    }
    if (!known(equal(call, filled, chunk))) return std::nullopt;
    if (d > 0) {
      base = self.strides[d - 1];
      chunk = filled = 1;
    }
  }
  return left == 0 ? std::optional(strides) : std::nullopt;
}

std::optional<TensorType> viewed(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* wanted = integers(call, 1);
  if (!self || !wanted) return std::nullopt;
  auto sizes = infer_sizes(call, *self, *wanted);
  if (!sizes) return std::nullopt;
  auto strides = view_strides(call, *self, *sizes);
  if (!strides) return std::nullopt;
  return TensorType{self->dtype, self->device, std::move(*sizes), std::move(*strides), self->offset};
}
Results view(const Call& call) {
  auto type = viewed(call);
  return type ? just(view_of(0, std::move(*type))) : std::nullopt;
}

Results reshape_alias(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes *sizes = integers(call, 1), *strides = integers(call, 2);
  if (!self || !sizes || !strides || sizes->size() != strides->size()) return std::nullopt;
  return just(view_of(0, {self->dtype, self->device, *sizes, *strides, self->offset}));
}

std::optional<TensorType> strided(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes *sizes = integers(call, 1), *strides = integers(call, 2);
  if (!self || !sizes || !strides || sizes->size() != strides->size()) return std::nullopt;
  const auto offset = is_absent(call, 3) ? std::optional(self->offset) : integer(call, 3);
  if (!offset || less(call, *offset, 0) != false) return std::nullopt;
  for (const Expr& stride : *strides)
    if (less(call, stride, 0) != false) return std::nullopt;
  return TensorType{self->dtype, self->device, *sizes, *strides, *offset};
}
// Whether the elements of `type` lie within the first elements that `self` is known to have.
bool within(const Call& call, const TensorType& type, const TensorType& self) {
  const auto last = [](const TensorType& t) {
    Expr at = t.offset;
    for (size_t i = 0; i < t.sizes.size(); ++i) at = at + (t.sizes[i] - 1) * t.strides[i];
    return at;
  };
  if (known(is_empty(call, type.sizes))) return true;
  return is_empty(call, self.sizes) == false && less(call, last(self), last(type)) == false;
}
Results as_strided(const Call& call) {
  auto type = strided(call);
  if (!type || !within(call, *type, *tensor(call, 0))) return std::nullopt;
  return just(view_of(0, std::move(*type)));
}
Results as_strided_(const Call& call) {
  auto type = strided(call);
  if (!type || !within(call, *type, *tensor(call, 0))) return std::nullopt;
  Result result = same_as(call, 0);
  result.type = std::move(*type);
  return just(std::move(result));
}

void swap_dims(TensorType& type, size_t a, size_t b) {
  std::swap(type.sizes[a], type.sizes[b]);
  std::swap(type.strides[a], type.strides[b]);
}
std::optional<TensorType> transposed(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self) return std::nullopt;
  const auto a = dimension(call, 1, self->sizes.size()), b = dimension(call, 2, self->sizes.size());
  if (!a || !b) return std::nullopt;
  TensorType type = *self;
  if (!type.sizes.empty()) swap_dims(type, *a, *b);
  return type;
}
std::optional<TensorType> flipped(const Call& call) {  // t
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.size() > 2) return std::nullopt;
  TensorType type = *self;
  if (type.sizes.size() == 2) swap_dims(type, 0, 1);
  return type;
}

std::optional<TensorType> permuted(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto dims = numbers(call, 1);
  if (!self || !dims || dims->size() != self->sizes.size()) return std::nullopt;
  TensorType type = *self;
  std::vector<bool> seen(dims->size());
  for (size_t i = 0; i < dims->size(); ++i) {
    const auto d = dimension((*dims)[i], dims->size());
    if (!d || seen[*d]) return std::nullopt;
    seen[*d] = true;
    type.sizes[i] = self->sizes[*d];
    type.strides[i] = self->strides[*d];
  }
  return type;
}

std::optional<TensorType> expanded(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* wanted = integers(call, 1);
  if (!self || !wanted || wanted->size() < self->sizes.size()) return std::nullopt;
  const size_t rank = wanted->size(), shift = rank - self->sizes.size();
  if (self->sizes.empty()) {
    for (const Expr& size : *wanted)
      if (less(call, size, 0) != false) return std::nullopt;
    return TensorType{self->dtype, self->device, *wanted, Sizes(rank, Expr(0)), self->offset};
  }
  TensorType type{self->dtype, self->device, *wanted, Sizes(rank), self->offset};
  for (size_t i = rank; i-- > 0;) {
    const bool is_new = i < shift;
    const Expr size = is_new ? Expr(1) : self->sizes[i - shift];
    // a new dimension continues the strides after it
    Expr stride = is_new ? type.sizes[i + 1] * type.strides[i + 1] : self->strides[i - shift];
    if (type.sizes[i] == Expr(-1)) {
      if (is_new) return std::nullopt;
      type.sizes[i] = size;
    }
    if (!known(equal(call, type.sizes[i], size))) {
      if (!known(equal(call, size, 1)) || less(call, type.sizes[i], 0) != false) return std::nullopt;
      stride = 0;
    }
    type.strides[i] = stride;
  }
  return type;
}

std::optional<TensorType> unsqueezed(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self) return std::nullopt;
  const size_t rank = self->sizes.size();
  const auto dim = dimension(call, 1, rank + 1);
  if (!dim) return std::nullopt;
  TensorType type = *self;
  const Expr stride = *dim >= rank ? Expr(1) : self->sizes[*dim] * self->strides[*dim];
  type.sizes.insert(type.sizes.begin() + static_cast<ptrdiff_t>(*dim), Expr(1));
  type.strides.insert(type.strides.begin() + static_cast<ptrdiff_t>(*dim), stride);
  return type;
}

std::optional<TensorType> squeezed_at(const Call& call, const TensorType& self, const std::vector<bool>& candidates) {
  TensorType type{self.dtype, self.device, {}, {}, self.offset};
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    const Truth one = equal(call, self.sizes[i], 1);
    if (candidates[i] && !one) return std::nullopt;
    if (candidates[i] && *one) continue;
    type.sizes.push_back(self.sizes[i]);
    type.strides.push_back(self.strides[i]);
  }
  return type;
}
std::optional<TensorType> squeezed(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self) return std::nullopt;
  return squeezed_at(call, *self, std::vector<bool>(self->sizes.size(), true));
}
std::optional<TensorType> squeezed_dims(const Call& call) {
  const TensorType* self = tensor(call, 0);
  auto dims = numbers(call, 1);
  if (const auto one = number(call, 1)) dims = std::vector<int64_t>{*one};
  if (!self || !dims) return std::nullopt;
  std::vector<bool> candidates(self->sizes.size());
  for (const int64_t dim : *dims) {
    const auto d = dimension(dim, self->sizes.size());
    if (!d) return std::nullopt;
    if (self->sizes.empty()) continue;
    if (candidates[*d]) return std::nullopt;
    candidates[*d] = true;
  }
  return squeezed_at(call, *self, candidates);
}

}  // namespace

std::optional<Expr> clamp_position(const Call& call, Expr at, const Expr& size) {
  const Truth negative = less(call, at, 0);
  if (!negative) return std::nullopt;
  if (*negative) at = at + size;
  const Truth below = less(call, at, 0), above = less(call, size, at);
  if (!below || (!*below && !above)) return std::nullopt;
  return *below ? Expr(0) : *above ? size : at;
}

namespace {

std::optional<TensorType> sliced(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.empty()) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  auto start = is_absent(call, 2) ? std::optional(Expr(0)) : integer(call, 2);
  auto end = is_absent(call, 3) ? std::optional(Expr(INT64_MAX)) : integer(call, 3);
  const auto step = number(call, 4);
  if (!dim || !start || !end || !step || *step <= 0) return std::nullopt;
  const Expr& size = self->sizes[*dim];
  start = clamp_position(call, *start, size);
  end = *end == Expr(INT64_MAX) ? size : clamp_position(call, *end, size);
  if (!start || !end) return std::nullopt;
  const Truth backwards = less(call, *end, *start);
  if (!backwards) return std::nullopt;
  if (*backwards) end = start;
  TensorType type = *self;
  type.sizes[*dim] = Expr::floor_div(*end - *start + (*step - 1), *step);
  type.strides[*dim] = self->strides[*dim] * *step;
  type.offset = self->offset + *start * self->strides[*dim];
  return type;
}

TensorType without(const TensorType& self, size_t dim, const Expr& index) {
  TensorType type = self;
  type.offset = self.offset + index * self.strides[dim];
  type.sizes.erase(type.sizes.begin() + static_cast<ptrdiff_t>(dim));
  type.strides.erase(type.strides.begin() + static_cast<ptrdiff_t>(dim));
  return type;
}
std::optional<TensorType> selected(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.empty()) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  auto index = integer(call, 2);
  if (!dim || !index) return std::nullopt;
  const Expr& size = self->sizes[*dim];
  const Truth negative = less(call, *index, 0);
  if (!negative) return std::nullopt;
  if (*negative) index = *index + size;
  if (less(call, *index, 0) != false || !known(less(call, *index, size))) return std::nullopt;
  return without(*self, *dim, *index);
}

Results pieces(const TensorType& self, size_t dim, const Sizes& lengths) {
  std::vector<Result> results;
  Expr start = 0;
  for (const Expr& length : lengths) {
    TensorType type = self;
    type.sizes[dim] = length;
    type.offset = self.offset + start * self.strides[dim];
    start = start + length;
    results.push_back(view_of(0, std::move(type)));
  }
  return results;
}
Results split(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto length = integer(call, 1);
  if (!self || self->sizes.empty() || !length) return std::nullopt;
  const auto dim = dimension(call, 2, self->sizes.size());
  if (!dim) return std::nullopt;
  const Expr& size = self->sizes[*dim];
  if (known(equal(call, size, 0))) {
    if (less(call, *length, 0) != false) return std::nullopt;
    return pieces(*self, *dim, {0});
  }
  if (!known(less(call, 0, *length))) return std::nullopt;
  const auto count = fixed_size(call, Expr::floor_div(size + *length - 1, *length));
  if (!count || *count < 1) return std::nullopt;
  Sizes lengths(static_cast<size_t>(*count), *length);
  lengths.back() = size - *length * (*count - 1);
  return pieces(*self, *dim, lengths);
}
Results split_with_sizes(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* lengths = integers(call, 1);
  if (!self || self->sizes.empty() || !lengths) return std::nullopt;
  const auto dim = dimension(call, 2, self->sizes.size());
  if (!dim) return std::nullopt;
  Expr sum = 0;
  for (const Expr& length : *lengths) {
    if (less(call, length, 0) != false) return std::nullopt;
    sum = sum + length;
  }
  if (!known(equal(call, sum, self->sizes[*dim]))) return std::nullopt;
  return pieces(*self, *dim, *lengths);
}
Results unbind(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.empty()) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  const auto count = dim ? fixed_size(call, self->sizes[*dim]) : std::nullopt;
  if (!count || *count > 10000) return std::nullopt;
  std::vector<Result> results;
  for (int64_t i = 0; i < *count; ++i) results.push_back(view_of(0, without(*self, *dim, i)));
  return results;
}

std::optional<TensorType> diagonal(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto shift = number(call, 1);
  if (!self || !shift || self->sizes.size() < 2) return std::nullopt;
  const auto a = dimension(call, 2, self->sizes.size()), b = dimension(call, 3, self->sizes.size());
  if (!a || !b || *a == *b) return std::nullopt;
  const auto rows = fixed_size(call, self->sizes[*a]), columns = fixed_size(call, self->sizes[*b]);
  if (!rows || !columns) return std::nullopt;
  const int64_t length =
      std::max<int64_t>(0, *shift >= 0 ? std::min(*rows, *columns - *shift) : std::min(*rows + *shift, *columns));
  TensorType type{self->dtype, self->device, {}, {}, self->offset};
  if (length > 0) type.offset = self->offset + (*shift >= 0 ? self->strides[*b] * *shift : self->strides[*a] * -*shift);
  for (size_t i = 0; i < self->sizes.size(); ++i) {
    if (i == *a || i == *b) continue;
    type.sizes.push_back(self->sizes[i]);
    type.strides.push_back(self->strides[i]);
  }
  type.sizes.push_back(length);
  type.strides.push_back(self->strides[*a] + self->strides[*b]);
  return type;
}

std::optional<TensorType> unfolded(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto size = number(call, 2), step = number(call, 3);
  if (!self || self->sizes.empty() || !size || !step || *step <= 0 || *size < 0) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  if (!dim || less(call, self->sizes[*dim], *size) != false) return std::nullopt;
  TensorType type = *self;
  type.sizes[*dim] = Expr::floor_div(self->sizes[*dim] - *size, *step) + 1;
  type.strides[*dim] = self->strides[*dim] * *step;
  type.sizes.push_back(*size);
  type.strides.push_back(self->strides[*dim]);
  return type;
}

std::optional<TensorType> parts_of_complex(const Call& call) {  // view_as_real
  const TensorType* self = tensor(call, 0);
  if (!self || !types::is_complex(self->dtype)) return std::nullopt;
  TensorType type = *self;
  type.dtype = real_dtype(self->dtype);
  for (Expr& stride : type.strides) stride = stride * 2;
  type.offset = type.offset * 2;
  type.sizes.push_back(2);
  type.strides.push_back(1);
  return type;
}
std::optional<TensorType> complex_of_parts(const Call& call) {  // view_as_complex
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.empty() || self->sizes.back() != Expr(2) || self->strides.back() != Expr(1))
    return std::nullopt;
  if (self->dtype != Dtype::kF32 && self->dtype != Dtype::kF64) return std::nullopt;
  TensorType type = *self;
  type.dtype = self->dtype == Dtype::kF32 ? Dtype::kC64 : Dtype::kC128;
  type.sizes.pop_back();
  type.strides.pop_back();
  const auto halve = [](Expr& e) {
    if (Expr::mod(e, 2) != Expr(0)) return false;
    e = Expr::floor_div(e, 2);
    return true;
  };
  for (Expr& stride : type.strides)
    if (!halve(stride)) return std::nullopt;
  if (!halve(type.offset)) return std::nullopt;
  return type;
}

// The tensor itself changes its sizes and strides.
template <auto rule>
Results changed(const Call& call) {
  auto type = rule(call);
  if (!type) return std::nullopt;
  Result result = same_as(call, 0);
  result.type = std::move(*type);
  return just(std::move(result));
}
template <auto rule>
Results view_by(const Call& call) {
  auto type = rule(call);
  return type ? just(view_of(0, std::move(*type))) : std::nullopt;
}

constexpr Op kOps[] = {
    {.name = "magneto::data", .type = alias, .view = same_elements, .put = put_reshaped},
    {.name = "aten::_reshape_alias", .type = reshape_alias, .view = no_index, .functional = "aten::view"},
    {.name = "aten::_unsafe_view", .type = view, .view = same_elements, .put = put_reshaped},
    {.name = "aten::alias", .type = alias, .view = same_elements, .put = put_reshaped},
    {.name = "aten::as_strided", .type = as_strided, .view = strided_index, .put = put_strided, .by_strides = true},
    {.name = "aten::as_strided_",
     .type = as_strided_,
     .writes = kFirst,
     .functional = "aten::as_strided",
     .changes_shape = true},
    {.name = "aten::detach", .type = alias, .view = same_elements, .put = put_reshaped},
    {.name = "aten::detach_",
     .type = first_argument,
     .writes = kFirst,
     .functional = "aten::detach",
     .changes_shape = true},
    {.name = "aten::diagonal", .type = view_by<diagonal>, .view = diagonal_index, .put = put_diagonal},
    {.name = "aten::expand", .type = view_by<expanded>, .view = expand_index},
    {.name = "aten::lift_fresh", .type = first_argument, .view = same_elements, .put = put_reshaped},
    {.name = "aten::permute", .type = view_by<permuted>, .view = permute_index, .put = put_permuted},
    {.name = "aten::select.int", .type = view_by<selected>, .view = select_index, .put = put_selected},
    {.name = "aten::slice.Tensor", .type = view_by<sliced>, .view = slice_index, .put = put_sliced},
    {.name = "aten::split.Tensor", .type = split, .view = split_index, .put = put_piece},
    {.name = "aten::unsafe_split.Tensor", .type = split, .view = split_index, .put = put_piece},
    {.name = "aten::unsafe_split_with_sizes",
     .type = split_with_sizes,
     .view = split_sizes_index,
     .put = put_piece_of_sizes},
    {.name = "aten::split_with_sizes", .type = split_with_sizes, .view = split_sizes_index, .put = put_piece_of_sizes},
    {.name = "aten::squeeze", .type = view_by<squeezed>, .view = same_elements, .put = put_reshaped},
    {.name = "aten::squeeze.dim", .type = view_by<squeezed_dims>, .view = same_elements, .put = put_reshaped},
    {.name = "aten::squeeze.dims", .type = view_by<squeezed_dims>, .view = same_elements, .put = put_reshaped},
    {.name = "aten::squeeze_",
     .type = changed<squeezed>,
     .writes = kFirst,
     .functional = "aten::squeeze",
     .changes_shape = true},
    {.name = "aten::squeeze_.dim",
     .type = changed<squeezed_dims>,
     .writes = kFirst,
     .functional = "aten::squeeze.dim",
     .changes_shape = true},
    {.name = "aten::t", .type = view_by<flipped>, .view = t_index, .put = put_transposed},
    {.name = "aten::t_", .type = changed<flipped>, .writes = kFirst, .functional = "aten::t", .changes_shape = true},
    {.name = "aten::transpose.int", .type = view_by<transposed>, .view = transpose_index, .put = put_swapped},
    {.name = "aten::transpose_",
     .type = changed<transposed>,
     .writes = kFirst,
     .functional = "aten::transpose.int",
     .changes_shape = true},
    {.name = "aten::unbind.int", .type = unbind, .view = unbind_index, .put = put_unbound},
    {.name = "aten::unfold", .type = view_by<unfolded>, .view = unfold_index},
    {.name = "aten::unsqueeze", .type = view_by<unsqueezed>, .view = same_elements, .put = put_reshaped},
    {.name = "aten::unsqueeze_",
     .type = changed<unsqueezed>,
     .writes = kFirst,
     .functional = "aten::unsqueeze",
     .changes_shape = true},
    {.name = "aten::view", .type = view, .view = same_elements, .put = put_reshaped},
    {.name = "aten::view_as_complex", .type = view_by<complex_of_parts>, .view = no_index},
    {.name = "aten::view_as_real", .type = view_by<parts_of_complex>, .view = no_index},
};

}  // namespace

std::span<const Op> view_ops() { return kOps; }

}  // namespace magneto::ops
