// aten/operators_internal.h: what the recorder and the executor know of each operator of the dispatcher. Computed once
// per operator from its schema, its tags, our declaration (ops/) and a few short lists of what schemas do not say.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "aten/convert_internal.h"
#include "ops/op.h"
#include "types/overlap.h"

namespace magneto::aten {

/// How the recorder treats an operator.
enum class Way : uint8_t {
  kRecord,     ///< write it down; results are pending
  kView,       ///< results share the memory of an argument: torch's own kernel may run at once, it reads no data
  kRestride,   ///< changes sizes and strides of the tensor object itself (t_, unsqueeze_), no data
  kAtOnce,     ///< write it down and run it now: it may fail on data, or returns numbers beside tensors
  kDecompose,  ///< a composite that autograd did not take apart (inference mode): run its body, record what it calls
  kReadsData,  ///< its result is a number or a size that depends on data
  kMetadata,   ///< its result depends on sizes and dtypes only
  kConstant,   ///< the end of torch.tensor([...])
  kOpaque,     ///< changes a tensor in a way that no graph can tell
};

/// Zeros without memory (torch's ZeroTensor), which some formulas of gradients give: when a result is such zeros again,
/// whatever the other arguments hold. Other operators compute with zeros.
enum class Zeros : uint8_t {
  kNever,
  kAlways,   ///< makes them
  kByAny,    ///< one of the first two arguments
  kByFirst,  ///< the first argument, but not the second
  kByBoth,
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  std::string name;  ///< with overload: aten::add.Tensor
  Way way = Way::kRecord;
  std::vector<ArgKind> arguments;
  std::vector<bool> writes;   ///< for each argument
  std::vector<bool> aliases;  ///< for each argument: a result may share its memory
  size_t returns = 0;
  bool gives_numbers = false;  ///< beside tensors
  bool writes_anything = false;
  bool takes_out = false;          ///< a tensor that is given by out=, and may be resized
  bool bumps_versions = false;     ///< of the tensors it writes, itself: autograd's kernels do not do it
  bool factory = false;            ///< torch's Python functions run it below autograd: no version is counted
  bool random = false;             ///< draws from a generator
  bool masks_are_dynamic = false;  ///< reads data only when an index is a mask
  bool divides = false;            ///< integers: fails when a divisor is zero
  bool same_dtypes = false;        ///< its kernel, not its shape rule, refuses arguments of different dtypes
  bool is_foreign = false;         ///< not torch's own: what it returns may depend on data, and no tag says so
  Zeros zeros = Zeros::kNever;
  /// Of one that writes: each element that it writes depends on the same element of what it reads only.
  bool works_by_element() const { return declared && ops::works_by_element(*declared); }
  /// Whether it may read what lies so to what it writes, and comes out as if all were read before.
  bool may_read(types::Overlap overlap) const {
    return overlap == types::Overlap::kNone || (overlap == types::Overlap::kSame && works_by_element());
  }
  const ops::Op* declared = nullptr;
  const c10::KernelFunction* meta = nullptr;  ///< torch's shape kernel in C++, if there is one
};

/// Whose kernel runs for an operator before it comes to us, in the place of autograd.
enum class Above : uint8_t {
  kNobody,  ///< the operator comes to us as it is, and autograd sees those inside of it
  kTorch,   ///< torch's own: grad mode and arguments are the caller's when it comes to us
  kCpp,     ///< another library's, in C++: a gradient of its own, or a composite
  kGlue,    ///< torch's Python code around the formula of a custom_op: without a gradient it only goes on
  kPython,  ///< Python code: whatever it does besides, it does in each call
};
/// Asked whenever it matters: kernels are registered and taken away at any time.
Above above(const Operator& op, c10::DispatchKey autograd_key);
/// On any device.
Above above(const Operator& op);
/// The formula of its gradient is Python code.
inline bool has_python_gradient(Above kernel) { return kernel == Above::kGlue || kernel == Above::kPython; }

/// The shape kernel in Python that somebody has registered (torch.library.register_fake), if there is one now.
const c10::KernelFunction* fake_of(const Operator& op);

/// Why a graph with it cannot become one of values: the middle would not see what it does to memory. Empty: it can.
std::string hidden_effect(const Operator& op);

/// Never dies, never moves.
const Operator& operator_of(const c10::OperatorHandle& handle);
/// By its name with overload. Throws base::Fault when torch has none.
const Operator& operator_named(const std::string& name);

/// What a view (kView, kRestride) looks at; invalid where that is several tensors.
graph::ValueId viewed_by(const graph::Node& view);
/// A view that torch calls none: the memory goes on, the history does not.
bool ends_history(const std::string& op);
/// Whether torch calls it a view.
bool is_view(const graph::Graph& graph, graph::ValueId id);

}  // namespace magneto::aten
