// ops/op.h: all we know of an operator, one declaration each. Nothing else in the compiler knows an operator by name.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "loop/program.h"
#include "types/tensor_type.h"

namespace magneto::ops {

/// One tensor that an operator returns.
struct Result {
  enum class Kind : uint8_t {
    kFresh,      ///< new memory with exactly these strides
    kView,       ///< shares the memory of argument `of`
    kSame,       ///< is the tensor of argument `of` (in-place, out=)
    kUndefined,  ///< an undefined tensor
  };
  Kind kind = Kind::kFresh;
  types::TensorType type;
  int of = -1;    ///< index of the argument
  int item = -1;  ///< when that argument is a list: which of its tensors
};

/// Of the arguments that are floats without a value yet (graph::Real): those that a rule has an answer for, whatever
/// the value, those that torch refuses where the element type does not hold them, and those for which the answer holds
/// unless they are NaN. Bit i is argument i. Then those for which it holds between two numbers, both included.
struct TakenReals {
  uint64_t taken = 0;
  uint64_t converted = 0;
  uint64_t ordered = 0;
  uint64_t untyped = 0;  ///< taken, although the rule has no types: torch's do not depend on it
  struct Range {
    size_t argument;
    double least, most;
  };
  std::vector<Range> ranges = {};
};

/// The arguments of one call, as the graph has them.
struct Call {
  std::span<const graph::Arg> args;
  const graph::Graph* graph = nullptr;  ///< for the types of tensor arguments
  types::Dtype default_dtype = types::Dtype::kF32;
  /// Answers a question about symbolic sizes that nothing known decides, and takes the answer down as a condition of
  /// the graph. Empty: such a question has no answer.
  std::function<bool(const types::Condition&)> decide = {};
  /// The number that an expression is to be from now on, where a rule must count with it. Empty: as above.
  std::function<int64_t(const types::Expr&)> fix = {};
  TakenReals* reals = nullptr;  ///< nobody asks
  const types::TensorType& type(graph::ValueId id) const { return graph->value(id).type; }
};

/// The tensors an operator returns, or nothing when the rule does not cover this call: an error that torch should
/// report, a dtype or layout it was not written for. A rule never guesses and never throws.
using TypeRule = std::optional<std::vector<Result>> (*)(const Call& call);

class Body;
class Element;
class Expander;

/// The element of a result at an index (body.h); invalid: this call is not covered.
using BodyRule = Element (*)(Body& body);
/// Of a view: where in its argument the element at an index lies (body.h); empty optional: this call is not covered.
using ViewRule = std::optional<std::vector<Element>> (*)(Body& body);
/// An equation of another kind than a map, for the target that is set already; false: this call is not covered.
using EquationRule = bool (*)(Body& body, loop::Equation& equation);
/// Simpler operators that give the same results (expander.h), one value each; empty: this call is not covered.
using ExpandRule = std::vector<graph::ValueId> (*)(Expander& expander);
/// Of a view: the tensor it was taken of, with `value` in the place of result `output`; invalid: not covered.
using PutRule = graph::ValueId (*)(Expander& expander, size_t output, graph::ValueId value);

struct Op {
  std::string_view name;  ///< with overload: aten::add.Tensor
  TypeRule type = nullptr;
  std::span<const int> writes = {};  ///< arguments it changes in place
  bool may_raise_on_data = false;  ///< fails for some values of its inputs (an index out of range), not only for shapes
  bool random = false;             ///< draws from a generator

  // What lowering needs. An operator with none of these is an extern call.
  BodyRule body = nullptr;
  ViewRule view = nullptr;
  EquationRule equation = nullptr;
  ExpandRule expand = nullptr;

  // What functionalisation needs.
  PutRule put = nullptr;  ///< of a view that can be written through
  /// Of an operator that writes: the one that gives what is written as results. Of a view that is told the strides of
  /// its result: the one that is told its sizes only.
  std::string_view functional = {};
  bool (*writes_if)(const Call& call) = nullptr;  ///< when it writes at all; null: always
  bool by_strides = false;                        ///< a view of memory, whatever the tensor it is called on looks like
  /// The first results of this operator, called with the same arguments, are its own. It takes its place where
  /// gradients are traced, if nobody reads the others.
  std::string_view same_as = {};
  /// Without a rule, and only torch's own code calls it; still it refuses sizes that do not belong together.
  bool checks_arguments = false;
  bool changes_shape = false;  ///< writes not the elements of its first argument but how they are looked at
};

/// Of an operator that writes: each element that it writes depends on the same element of its arguments only.
bool works_by_element(const Op& op);

const Op* find(std::string_view name);  ///< nullptr: an operator without declaration
std::span<const Op* const> all();       ///< sorted by name

}  // namespace magneto::ops
