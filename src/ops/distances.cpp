// Distances of rows: cdist, pdist and their gradients.
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

bool is_single_or_double(const TensorType& type) { return type.dtype == Dtype::kF32 || type.dtype == Dtype::kF64; }

/// The batches of two lists of rows, the rows of the first, and those of the second.
struct Rows {
  Sizes batch;
  Expr first, second, width;
};
std::optional<Rows> rows_of(const Call& call, const TensorType* a, const TensorType* b) {
  if (!a || !b || a->sizes.size() < 2 || b->sizes.size() < 2 || a->device != b->device) return std::nullopt;
  if (a->dtype != b->dtype || !is_single_or_double(*a)) return std::nullopt;
  const size_t n = a->sizes.size(), m = b->sizes.size();
  if (!known(equal(call, a->sizes[n - 1], b->sizes[m - 1]))) return std::nullopt;
  auto batch =
      broadcast(call, Sizes(a->sizes.begin(), a->sizes.end() - 2), Sizes(b->sizes.begin(), b->sizes.end() - 2));
  if (!batch) return std::nullopt;
  return Rows{std::move(*batch), a->sizes[n - 2], b->sizes[m - 2], a->sizes[n - 1]};
}

Results cdist(const Call& call) {  // a, b, p, how
  const TensorType* a = tensor(call, 0);
  auto rows = rows_of(call, a, tensor(call, 1));
  const auto p = real(call, 2);
  if (!rows || !p || !(*p >= 0)) return std::nullopt;
  if (!is_absent(call, 3) && !number(call, 3)) return std::nullopt;
  if (const int64_t how = number(call, 3).value_or(0); how < 0 || how > 2) return std::nullopt;
  Sizes sizes = std::move(rows->batch);
  sizes.insert(sizes.end(), {rows->first, rows->second});
  return just(fresh(a->dtype, a->device, std::move(sizes)));
}

Results cdist_backward(const Call& call) {  // grad, a, b, p, distances
  const TensorType *grad = tensor(call, 0), *a = tensor(call, 1), *distances = tensor(call, 4);
  auto rows = rows_of(call, a, tensor(call, 2));
  if (!rows || !grad || !distances) return std::nullopt;
  Sizes sizes = rows->batch;
  sizes.insert(sizes.end(), {rows->first, rows->second});
  for (const TensorType* one : {grad, distances})
    if (one->dtype != a->dtype || one->device != a->device || !same(call, one->sizes, sizes)) return std::nullopt;
  sizes.back() = rows->width;
  if (is_empty(call, sizes) != false || is_empty(call, grad->sizes) != false) return std::nullopt;
  return just(fresh(a->dtype, a->device, std::move(sizes)));
}

Results pdist_backward(const Call& call) {  // grad, rows, p, distances
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1), *distances = tensor(call, 3);
  if (!grad || !self || !distances || !is_single_or_double(*self) || self->sizes.size() != 2) return std::nullopt;
  const Expr count = Expr::floor_div(self->sizes[0] * (self->sizes[0] - 1), 2);
  if (less(call, 1, self->sizes[0]) != true || !known(contiguous(call, *self))) return std::nullopt;
  for (const TensorType* one : {grad, distances})
    if (one->dtype != self->dtype || one->device != self->device || !same(call, one->sizes, {count}) ||
        !known(contiguous(call, *one)))
      return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

constexpr Op kOps[] = {
    {.name = "aten::_cdist_backward", .type = cdist_backward},
    {.name = "aten::_cdist_forward", .type = cdist},
    {.name = "aten::_pdist_backward", .type = pdist_backward},
};

}  // namespace

std::span<const Op> distance_ops() { return kOps; }

}  // namespace magneto::ops
