// graph/graph.h: language 1. Tensor operators on values, in the order in which the program ran them.
//
//   graph {
//     in %0: f32[2, 3]                                        # x
//     in %1: f32[3]                                           # self.bias
//     %2: f32[2, 3] = aten::add.Tensor(%0, %1, 1)             # model.py:12
//     %3: f32[2, 3] = aten::relu_(%2)                         # model.py:13
//     out %3
//   }
//
// Views and in-place operators stand as they were recorded: a value is a tensor object, not a version of memory.
// Turning them into pure values is functionalisation, a later stage. Every operator is listed with all arguments of its
// schema, in order; defaults are written out.
#pragma once
#include <complex>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "types/device.h"
#include "types/dtype.h"
#include "types/expr.h"
#include "types/tensor_type.h"

namespace magneto::graph {

using ValueId = base::Id<struct ValueTag>;
using NodeId = base::Id<struct NodeTag>;

/// A double that is known when the graph is called: symbol i has its bits. real(s3)
struct Real {
  uint32_t symbol = 0;
  friend bool operator==(const Real&, const Real&) = default;
};

/// One argument of an operator. A number in the place of a tensor is a Python scalar that takes part in type promotion.
using Arg = std::variant<std::monostate,            // none
                         ValueId,                   // a tensor; invalid: an undefined tensor
                         std::vector<ValueId>,      // a list of tensors; invalid: none
                         types::Expr,               // an integer
                         std::vector<types::Expr>,  // a list of integers
                         double, std::vector<double>, bool, std::vector<bool>, std::complex<double>, std::string,
                         types::Dtype, types::Device, types::Layout, types::MemoryFormat, Real>;

struct Value {
  types::TensorType type;
  NodeId maker;      ///< invalid: an input or a constant
  std::string name;  ///< for readers: where an input comes from ("x", "self.weight")
};

/// Where in the user's program an operator was called.
struct Place {
  std::string file;
  int line = 0;
  std::string function;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Node {
  std::string op;  ///< name with overload: aten::add.Tensor
  std::vector<Arg> args;
  std::vector<ValueId> outputs;  ///< flat: the tensors of list results one after the other; invalid: undefined
  bool grad = true;              ///< grad mode while it ran; printed as a trailing !no_grad
  uint32_t place = 0;            ///< index into Graph::places
  /// The region of torch.utils.checkpoint that it stands in, which the backward computes again; 0: none. Printed as a
  /// trailing !checkpoint(1).
  uint32_t checkpoint = 0;
  std::vector<int64_t> numbers{};  ///< that it returned beside tensors when it was recorded; known to its kernel alone
};

/// Of a functional graph: once everything has run, the elements of `value` become the elements of `into`, which is an
/// input or a view of one. Stores happen in order; what no store names stays as it is.
struct Store {
  ValueId value, into;
  friend bool operator==(const Store&, const Store&) = default;
};

class Graph {
 public:
  ValueId add_input(types::TensorType type, std::string name);
  /// A tensor that belongs to the graph (made from Python numbers). `slot` counts the constants.
  ValueId add_constant(types::TensorType type);
  ValueId add_value(types::TensorType type);  ///< made by the node that lists it
  NodeId add_node(Node node);                 ///< sets the maker of its outputs that have none
  uint32_t add_place(Place place);            ///< the last place is found again; 0 is "unknown"
  void truncate(size_t nodes);                ///< forgets all nodes after the first `nodes`, their values stay

  bool comes_from_outside(ValueId id) const;  ///< an input or a constant

  const Value& value(ValueId id) const { return values_[id.index()]; }
  Value& value(ValueId id) { return values_[id.index()]; }
  const Node& node(NodeId id) const { return nodes_[id.index()]; }
  Node& node(NodeId id) { return nodes_[id.index()]; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& constants() const { return constants_; }
  const std::vector<Place>& places() const { return places_; }

  std::vector<ValueId> outputs;
  std::vector<Store> stores;                 ///< printed as store %5 -> %0
  std::vector<types::Condition> conditions;  ///< relations of sizes that must hold for this graph to be right

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_, constants_;
  std::vector<Place> places_{Place{}};
};

/// The input or constant that this is, itself or as a view by way of the first arguments of nodes; invalid: another
/// value. A node that is no view must not be on the way: only a store's target is asked for.
ValueId outside_of(const Graph& graph, ValueId id);

/// Calls `visit` with every tensor among the arguments, lists included, in order.
void for_each_read(const Node& node, const std::function<void(ValueId)>& visit);

/// Adds the symbols whose value a tensor of this type tells: those that are one of its sizes, strides, or its offset.
void bind_symbols(const types::TensorType& type, std::vector<uint32_t>& into);

/// Drops inputs, constants and values that nothing reads, and renumbers the rest in order of appearance. `kept_inputs`
/// and `kept_constants` receive, for each remaining one, its old position; both may be null. No node is dropped, nor an
/// input that alone tells the value of a symbol in use.
Graph compact(const Graph& graph, std::vector<size_t>* kept_inputs, std::vector<size_t>* kept_constants = nullptr);
/// Drops only values that no node makes, and renumbers the rest: the caller's inputs and constants stay where they are.
Graph renumber(const Graph& graph);

/// The argument for these values of its symbols.
Arg evaluate(Arg arg, std::span<const int64_t> symbols);
/// The graph for these values of its symbols, without conditions.
Graph evaluate(const Graph& graph, std::span<const int64_t> symbols);

}  // namespace magneto::graph
