// ops/body.h: what an operator sees while it says what its elements are.
//
// An operator's `body` is asked once for each result: "what is the element at this index?" It reads the elements of its
// arguments, as operands (x: broadcast to the result, in the type that is computed with) or at places of its own
// choice (at), and folds them over axes that it opens itself (fold). The answer is a term of the loop language; the
// caller stores it in the type of the result. Half types are computed with in f32: reading widens them.
//
//   {.name = "aten::sigmoid", .body = [](Body& b) { b.promote_to_float({0}); return sigmoid(b.x(0)); }}
//
// A body that does not cover a call returns an invalid Element, and the call becomes an extern one.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "ops/element.h"
#include "ops/op.h"

namespace magneto::ops {

types::Dtype computed_in(types::Dtype dtype);  ///< f32 for the half types, else the type itself

class Body {
 public:
  /// Reads one element of a value, in the type in which it is stored.
  using Load = std::function<Element(graph::ValueId, const Index&)>;
  /// The same where a condition holds, and elsewhere `otherwise`.
  using LoadIf = std::function<Element(graph::ValueId, const Index&, Element condition, Element otherwise)>;

  Body(loop::Program& program, const Call& call, const types::TensorType& type, size_t output, Index index, Load load,
       LoadIf load_if)
      : call(call),
        type(type),
        output(output),
        index(std::move(index)),
        program_(&program),
        load_(std::move(load)),
        load_if_(std::move(load_if)) {}

  const Call& call;
  const types::TensorType& type;  ///< of the result
  const size_t output;            ///< which result
  const Index index;              ///< of the element that is asked for
  graph::ValueId base;            ///< for the equation of a scatter to set: the elements that nobody writes

  // ---- the type that is computed with
  types::Dtype dtype = types::Dtype::kF32;
  /// To what these arguments are promoted, as torch does it.
  void promote(std::initializer_list<size_t> arguments);
  void promote_to_float(std::initializer_list<size_t> arguments);  ///< integers become the default float
  void compute_as(types::Dtype wanted) { dtype = computed_in(wanted); }

  // ---- arguments
  const types::TensorType& type_of(size_t argument) const;
  Element x(size_t argument);                ///< operand: a tensor broadcast to the result, or a number
  Element x(size_t argument, const Index&);  ///< the same, broadcast to this index, which has the sizes of the result
  /// The same, but a number, or a CPU's tensor of one element, is not rounded to the half type that is promoted to:
  /// so it is in torch's kernels of sums, products and quotients for a GPU; `kept_on_cpu`: also for a CPU.
  Element exact(size_t argument, bool kept_on_cpu = false);
  Element as_half(Element value) const;  ///< rounded to the half type that is promoted to, if it is one
  bool on_cpu() const { return type.device.kind == types::Device::Kind::kCpu; }
  Element at(size_t argument, const Index& place);
  Element at(graph::ValueId value, const Index& place);
  Element at_if(graph::ValueId value, const Index& place, Element condition, double otherwise);
  Element at_if(graph::ValueId value, const Index& place, Element condition, Element otherwise);  ///< of its type
  Element scalar(size_t argument);  ///< a number as `dtype`

  // ---- terms
  Element number(double value) const;  ///< of type `dtype`
  Element number(double value, types::Dtype of) const;
  Element size(const types::Expr& size) const;  ///< i64
  Element whole(int64_t value) const { return size(types::Expr(value)); }
  /// The fold of `element` over new axes of these extents.
  Element fold(loop::Fold how, const types::Sizes& extents, const std::function<Element(const Index&)>& element);

  /// A question about sizes that has no answer here: the call becomes an extern one.
  bool declined() const { return declined_; }
  Element decline() {
    declined_ = true;
    return number(0);
  }

  loop::Program& program() const { return *program_; }
  Index open(const types::Sizes& extents, std::vector<loop::Range>& ranges);  ///< new axes; none for 1

 private:
  void compute_in(types::Dtype common);
  Index broadcast(const types::TensorType& from, const Index& to);
  Element operand(size_t argument, const Index& to);      ///< as `dtype`
  Element rounded(size_t argument, Element value) const;  ///< to the half type that is promoted to

  loop::Program* program_;
  Load load_;
  LoadIf load_if_;
  size_t opened_ = 0;
  std::optional<types::Dtype> half_;  ///< what the arguments are promoted to, where that is a half type
  bool declined_ = false;
};

/// The index of the same element in a tensor of other sizes, in row-major order: what a reshape does.
Index reshaped(const Body& b, const types::Sizes& from, const Index& index, const types::Sizes& to);

}  // namespace magneto::ops
