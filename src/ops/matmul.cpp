// Products of matrices and vectors. Results are row-major.
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// Both of rank `rank`, one element type, one device.
bool fit(const TensorType* a, const TensorType* b, size_t rank) {
  return a && b && a->sizes.size() == rank && b->sizes.size() == rank && a->dtype == b->dtype &&
         a->device == b->device && accepts(kNoBool, a->dtype);
}

std::optional<Sizes> matrix_product(const Call& call, const TensorType* a, const TensorType* b) {
  if (!fit(a, b, 2) || !known(equal(call, a->sizes[1], b->sizes[0]))) return std::nullopt;
  return Sizes{a->sizes[0], b->sizes[1]};
}
std::optional<Sizes> batch_product(const Call& call, const TensorType* a, const TensorType* b) {
  if (!fit(a, b, 3) || !known(equal(call, a->sizes[0], b->sizes[0])) || !known(equal(call, a->sizes[2], b->sizes[1])))
    return std::nullopt;
  return Sizes{a->sizes[0], a->sizes[1], b->sizes[2]};
}

// Kernels for integers exist on the CPU only.
bool can_run(const TensorType& a) { return on_cpu(a) || accepts(kInexact, a.dtype); }

template <auto product>
Results multiply(const Call& call) {
  const TensorType* a = tensor(call, 0);
  const auto sizes = product(call, a, tensor(call, 1));
  if (!sizes || !can_run(*a)) return std::nullopt;
  return just(fresh(a->dtype, a->device, *sizes));
}

// beta * self + alpha * (a @ b), where self is broadcast
template <auto product>
Results multiply_add(const Call& call) {
  const TensorType *self = tensor(call, 0), *a = tensor(call, 1);
  const auto sizes = product(call, a, tensor(call, 2));
  if (!self || !sizes || !can_run(*a) || self->dtype != a->dtype || self->device != a->device) return std::nullopt;
  const auto shape = broadcast(call, self->sizes, *sizes);
  if (!shape || !same(call, *shape, *sizes)) return std::nullopt;
  if (accepts(kIntegers, a->dtype) && (!number(call, 3) || !number(call, 4))) return std::nullopt;
  for (const size_t factor : {3, 4}) takes_real(call, factor);
  return just(fresh(a->dtype, a->device, *sizes));
}
template <auto product>
Results multiply_add_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto made = multiply_add<product>(call);
  if (!made || !same(call, (*made)[0].type.sizes, self->sizes) || !known(dense(call, *self))) return std::nullopt;
  return just(same_as(call, 0));
}

Results dot(const Call& call) {
  const TensorType *a = tensor(call, 0), *b = tensor(call, 1);
  if (!fit(a, b, 1) || !can_run(*a) || !known(equal(call, a->sizes[0], b->sizes[0]))) return std::nullopt;
  return just(fresh(a->dtype, a->device, {}));
}

std::optional<Sizes> matrix_vector(const Call& call, const TensorType* a, const TensorType* b) {
  if (!a || !b || a->sizes.size() != 2 || b->sizes.size() != 1 || a->dtype != b->dtype || a->device != b->device)
    return std::nullopt;
  if (!accepts(kNoBool, a->dtype) || !known(equal(call, a->sizes[1], b->sizes[0]))) return std::nullopt;
  return Sizes{a->sizes[0]};
}

// Of a matrix without elements torch gives the sizes of self, though they are to be broadcast: no rule.
Results multiply_add_vector(const Call& call) {
  const auto made = multiply_add<matrix_vector>(call);
  if (!made || same(call, tensor(call, 0)->sizes, (*made)[0].type.sizes)) return made;
  return is_empty(call, tensor(call, 1)->sizes) == false ? made : std::nullopt;
}

// Rows of a in groups, each with its own matrix; or one matrix for each of a batch.
Results grouped(const Call& call) {
  const TensorType *a = tensor(call, 0), *b = tensor(call, 1), *ends = tensor(call, 2);
  if (!a || !b || !on_cpu(*a) || a->dtype != b->dtype || !is_absent(call, 3)) return std::nullopt;
  if (!accepts(kFloats, a->dtype) || dtype_or(call, 4, a->dtype) != a->dtype) return std::nullopt;
  // rows must lie close together in at least one direction; which ones torch takes is certain for these
  if (a->strides != types::contiguous_strides(a->sizes) || b->strides != types::contiguous_strides(b->sizes))
    return std::nullopt;
  if (!ends && is_absent(call, 2)) return multiply<batch_product>(call);
  if (!ends || ends->dtype != Dtype::kI32 || ends->sizes.size() != 1) return std::nullopt;
  if (a->sizes.size() != 2 || b->sizes.size() != 3 || !known(equal(call, a->sizes[1], b->sizes[1])))
    return std::nullopt;
  if (!known(equal(call, ends->sizes[0], b->sizes[0]))) return std::nullopt;
  return just(fresh(a->dtype, a->device, {a->sizes[0], b->sizes[2]}));
}

constexpr Op kOps[] = {
    {.name = "aten::_grouped_mm", .type = grouped},
    {.name = "aten::addmm", .type = multiply_add<matrix_product>},
    {.name = "aten::addmm_", .type = multiply_add_<matrix_product>, .writes = kFirst, .functional = "aten::addmm"},
    {.name = "aten::addmv", .type = multiply_add_vector},
    {.name = "aten::baddbmm", .type = multiply_add<batch_product>},
    {.name = "aten::baddbmm_", .type = multiply_add_<batch_product>, .writes = kFirst, .functional = "aten::baddbmm"},
    {.name = "aten::bmm", .type = multiply<batch_product>},
    {.name = "aten::dot", .type = dot},
    {.name = "aten::mm", .type = multiply<matrix_product>},
    {.name = "aten::mv", .type = multiply<matrix_vector>},
};

}  // namespace

std::span<const Op> matmul_ops() { return kOps; }

}  // namespace magneto::ops
