// ops/views_internal.h: views as arithmetic on indices, and back: the tensor with another value in the place of a view.
#pragma once
#include "ops/body.h"
#include "ops/expander.h"

namespace magneto::ops {

using Mapped = std::optional<std::vector<Element>>;

Mapped same_elements(Body& b);  ///< another shape, the same row-major order: view, squeeze, unsqueeze, alias
Mapped expand_index(Body& b);
Mapped permute_index(Body& b);
Mapped transpose_index(Body& b);
Mapped t_index(Body& b);
Mapped slice_index(Body& b);
Mapped select_index(Body& b);
Mapped split_index(Body& b);
Mapped split_sizes_index(Body& b);
Mapped unbind_index(Body& b);
Mapped diagonal_index(Body& b);
Mapped unfold_index(Body& b);
Mapped strided_index(Body& b);
Mapped no_index(Body& b);  ///< elements of another type, or strides that were told

using PutValue = graph::ValueId;
PutValue put_reshaped(Expander& e, size_t output, PutValue value);
PutValue put_permuted(Expander& e, size_t output, PutValue value);
PutValue put_swapped(Expander& e, size_t output, PutValue value);
PutValue put_transposed(Expander& e, size_t output, PutValue value);
PutValue put_sliced(Expander& e, size_t output, PutValue value);
PutValue put_selected(Expander& e, size_t output, PutValue value);
PutValue put_piece(Expander& e, size_t output, PutValue value);
PutValue put_piece_of_sizes(Expander& e, size_t output, PutValue value);
PutValue put_unbound(Expander& e, size_t output, PutValue value);
PutValue put_diagonal(Expander& e, size_t output, PutValue value);
PutValue put_strided(Expander& e, size_t output, PutValue value);

/// A position counted from the end when negative, kept between 0 and size. (views.cpp)
std::optional<types::Expr> clamp_position(const Call& call, types::Expr at, const types::Expr& size);

}  // namespace magneto::ops
