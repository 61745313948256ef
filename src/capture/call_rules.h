// capture/call_rules.h: what is known of functions written in C, one row each. Unknown means opaque: the segment ends
// before the call, and the call runs as in eager.
#pragma once
#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace magneto::capture {

enum class CallClass : unsigned char {
  kOpaque,
  kPure,        ///< the result follows from the arguments, which it may read as a whole
  kReadKey,     ///< reads one entry (second argument) of the first argument
  kGetAttr,     ///< getattr, hasattr, object.__getattribute__
  kSetAttr,     ///< setattr, object.__setattr__, delattr, object.__delattr__
  kEffect,      ///< changes its first argument; keeps references to the others
  kEffectCopy,  ///< changes its first argument by the content of the second (extend, update)
  kState,       ///< a getter of state outside: called again as a guard
  kStateWord,   ///< a getter that the state word covers
  kStateSet,    ///< changes state outside; repeated on replay
  kContextGet,  ///< ContextVar.get
  kIgnore,      ///< an effect that nobody sees (usage counters)
  kTorch,       ///< runs operators; non-tensor results follow from the metadata of its arguments
  kData,        ///< reads the data of a tensor
  kTypeCall,    ///< type.__call__
  kIdentity,    ///< id(): the address of an object
  kNext,        ///< next(iterator)
  kResume,      ///< send, throw and close of a generator
  kNew,         ///< object.__new__ and the like: makes an instance of its first argument
  kInit,        ///< object.__init__: nothing
  kFunc,        ///< begins, ends and serves a transform of torch.func; reads nothing but tensors and what it is given
  kCheckpoint,  ///< begin and end of a region of torch.utils.checkpoint
  kReduce,      ///< object.__reduce_ex__: reads the whole instance dict
  kAutograd,    ///< apply of a custom autograd.Function: makes a ctx, calls forward
  kWarn,        ///< warnings.warn
  kPrint,       ///< print
  kGlobals,     ///< globals
  kBuildClass,  ///< __build_class__
  kOwnClass,    ///< changes a class that is made here, and nothing else
  kOperator,    ///< operator.add and its like, abs, pow: what operator_call says
};

/// What one function does, and others of its class do not. A function may have several.
enum class CallTrait : uint32_t {
  kReadsNumber = 1u << 0,         ///< kData: gives the data of a tensor as a number
  kMakesTensor = 1u << 1,         ///< kTorch: torch.tensor
  kTakesData = 1u << 2,           ///< kOpaque: torch.as_tensor, which shares the memory of an array
  kTakesSizes = 1u << 3,          ///< kOpaque: Tensor.new, of sizes or of data
  kRequiresGrad = 1u << 4,        ///< kOpaque: Tensor.requires_grad_
  kRecurrent = 1u << 5,           ///< kTorch: a loop over time, which torch takes apart
  kPoolsLine = 1u << 6,           ///< kTorch: max_pool1d, which computes past the dispatcher
  kDeletes = 1u << 7,             ///< kSetAttr: takes the attribute away
  kOfInstance = 1u << 8,          ///< kGetAttr, kSetAttr: below what the class itself says of attributes
  kAsks = 1u << 9,                ///< kGetAttr: hasattr
  kMayMiss = 1u << 10,            ///< kReadKey: asks the class for what is missing, unseen
  kOfTransforms = 1u << 11,       ///< kState: the program itself sets it by a transform of torch.func
  kOfClass = 1u << 12,            ///< kState: asks an object for its class only
  kEnters = 1u << 13,             ///< kCheckpoint: begins the region
  kThrows = 1u << 14,             ///< kResume: enters the generator with an error
  kAsksForSubclasses = 1u << 15,  ///< kPure: whether one of the arguments has a __torch_function__
  kHandsOn = 1u << 16,   ///< kPure: hands tensors on to operators, or looks at them for nothing else than what they are
  kCompares = 1u << 17,  ///< kPure: asks objects whether they are equal, or for their hash
  kChecksInstance = 1u << 18,  ///< kPure: isinstance, issubclass
  kAsksForClass = 1u << 19,    ///< kPure: callable
  kLength = 1u << 20,          ///< kPure: len
  kIterates = 1u << 21,        ///< kPure: iter
  kLeast = 1u << 22,           ///< kPure: min
  kGreatest = 1u << 23,        ///< kPure: max
  kReadsElements = 1u << 24,   ///< kData: the elements of a tensor, as numbers of their own kinds
  kReadsTruth = 1u << 25,      ///< kData: whether the only element of a tensor is not zero
  kReadsList = 1u << 26,       ///< kData: any number of elements
  kAttaches = 1u << 27,        ///< kOpaque: Tensor.retain_grad, which a replay repeats
};

struct CallRule {
  CallClass cls = CallClass::kOpaque;
  uint32_t traits = 0;
  bool has(CallTrait trait) const { return (traits & static_cast<uint32_t>(trait)) != 0; }
};

/// Functions written in Python that mean something to a compiler; all others are inlined and nothing else.
enum class FunctionClass : unsigned char {
  kInlined,
  kBreak,          ///< torch.compiler.graph_break, by each of its names
  kIsCompiling,    ///< torch.compiler.is_compiling, by each of its names
  kImport,         ///< importlib.import_module
  kDifferentiate,  ///< runs autograd's engine on tensors of a transform of torch.func, and nothing else
  /// Fills a table of torch's own, nothing of the program's: once torch.compile was used, every new module is entered
  /// into one of TorchDynamo's; the first vmap registers operators.
  kBookkeeping,
  kClearFrames,  ///< traceback.clear_frames, which assertRaises calls: what has ended is not there in a replay
  kLog,          ///< logging.Logger._log, where every message of an enabled logger goes
  kDeviceName,   ///< what it says of a device holds as long as the process lives
  kCopies,       ///< copy.copy, copy.deepcopy
  kCopiesTensor,
  kMakesClass,     ///< makes a class of plain arguments, or finishes one that is made here; runs no code of the program
  kRegistersHook,  ///< of a tensor: Python code that a backward runs
  kRemovesHook,    ///< by its handle
  kRunsEngine,     ///< autograd's engine, as torch.autograd.grad calls it
  kRunsBackward,   ///< the same, on whatever has led to its tensors; gradients come to leaves of others
  kHigherOrder,    ///< hands functions of the program to torch.compile, in eager too
};
FunctionClass function_class(PyFunctionObject* function);

/// A class of TorchDynamo's that changes with each compile, and tells nothing of the program.
bool is_bookkeeping_class(PyTypeObject* type);

/// A function that is an operator of the language: operator.add(a, b) is a + b.
struct OperatorCall {
  enum class Kind : unsigned char { kUnary, kBinary, kCompare, kIdentical, kItem, kNumber, kTotal, kDivmod } kind;
  /// As Semantics::unary, binary and compare take it; kIdentical: 1 for `is not`; kTotal: the operator between
  /// elements.
  int code = 0;
  size_t arguments = 2;
};
const OperatorCall* operator_call(PyObject* callable);  ///< nullptr: none

/// What is known of a C callable: builtin function or method, method or slot descriptor, method-wrapper. `self`
/// receives the object a bound C method carries (borrowed), or nullptr.
CallRule call_rule(PyObject* callable, PyObject** self);

/// For functions of ours, once, at import.
void set_call_rule(PyObject* callable, CallRule rule);

/// Constructors of C types whose result follows from their arguments.
bool is_known_constructor(PyTypeObject* type);

/// C types whose slots (iteration, items, operators, truth ...) read nothing but the object itself.
bool is_known_c_type(PyTypeObject* type);

/// Numbers of numpy, which never change. Their slots are known, too.
bool is_numpy_number(PyTypeObject* type);

/// Known C types whose content changes, and is theirs alone: a deque, a view of a dict.
bool hides_content(PyTypeObject* type);

/// A slot of a C type bound to an object: x.__eq__.
bool is_method_wrapper(PyObject* object);

/// The descriptor behind a bound C method: the same method, for any object. New reference; nullptr: none was found.
PyObject* unbound(PyObject* callable);

/// The method `name` of `type` is the one that `base` has: no class between them overrides it. (Slots do not tell: a
/// subclass reaches some methods of dict and set through a generic slot.)
bool inherits(PyTypeObject* type, const char* name, PyTypeObject* base);
/// The class's `__missing__` where a look-up of `key` would call it: a dict of a subclass that has no such key.
/// Borrowed.
PyObject* missing_method(PyObject* container, PyObject* key);

/// Functions of torch that hand the doubles they are given on to operators, and look at them for nothing else: between
/// these numbers, both included, no branch and no error depends on them. (What the operators make of them, their rules
/// know; what torch counts of them first is met as such, aten/symbols.h, or is a number that differs from the
/// program's.)
struct DoubleRange {
  double least, most;
  bool may_be_ignored = false;  ///< no operator gets it in some calls, and nothing depends on it then
};
std::optional<DoubleRange> passes_doubles(std::string_view name);

/// A name for messages: "time.perf_counter", "numpy.ndarray.sum".
std::string callable_name(PyObject* callable);

}  // namespace magneto::capture
