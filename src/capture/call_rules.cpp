#include "capture/call_rules.h"

#include <opcode.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/evaluator.h"
#include "capture/guards.h"
#include "capture/tensor_meta.h"
#include "evaluator/frame_abi.h"

namespace magneto::capture {

namespace {

struct Row {
  CallClass cls;
  const char* names;  ///< separated by spaces: module.name, or type.name for methods
};

struct TraitRow {
  CallTrait trait;
  const char* names;
};

// The functions that 80 real models call (and their near relatives). One name, one promise.
constexpr Row kRows[] = {
    {CallClass::kPure,
     "builtins.isinstance builtins.issubclass builtins.callable builtins.ord builtins.chr builtins.len builtins.iter "
     "builtins.all builtins.any builtins.max "
     "builtins.min builtins.sorted builtins.bin builtins.hex builtins.oct builtins.repr builtins.ascii builtins.format "
     "builtins.hash math.sqrt math.ceil math.floor math.log math.log2 math.log10 math.log1p math.exp "
     "math.isqrt "
     "math.pow math.trunc math.cos math.sin math.tan math.tanh math.atan math.atan2 math.fabs math.gcd math.lcm "
     "math.isclose "
     "math.isnan math.isinf math.isfinite math.copysign math.fmod math.erf math.comb math.factorial math.radians "
     "math.degrees math.asin math.acos math.asinh math.acosh math.atanh math.sinh math.cosh math.exp2 math.expm1 "
     "math.cbrt math.dist math.hypot math.fsum math.frexp math.ldexp math.modf math.remainder math.ulp math.nextafter "
     "math.perm math.gamma math.lgamma math.erfc "
     "_operator.index _operator.length_hint _operator.truth _operator.contains "
     "str.startswith str.endswith str.replace str.join str.format str.split str.lower str.upper str.strip str.lstrip "
     "str.rstrip "
     "str.isidentifier str.find str.rfind str.rsplit str.partition str.rpartition str.count str.index str.title "
     "str.capitalize "
     "str.isdigit str.isalpha str.isnumeric str.isupper str.islower str.zfill str.ljust str.rjust str.center "
     "str.splitlines "
     "str.encode str.removeprefix str.removesuffix str.casefold str.swapcase str.isspace str.isalnum str.expandtabs "
     "str.istitle str.isprintable str.isdecimal str.isascii str.rindex str.translate str.maketrans "
     "bytes.decode int.bit_length int.__format__ float.is_integer float.__format__ str.__format__ float.hex "
     "float.as_integer_ratio "
     "int.to_bytes int.from_bytes int.bit_count int.conjugate "
     "tuple.index tuple.count list.copy list.index list.count dict.values dict.items dict.keys dict.copy dict.fromkeys "
     "mappingproxy.values mappingproxy.items mappingproxy.keys mappingproxy.get mappingproxy.copy set.copy set.union "
     "set.intersection set.difference set.symmetric_difference set.issubset set.issuperset set.isdisjoint "
     "frozenset.copy "
     "frozenset.union frozenset.intersection frozenset.difference frozenset.symmetric_difference frozenset.issubset "
     "frozenset.issuperset frozenset.isdisjoint set.__len__ set.__iter__ set.__eq__ set.__ne__ set.__or__ set.__and__ "
     "set.__sub__ set.__xor__ set.__le__ set.__lt__ set.__ge__ set.__gt__ frozenset.__len__ frozenset.__iter__ "
     "frozenset.__eq__ frozenset.__ne__ frozenset.__hash__ frozenset.__or__ frozenset.__and__ frozenset.__sub__ "
     "frozenset.__xor__ frozenset.__le__ frozenset.__lt__ frozenset.__ge__ frozenset.__gt__ "
     "collections.deque.count collections.deque.index collections.deque.copy collections.deque.__copy__ "
     "collections.deque.__len__ collections.deque.__getitem__ collections.deque.__iter__ "
     "collections.deque.__contains__ collections.deque.__eq__ collections.deque.__ne__ collections.deque.__add__ "
     "collections.deque.__mul__ collections.deque.__reversed__ "
     "collections.OrderedDict.values collections.OrderedDict.items collections.OrderedDict.keys "
     "collections.OrderedDict.copy "
     "list.__len__ list.__iter__ list.__eq__ list.__ne__ list.__add__ list.__mul__ dict.__iter__ dict.__len__ "
     "dict.__eq__ dict.__ne__ dict.__or__ "
     "list.__lt__ list.__le__ list.__gt__ list.__ge__ tuple.__lt__ tuple.__le__ tuple.__gt__ tuple.__ge__ "
     "tuple.__mul__ dict.__ror__ "
     "tuple.__iter__ tuple.__len__ tuple.__eq__ tuple.__ne__ tuple.__hash__ tuple.__add__ str.__eq__ str.__ne__ "
     "str.__hash__ str.__contains__ "
     "collections.OrderedDict.__iter__ collections.OrderedDict.__len__ collections.OrderedDict.__eq__ "
     "object.__eq__ object.__ne__ object.__format__ object.__str__ object.__repr__ object.__dir__ type.__repr__ "
     "int.__eq__ int.__ne__ int.__hash__ int.__add__ int.__sub__ int.__mul__ int.__floordiv__ int.__lt__ int.__le__ "
     "int.__gt__ int.__ge__ int.__index__ int.__int__ int.__repr__ "
     "float.__eq__ float.__mul__ float.__add__ "
     "set.__contains__ frozenset.__contains__ list.__contains__ tuple.__contains__ list.__getitem__ tuple.__getitem__ "
     "list.__reversed__ dict.__reversed__ generator.__iter__ list_iterator.__iter__ tuple_iterator.__iter__ "
     "range_iterator.__iter__ dict_keyiterator.__iter__ dict_valueiterator.__iter__ dict_itemiterator.__iter__ "
     "set_iterator.__iter__ builtins.zip.__iter__ builtins.map.__iter__ builtins.filter.__iter__ "
     "builtins.enumerate.__iter__ builtins.reversed.__iter__ range.__iter__ range.__len__ range.__getitem__ "
     "range.__contains__ range.__reversed__ range.__eq__ range.__ne__ list.__rmul__ tuple.__rmul__ set.__rand__ "
     "set.__ror__ set.__rsub__ set.__rxor__ frozenset.__rand__ frozenset.__ror__ frozenset.__rsub__ "
     "frozenset.__rxor__ "
     "collections.OrderedDict.__ne__ collections.OrderedDict.__or__ collections.OrderedDict.__ror__ "
     "collections.OrderedDict.__reversed__ collections.OrderedDict.fromkeys collections.defaultdict.copy "
     "collections.defaultdict.__copy__ collections.defaultdict.__or__ collections.defaultdict.__ror__ "
     "collections.deque.__lt__ collections.deque.__le__ collections.deque.__gt__ collections.deque.__ge__ "
     "builtins.complex.conjugate float.conjugate int.as_integer_ratio str.__iter__ str.__len__ str.__getitem__ "
     "str.__add__ str.__mul__ str.__lt__ str.__le__ str.__gt__ str.__ge__ str.__mod__ str.__str__ str.__repr__ "
     "builtins.BaseException.__str__ builtins.BaseException.__repr__ posix.fspath "
     "type.mro type.__prepare__ type.__instancecheck__ type.__subclasscheck__ slice.indices range.index range.count "
     "sys.getrecursionlimit sys.intern "
     "torch._C._has_torch_function torch._C._has_torch_function_unary torch._C._has_torch_function_variadic "
     "torch._C._functorch.unwrap_if_dead torch.Size.numel torch._C._is_autocast_available "
     "_functools.reduce itertools.chain.from_iterable "
     "builtins.property.getter builtins.property.setter builtins.property.deleter "
     "_bisect.bisect_left _bisect.bisect_right bytes.hex str.format_map _struct.pack _struct.unpack _struct.calcsize "
     "re.Pattern.match re.Pattern.search re.Pattern.fullmatch re.Pattern.findall re.Pattern.split re.Pattern.sub "
     "re.Pattern.subn re.Match.group re.Match.groups re.Match.groupdict re.Match.start re.Match.end re.Match.span "
     "float.fromhex float.hex"},
    {CallClass::kIdentity, "builtins.id object.__hash__"},
    {CallClass::kNext,
     "builtins.next generator.__next__ list_iterator.__next__ tuple_iterator.__next__ range_iterator.__next__ "
     "dict_keyiterator.__next__ dict_valueiterator.__next__ dict_itemiterator.__next__ set_iterator.__next__ "
     "builtins.zip.__next__ builtins.map.__next__ builtins.filter.__next__ builtins.enumerate.__next__ "
     "builtins.reversed.__next__"},
    {CallClass::kResume, "generator.send generator.throw generator.close"},
    {CallClass::kReadKey,
     "dict.get dict.__getitem__ dict.__contains__ collections.OrderedDict.__getitem__ collections.OrderedDict.get "
     "collections.OrderedDict.__contains__"},
    {CallClass::kGetAttr,
     "builtins.getattr builtins.hasattr object.__getattribute__ type.__getattribute__ module.__getattribute__"},
    {CallClass::kSetAttr,
     "builtins.setattr builtins.delattr object.__setattr__ object.__delattr__ type.__setattr__ type.__delattr__"},
    {CallClass::kEffect,
     "list.append list.insert list.pop list.remove list.clear list.reverse list.sort list.__setitem__ list.__delitem__ "
     "dict.pop dict.popitem dict.setdefault dict.clear dict.__setitem__ dict.__delitem__ set.add set.discard "
     "set.remove set.pop "
     "set.clear collections.OrderedDict.pop collections.OrderedDict.__setitem__ collections.OrderedDict.__delitem__ "
     "collections.OrderedDict.setdefault collections.OrderedDict.move_to_end collections.OrderedDict.popitem "
     "collections.OrderedDict.clear collections.deque.append collections.deque.appendleft collections.deque.pop "
     "collections.deque.popleft collections.deque.clear collections.deque.rotate collections.deque.insert "
     "collections.deque.remove collections.deque.reverse collections.deque.__setitem__ collections.deque.__delitem__ "
     "_bisect.insort_left _bisect.insort_right _heapq.heappush _heapq.heappop _heapq.heapify _heapq.heapreplace "
     "_heapq.heappushpop "
     "collections.deque.__imul__ list.__imul__ builtins.BaseException.with_traceback builtins.BaseException.add_note"},
    {CallClass::kEffectCopy,
     "list.extend list.__iadd__ collections.OrderedDict.__ior__ collections.defaultdict.__ior__ dict.update "
     "dict.__ior__ set.update set.__ior__ collections.OrderedDict.update "
     "collections.deque.extend collections.deque.extendleft collections.deque.__iadd__ set.intersection_update "
     "set.difference_update set.symmetric_difference_update set.__iand__ set.__isub__ set.__ixor__ "
     "collections.OrderedDict.__init__ dict.__init__ list.__init__ set.__init__"},
    {CallClass::kState,
     "torch._C._get_tracing_state torch._C._is_tracing torch._C._get_cudnn_enabled "
     "torch._C._cuda_isCurrentStreamCapturing torch._C._cuda_isInBadFork torch._C._cuda_getDevice "
     "torch._C._get_deterministic_algorithms torch._C._are_functorch_transforms_active "
     "torch._C._is_torch_function_enabled torch._C._is_torch_function_mode_enabled torch._C._len_torch_function_stack "
     "torch._C._len_torch_dispatch_stack "
     "torch._C._get_flash_sdp_enabled torch._C._get_mem_efficient_sdp_enabled torch._C._get_math_sdp_enabled "
     "torch._C._get_cudnn_sdp_enabled torch._C._get_overrideable_sdp_enabled torch._C._get_sdp_priority_order "
     "sys.exc_info sys.exception torch._C._is_any_autocast_enabled torch._C._autograd._profiler_enabled "
     "torch._C._get_cublas_allow_tf32 torch._C._get_mkldnn_enabled torch._C._is_fwd_grad_enabled "
     "torch._C._functorch.maybe_current_level torch._C._functorch.peek_interpreter_stack torch._C._cuda_getDeviceCount "
     "torch._C._get_fp32_precision_getter torch._C._get_privateuse1_backend_name torch._C._is_multithreading_enabled "
     "torch._C._get_cudnn_deterministic torch._C._get_cudnn_benchmark torch._C._get_cudnn_allow_tf32 "
     "torch.is_anomaly_enabled torch.is_anomaly_check_nan_enabled torch.is_deterministic_algorithms_warn_only_enabled "
     "torch.get_autocast_dtype torch._C.get_autocast_dtype torch.is_autocast_cache_enabled "
     "torch.get_autocast_gpu_dtype torch.get_autocast_cpu_dtype torch._C._get_accelerator "
     "torch._C._accelerator_getAccelerator "
     "_abc._abc_instancecheck _abc._abc_subclasscheck _abc.get_cache_token sys.is_finalizing posix.getenv "
     "_thread.get_ident gc.isenabled torch._C._get_deterministic_algorithms_warn_only torch._C.is_autocast_cpu_enabled "
     "torch.is_autocast_cpu_enabled torch._C._is_torch_function_all_disabled torch._C._EngineBase.is_checkpoint_valid "
     "torch._C._autograd._saved_tensors_hooks_get_disabled_error_message "
     "torch._C._dynamo.eval_frame.is_dynamo_compiling torch._C._jit_get_tracer_state_warn torch._C._is_mps_available"},
    {CallClass::kStateWord,
     "torch._C.is_grad_enabled torch.is_grad_enabled torch.is_inference_mode_enabled "
     "torch._C.is_inference_mode_enabled "
     "torch.is_autocast_enabled torch._C.is_autocast_enabled torch.get_default_dtype torch._C.get_default_dtype "
     "torch.get_num_threads "
     "torch._C.get_num_threads"},
    {CallClass::kStateSet,
     "torch._C._set_grad_enabled torch._C._autograd._saved_tensors_hooks_disable "
     "torch._C._autograd._saved_tensors_hooks_enable _warnings._filters_mutated "
     "_contextvars.ContextVar.set "
     "_contextvars.ContextVar.reset torch.set_autocast_enabled "
     "torch.set_autocast_dtype torch.set_autocast_cache_enabled torch.autocast_increment_nesting "
     "torch.autocast_decrement_nesting torch.clear_autocast_cache torch._C._set_sdp_use_flash "
     "torch._C._set_sdp_use_mem_efficient torch._C._set_sdp_use_math torch._C._set_sdp_use_cudnn "
     "torch._C._set_sdp_use_overrideable torch._C._set_sdp_priority_order _thread.LockType.acquire "
     "_thread.LockType.release _thread.LockType.__enter__ _thread.LockType.__exit__ _thread.RLock.acquire "
     "_thread.RLock.release _thread.RLock.__enter__ _thread.RLock.__exit__"},
    {CallClass::kContextGet, "_contextvars.ContextVar.get"},
    {CallClass::kIgnore, "torch._C._log_api_usage_once torch._C._log_api_usage_metadata"},
    {CallClass::kWarn, "_warnings.warn"},
    {CallClass::kPrint, "builtins.print"},
    {CallClass::kGlobals, "builtins.globals"},
    {CallClass::kBuildClass, "builtins.__build_class__"},
    {CallClass::kOwnClass, "_abc._abc_init"},
    {CallClass::kTypeCall, "type.__call__"},
    {CallClass::kNew,
     "object.__new__ dict.__new__ tuple.__new__ list.__new__ collections.OrderedDict.__new__ int.__new__ str.__new__ "
     "float.__new__"},
    {CallClass::kInit, "object.__init__ object.__init_subclass__ type.__init__"},
    {CallClass::kReduce, "object.__reduce_ex__"},
    {CallClass::kTorch, "torch._C._group_tensors_by_device_and_dtype"},
    {CallClass::kFunc,
     "torch._C._functorch._vmap_increment_nesting torch._C._functorch._vmap_decrement_nesting "
     "torch._C._functorch._add_batch_dim torch._C._functorch._remove_batch_dim torch._C._functorch._unwrap_batched "
     "torch._C._functorch._grad_increment_nesting torch._C._functorch._grad_decrement_nesting "
     "torch._C._functorch._wrap_for_grad torch._C._functorch._unwrap_for_grad torch._C._functorch.is_batchedtensor "
     "torch._C._functorch.is_gradtrackingtensor torch._C._functorch.is_functorch_wrapped_tensor "
     "torch._C._functorch.maybe_get_bdim torch._C._functorch.maybe_get_level torch._C._functorch.get_unwrapped "
     "torch._C._functorch.current_level torch._C._functorch.get_inplace_requires_grad_allowed "
     "torch._C._functorch.set_inplace_requires_grad_allowed torch._C._functorch.is_legacy_batchedtensor "
     "torch._C._functorch.get_single_level_autograd_function_allowed "
     "torch._C._functorch.set_single_level_autograd_function_allowed"},
    {CallClass::kAutograd, "torch._C._FunctionBase.apply"},
};

constexpr TraitRow kTraits[] = {
    {CallTrait::kReadsNumber,
     "torch._C.TensorBase.item torch._C.TensorBase.__bool__ torch._C.TensorBase.__int__ torch._C.TensorBase.__float__ "
     "torch._C.TensorBase.__index__ torch._C.TensorBase.is_nonzero torch.is_nonzero"},
    {CallTrait::kReadsElements, "torch._C.TensorBase.item torch._C.TensorBase.tolist"},
    {CallTrait::kReadsTruth, "torch._C.TensorBase.__bool__ torch._C.TensorBase.is_nonzero torch.is_nonzero"},
    {CallTrait::kReadsList, "torch._C.TensorBase.tolist"},
    {CallTrait::kMakesTensor, "torch.tensor"},
    {CallTrait::kTakesData, "torch.as_tensor"},
    {CallTrait::kTakesSizes, "torch._C.TensorBase.new"},
    {CallTrait::kRequiresGrad, "torch._C.TensorBase.requires_grad_"},
    {CallTrait::kAttaches, "torch._C.TensorBase.retain_grad"},
    {CallTrait::kRecurrent, "torch.lstm torch.gru torch.rnn_tanh torch.rnn_relu"},
    {CallTrait::kPoolsLine, "torch.max_pool1d"},
    {CallTrait::kDeletes, "builtins.delattr"},
    {CallTrait::kOfInstance,
     "object.__getattribute__ type.__getattribute__ module.__getattribute__ object.__setattr__ object.__delattr__ "
     "type.__setattr__ type.__delattr__"},
    {CallTrait::kAsks, "builtins.hasattr"},
    {CallTrait::kMayMiss, "dict.__getitem__ collections.OrderedDict.__getitem__"},
    {CallTrait::kOfTransforms,
     "torch._C._functorch.maybe_current_level torch._C._functorch.peek_interpreter_stack "
     "torch._C._are_functorch_transforms_active torch._C._autograd._saved_tensors_hooks_get_disabled_error_message"},
    {CallTrait::kOfClass, "_abc._abc_instancecheck _abc._abc_subclasscheck"},
    {CallTrait::kThrows, "generator.throw generator.close"},
    {CallTrait::kAsksForSubclasses,
     "torch._C._has_torch_function torch._C._has_torch_function_unary torch._C._has_torch_function_variadic"},
    {CallTrait::kHandsOn,
     "builtins.all builtins.any builtins.sum _functools.reduce dict.fromkeys torch._C._functorch.unwrap_if_dead"},
    {CallTrait::kChecksInstance, "builtins.isinstance builtins.issubclass"},
    {CallTrait::kAsksForClass, "builtins.callable"},
    {CallTrait::kLength, "builtins.len"},
    {CallTrait::kIterates, "builtins.iter"},
    {CallTrait::kLeast, "builtins.min"},
    {CallTrait::kGreatest, "builtins.max"},
    {CallTrait::kCompares,
     "tuple.index tuple.count list.index list.count str.index str.count range.index range.count "
     "collections.deque.index collections.deque.count builtins.hash dict.fromkeys collections.OrderedDict.fromkeys "
     "int.__eq__ int.__ne__ int.__hash__ "
     "float.__eq__ str.__eq__ str.__ne__ str.__hash__ str.__contains__ "
     "set.__eq__ set.__ne__ frozenset.__eq__ frozenset.__ne__ frozenset.__hash__ collections.deque.__eq__ "
     "collections.deque.__ne__ collections.deque.__contains__ list.__eq__ list.__ne__ dict.__eq__ dict.__ne__ "
     "tuple.__eq__ tuple.__ne__ tuple.__hash__ object.__eq__ object.__ne__ range.__eq__ range.__ne__ "
     "collections.OrderedDict.__eq__ collections.OrderedDict.__ne__ set.__contains__ frozenset.__contains__ "
     "list.__contains__ tuple.__contains__ range.__contains__"},
};

struct FunctionRow {
  FunctionClass cls;
  const char* module;
  const char* name;  ///< its __qualname__
};

constexpr FunctionRow kFunctions[] = {
    {FunctionClass::kBreak, "torch._dynamo.decorators", "graph_break"},
    {FunctionClass::kIsCompiling, "torch.compiler", "is_compiling"},
    {FunctionClass::kIsCompiling, "torch.compiler", "is_dynamo_compiling"},
    {FunctionClass::kIsCompiling, "torch._utils", "is_compiling"},
    {FunctionClass::kIsCompiling, "torch._dynamo.external_utils", "is_compiling"},
    {FunctionClass::kImport, "importlib", "import_module"},
    {FunctionClass::kDifferentiate, "torch._functorch.eager_transforms", "_autograd_grad"},
    {FunctionClass::kBookkeeping, "torch._dynamo.mutation_guard", "GenerationTracker.tag"},
    {FunctionClass::kBookkeeping, "torch._dynamo.mutation_guard", "_GenerationTracker.tag"},  // torch 2.15
    {FunctionClass::kBookkeeping, "torch._functorch.predispatch", "lazy_load_decompositions"},
    {FunctionClass::kClearFrames, "traceback", "clear_frames"},
    {FunctionClass::kLog, "logging", "Logger._log"},
    {FunctionClass::kDeviceName, "torch.cuda", "get_device_capability"},
    {FunctionClass::kDeviceName, "torch.cuda", "get_device_name"},
    {FunctionClass::kCopies, "copy", "copy"},
    {FunctionClass::kCopies, "copy", "deepcopy"},
    {FunctionClass::kCopiesTensor, "torch._tensor", "Tensor.__deepcopy__"},
    {FunctionClass::kMakesClass, "collections", "namedtuple"},
    {FunctionClass::kMakesClass, "typing", "_make_nmtuple"},
    {FunctionClass::kMakesClass, "dataclasses", "_process_class"},
    {FunctionClass::kRegistersHook, "torch._tensor", "Tensor.register_hook"},
    {FunctionClass::kRegistersHook, "torch._tensor", "Tensor.register_post_accumulate_grad_hook"},
    {FunctionClass::kRemovesHook, "torch.utils.hooks", "RemovableHandle.remove"},
    {FunctionClass::kRunsBackward, "torch.autograd", "grad"},
    {FunctionClass::kRunsEngine, "torch.autograd.graph", "_engine_run_backward"},
    {FunctionClass::kRunsBackward, "torch.autograd", "backward"},
    {FunctionClass::kRunsBackward, "torch._tensor", "Tensor.backward"},
    {FunctionClass::kHigherOrder, "torch", "cond"},
    {FunctionClass::kHigherOrder, "torch._higher_order_ops.while_loop", "while_loop"},
    {FunctionClass::kHigherOrder, "torch._higher_order_ops.scan", "scan"},
    {FunctionClass::kHigherOrder, "torch._higher_order_ops.map", "map"},
    {FunctionClass::kHigherOrder, "torch.nn.attention.flex_attention", "flex_attention"},
};
constexpr const char* kBookkeepingClasses = "GenerationTracker _GenerationTracker";

struct OperatorRow {
  const char* name;
  OperatorCall call;
};

using Kind = OperatorCall::Kind;
constexpr int kInPlace = 13;  // NB_INPLACE_ADD

constexpr OperatorRow kOperators[] = {
    {"_operator.add", {Kind::kBinary, NB_ADD}},
    {"_operator.sub", {Kind::kBinary, NB_SUBTRACT}},
    {"_operator.mul", {Kind::kBinary, NB_MULTIPLY}},
    {"_operator.truediv", {Kind::kBinary, NB_TRUE_DIVIDE}},
    {"_operator.floordiv", {Kind::kBinary, NB_FLOOR_DIVIDE}},
    {"_operator.mod", {Kind::kBinary, NB_REMAINDER}},
    {"_operator.pow", {Kind::kBinary, NB_POWER}},
    {"_operator.matmul", {Kind::kBinary, NB_MATRIX_MULTIPLY}},
    {"_operator.and_", {Kind::kBinary, NB_AND}},
    {"_operator.or_", {Kind::kBinary, NB_OR}},
    {"_operator.xor", {Kind::kBinary, NB_XOR}},
    {"_operator.lshift", {Kind::kBinary, NB_LSHIFT}},
    {"_operator.rshift", {Kind::kBinary, NB_RSHIFT}},
    {"_operator.iadd", {Kind::kBinary, kInPlace + NB_ADD}},
    {"_operator.isub", {Kind::kBinary, kInPlace + NB_SUBTRACT}},
    {"_operator.imul", {Kind::kBinary, kInPlace + NB_MULTIPLY}},
    {"_operator.itruediv", {Kind::kBinary, kInPlace + NB_TRUE_DIVIDE}},
    {"_operator.ifloordiv", {Kind::kBinary, kInPlace + NB_FLOOR_DIVIDE}},
    {"_operator.imod", {Kind::kBinary, kInPlace + NB_REMAINDER}},
    {"_operator.ipow", {Kind::kBinary, kInPlace + NB_POWER}},
    {"_operator.imatmul", {Kind::kBinary, kInPlace + NB_MATRIX_MULTIPLY}},
    {"_operator.iand", {Kind::kBinary, kInPlace + NB_AND}},
    {"_operator.ior", {Kind::kBinary, kInPlace + NB_OR}},
    {"_operator.ixor", {Kind::kBinary, kInPlace + NB_XOR}},
    {"_operator.ilshift", {Kind::kBinary, kInPlace + NB_LSHIFT}},
    {"_operator.irshift", {Kind::kBinary, kInPlace + NB_RSHIFT}},
    {"_operator.neg", {Kind::kUnary, static_cast<int>(Unary::kNegative), 1}},
    {"_operator.pos", {Kind::kUnary, static_cast<int>(Unary::kPositive), 1}},
    {"_operator.invert", {Kind::kUnary, static_cast<int>(Unary::kInvert), 1}},
    {"_operator.inv", {Kind::kUnary, static_cast<int>(Unary::kInvert), 1}},
    {"_operator.not_", {Kind::kUnary, static_cast<int>(Unary::kNot), 1}},
    {"_operator.lt", {Kind::kCompare, Py_LT}},
    {"_operator.le", {Kind::kCompare, Py_LE}},
    {"_operator.eq", {Kind::kCompare, Py_EQ}},
    {"_operator.ne", {Kind::kCompare, Py_NE}},
    {"_operator.gt", {Kind::kCompare, Py_GT}},
    {"_operator.ge", {Kind::kCompare, Py_GE}},
    {"_operator.is_", {Kind::kIdentical, 0}},
    {"_operator.is_not", {Kind::kIdentical, 1}},
    {"_operator.getitem", {Kind::kItem}},
    {"builtins.pow", {Kind::kBinary, NB_POWER}},
    {"builtins.abs", {Kind::kNumber, 0, 1}},
    {"_operator.abs", {Kind::kNumber, 0, 1}},
    {"builtins.round", {Kind::kNumber, 0, 1}},
    {"builtins.divmod", {Kind::kDivmod}},
    {"builtins.sum", {Kind::kTotal, NB_ADD, 1}},
    {"math.prod", {Kind::kTotal, NB_MULTIPLY, 1}},
};

// Methods of torch.Tensor and functions of torch that read data or touch what no graph holds. Everything else that is
// an operator is CallClass::kTorch; a read that is forgotten here is caught by the trace, one recording later.
constexpr const char* kTensorData =
    "item tolist numpy __bool__ __int__ __float__ __index__ __complex__ data_ptr is_nonzero __array__ __contains__ "
    "untyped_storage storage _typed_storage equal allclose unique";
constexpr const char* kTensorOpaque =
    "requires_grad_ detach_ _make_subclass as_subclass set_ _set_data share_memory_ _backward register_hook "
    "_register_hook retain_grad __setstate__ __reduce_ex__ resize_ resize_as_ apply_ map_ map2_ record_stream "
    "_cdata is_shared pin_memory is_pinned __deepcopy__ module_load swap_tensors _use_count "
    "rename_ rename align_to refine_names _update_names new new_tensor has_names";
constexpr const char* kFunctionOpaque =
    "_make_dual _unpack_dual _fw_primal from_file frombuffer from_numpy as_tensor asarray set_printoptions _dim_arange "
    "manual_seed seed set_default_dtype detach_";

// C types whose slots read nothing but the object itself. The result of a call of the first follows from its arguments.
constexpr const char* kMadeTypes =
    "tuple list dict set frozenset int float str bool complex bytes range enumerate zip slice super reversed map "
    "filter torch.Size torch.device collections.OrderedDict object functools.partial torch.finfo torch.iinfo "
    "property collections.deque classmethod staticmethod types.SimpleNamespace method itertools.chain "
    "itertools.islice itertools.repeat itertools.count itertools.product itertools.accumulate itertools.zip_longest "
    "itertools.starmap itertools.takewhile itertools.pairwise itertools.permutations itertools.combinations "
    "itertools.cycle itertools.compress itertools.dropwhile itertools.filterfalse mappingproxy "
    "collections.defaultdict operator.itemgetter operator.attrgetter "
    "operator.methodcaller functools._lru_cache_wrapper";
constexpr const char* kNumpyNumbers =
    "numpy.float64 numpy.float32 numpy.float16 numpy.int64 numpy.int32 numpy.int16 numpy.int8 numpy.uint64 "
    "numpy.uint32 "
    "numpy.uint16 numpy.uint8 numpy.bool numpy.bool_";
constexpr const char* kOtherTypes =
    "type NoneType ellipsis traceback weakref.ReferenceType NotImplementedType function builtin_function_or_method "
    "method_descriptor "
    "wrapper_descriptor getset_descriptor member_descriptor classmethod_descriptor method-wrapper code cell "
    "dict_keys dict_values dict_items dict_keyiterator dict_valueiterator dict_itemiterator dict_reversekeyiterator "
    "dict_reversevalueiterator dict_reverseitemiterator odict_keys odict_values odict_items odict_iterator "
    "list_iterator list_reverseiterator tuple_iterator range_iterator longrange_iterator set_iterator str_iterator "
    "str_ascii_iterator bytes_iterator iterator generator module _collections._deque_iterator "
    "_collections._deque_reverse_iterator collections._deque_iterator collections._deque_reverse_iterator torch.dtype "
    "torch.layout torch.memory_format torch._C._FunctionBase types.GenericAlias types.UnionType BaseException "
    "Exception re.Pattern re.Match _contextvars.ContextVar _contextvars.Token ContextVar Token "
    "functools._lru_cache_wrapper _thread.lock _thread.RLock SDPBackend torch._C._SDPBackend";

// Of these, the ones that keep what changes where only they find it. Reads of an attribute are made again as a guard.
constexpr const char* kHidingTypes =
    "collections.deque mappingproxy dict_keys dict_values dict_items odict_keys odict_values odict_items "
    "enumerate zip map filter reversed itertools.chain itertools.islice itertools.repeat itertools.count "
    "itertools.product itertools.accumulate itertools.zip_longest itertools.starmap itertools.takewhile "
    "itertools.pairwise itertools.permutations itertools.combinations itertools.cycle itertools.compress "
    "itertools.dropwhile itertools.filterfalse dict_keyiterator dict_valueiterator dict_itemiterator "
    "dict_reversekeyiterator dict_reversevalueiterator dict_reverseitemiterator odict_iterator list_iterator "
    "list_reverseiterator tuple_iterator range_iterator longrange_iterator set_iterator str_iterator "
    "str_ascii_iterator bytes_iterator iterator generator _collections._deque_iterator "
    "_collections._deque_reverse_iterator collections._deque_iterator collections._deque_reverse_iterator "
    "types.SimpleNamespace";

using Table = std::unordered_map<const void*, CallRule>;

// A builtin is known by its PyMethodDef, a slot wrapper by its wrapperbase and type.
const void* identity(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type)
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (type == &PyWrapperDescr_Type) return callable;  // one object for each type and slot, alive with its type
  return nullptr;
}

PyObject* look_up(std::string_view dotted) {
  // Longest module prefix first: torch._C._functorch.maybe_current_level
  static const std::unordered_map<std::string_view, PyTypeObject*> builtin_types = {
      {"str", &PyUnicode_Type},
      {"bytes", &PyBytes_Type},
      {"int", &PyLong_Type},
      {"float", &PyFloat_Type},
      {"tuple", &PyTuple_Type},
      {"list", &PyList_Type},
      {"dict", &PyDict_Type},
      {"set", &PySet_Type},
      {"frozenset", &PyFrozenSet_Type},
      {"object", &PyBaseObject_Type},
      {"type", &PyType_Type},
      {"slice", &PySlice_Type},
      {"range", &PyRange_Type},
      {"module", &PyModule_Type},
      {"mappingproxy", &PyDictProxy_Type},
      {"generator", &PyGen_Type},
      {"list_iterator", &PyListIter_Type},
      {"tuple_iterator", &PyTupleIter_Type},
      {"range_iterator", &PyRangeIter_Type},
      {"dict_keyiterator", &PyDictIterKey_Type},
      {"dict_valueiterator", &PyDictIterValue_Type},
      {"dict_itemiterator", &PyDictIterItem_Type},
      {"set_iterator", &PySetIter_Type}};
  size_t dot = dotted.rfind('.');
  std::string head(dotted.substr(0, dot)), name(dotted.substr(dot + 1));
  if (auto found = builtin_types.find(head); found != builtin_types.end()) {
    // The entry of the type itself, so that dict.__eq__ is not object.__eq__.
    PyObject* entry = PyDict_GetItemString(type_dict(found->second), name.c_str());
    return Py_XNewRef(entry);
  }
  PyObject* owner = PyImport_ImportModule(head.c_str());
  if (!owner) {
    PyErr_Clear();
    size_t inner = head.rfind('.');
    if (inner == std::string::npos) return nullptr;
    PyObject* module = PyImport_ImportModule(head.substr(0, inner).c_str());
    owner = module ? PyObject_GetAttrString(module, head.substr(inner + 1).c_str()) : nullptr;
    Py_XDECREF(module);
  }
  PyObject* found = nullptr;
  if (owner && PyType_Check(owner))
    found = Py_XNewRef(PyDict_GetItemString(type_dict(reinterpret_cast<PyTypeObject*>(owner)), name.c_str()));
  else if (owner)
    found = PyObject_GetAttrString(owner, name.c_str());
  Py_XDECREF(owner);
  PyErr_Clear();
  return found;
}

template <class Function>
void each_name(const char* names, Function&& function) {
  std::string_view rest(names);
  while (!rest.empty()) {
    size_t end = rest.find(' ');
    std::string_view name = rest.substr(0, end);
    if (!name.empty()) function(name);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
}

std::unordered_set<std::string_view> set_of(std::initializer_list<const char*> rows) {
  std::unordered_set<std::string_view> set;
  for (const char* names : rows) each_name(names, [&](std::string_view name) { set.insert(name); });
  return set;
}

void add(Table& table, PyObject* callable, CallClass cls) {
  if (!callable) return;
  if (const void* key = identity(callable)) table[key].cls = cls;
}

void add_operators(Table& table, PyObject* owner, const char* data, const char* opaque) {
  PyObject* dict = PyType_Check(owner) ? Py_XNewRef(type_dict(reinterpret_cast<PyTypeObject*>(owner)))
                                       : PyObject_GetAttrString(owner, "__dict__");
  if (!dict) {
    PyErr_Clear();
    return;
  }
  std::unordered_map<std::string_view, CallClass> special;
  each_name(data, [&](std::string_view name) { special[name] = CallClass::kData; });
  each_name(opaque, [&](std::string_view name) { special[name] = CallClass::kOpaque; });
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    const char* name = PyUnicode_AsUTF8(key);
    auto found = special.find(name);
    PyObject* callable = value;
    if (Py_TYPE(value) == &PyStaticMethod_Type || Py_TYPE(value) == &PyClassMethod_Type) {
      callable = PyObject_GetAttr(owner, key);
      if (!callable) {
        PyErr_Clear();
        continue;
      }
      add(table, callable, found == special.end() ? CallClass::kTorch : found->second);
      Py_DECREF(callable);
      continue;
    }
    add(table, callable, found == special.end() ? CallClass::kTorch : found->second);
  }
  Py_DECREF(dict);
}

const std::unordered_map<const void*, OperatorCall>& operators() {
  static const auto rows = [] {
    std::unordered_map<const void*, OperatorCall> made;
    for (const OperatorRow& row : kOperators) {
      PyObject* callable = look_up(row.name);
      if (const void* key = callable ? identity(callable) : nullptr) made.emplace(key, row.call);
      Py_XDECREF(callable);
    }
    return made;
  }();
  return rows;
}

Table& table() {
  static Table rows = [] {
    Table t;
    PyObject* c = PyImport_ImportModule("torch._C");
    for (const char* name : {"_VariableFunctions", "_nn", "_linalg", "_fft", "_special", "_nested", "_sparse"}) {
      PyObject* owner = c ? PyObject_GetAttrString(c, name) : nullptr;
      if (!owner) {
        PyErr_Clear();
        continue;
      }
      add_operators(t, owner, kTensorData, kFunctionOpaque);
      if (strcmp(name, "_VariableFunctions") == 0)
        add_operators(
            t,
            reinterpret_cast<PyObject*>(PyType_Check(owner) ? reinterpret_cast<PyTypeObject*>(owner) : Py_TYPE(owner)),
            kTensorData, kFunctionOpaque);
      Py_DECREF(owner);
    }
    Py_XDECREF(c);
    add_operators(t, reinterpret_cast<PyObject*>(tensor_base()), kTensorData, kTensorOpaque);
    for (const Row& row : kRows)
      each_name(row.names, [&](std::string_view name) {
        PyObject* callable = look_up(name);
        add(t, callable, row.cls);
        Py_XDECREF(callable);
      });
    // super().__init__(message) of a class of exceptions
    PyObject *name, *cls;
    for (Py_ssize_t at = 0; PyDict_Next(PyEval_GetBuiltins(), &at, &name, &cls);)
      if (PyExceptionClass_Check(cls)) {
        PyObject* const own = type_dict(reinterpret_cast<PyTypeObject*>(cls));
        if (PyObject* init = PyDict_GetItemString(own, "__init__")) add(t, init, CallClass::kEffect);
      }
    for (const auto& [key, call] : operators()) t[key].cls = CallClass::kOperator;
    for (const TraitRow& row : kTraits)
      each_name(row.names, [&](std::string_view name) {
        const Ref callable = Ref::take(look_up(name));
        if (const void* key = callable ? identity(callable.get()) : nullptr)
          t[key].traits |= static_cast<uint32_t>(row.trait);
      });
    PyErr_Clear();
    return t;
  }();
  return rows;
}

// method-wrapper objects (x.__eq__) have no public struct
struct WrapperObject {
  PyObject_HEAD PyWrapperDescrObject* descr;
  PyObject* self;
};

}  // namespace

CallRule call_rule(PyObject* callable, PyObject** self) {
  *self = nullptr;
  if (PyCFunction_Check(callable)) {
    PyObject* bound = PyCFunction_GET_SELF(callable);
    if (bound && !PyModule_Check(bound) && !PyCapsule_CheckExact(bound) &&
        PyCFunction_GET_FLAGS(callable) != METH_STATIC) {
      const char* type = Py_TYPE(bound)->tp_name;
      if (strstr(type, "pybind11_detail") == nullptr &&
          !(PyType_Check(bound) && strstr(reinterpret_cast<PyTypeObject*>(bound)->tp_name, "_VariableFunctions")))
        *self = bound;
    }
  } else if (is_method_wrapper(callable)) {
    auto* wrapper = reinterpret_cast<WrapperObject*>(callable);
    *self = wrapper->self;
    auto found = table().find(wrapper->descr);
    return found == table().end() ? CallRule() : found->second;
  }
  const void* key = identity(callable);
  if (!key) return {};
  auto found = table().find(key);
  return found == table().end() ? CallRule() : found->second;
}

void set_call_rule(PyObject* callable, CallRule rule) {
  if (const void* key = identity(callable)) table()[key] = rule;
}

FunctionClass function_class(PyFunctionObject* function) {
  static const auto rows = [] {
    std::unordered_multimap<std::string_view, const FunctionRow*> made;
    for (const FunctionRow& row : kFunctions) made.emplace(row.name, &row);
    return made;
  }();
  Py_ssize_t length = 0;
  const char* const name = PyUnicode_AsUTF8AndSize(function->func_qualname, &length);
  if (!name) PyErr_Clear();
  const auto [begin, end] = rows.equal_range(name ? std::string_view(name, static_cast<size_t>(length)) : "");
  PyObject* const module = function->func_module;  // none where exec has made the function
  for (auto row = begin; row != end; ++row)
    if (module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, row->second->module) == 0)
      return row->second->cls;
  return FunctionClass::kInlined;
}

bool is_bookkeeping_class(PyTypeObject* type) {
  static const auto names = set_of({kBookkeepingClasses});
  return names.contains(type->tp_name);
}

const OperatorCall* operator_call(PyObject* callable) {
  const void* key = identity(callable);
  const auto found = operators().find(key);
  return key && found != operators().end() ? &found->second : nullptr;
}

bool is_known_constructor(PyTypeObject* type) {
  static const std::unordered_set<std::string_view> names = set_of({kMadeTypes, kNumpyNumbers});
  return names.count(type->tp_name) > 0;
}

bool is_known_c_type(PyTypeObject* type) {
  static const std::unordered_set<std::string_view> names = set_of({kMadeTypes, kNumpyNumbers, kOtherTypes});
  return names.count(type->tp_name) > 0 || PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

bool is_numpy_number(PyTypeObject* type) {
  static const std::unordered_set<std::string_view> names = set_of({kNumpyNumbers});
  return strncmp(type->tp_name, "numpy.", 6) == 0 && names.count(type->tp_name) > 0;
}

bool hides_content(PyTypeObject* type) {
  static const std::unordered_set<std::string_view> names = set_of({kHidingTypes});
  return names.count(type->tp_name) > 0;
}

bool inherits(PyTypeObject* type, const char* name, PyTypeObject* base) {
  if (type == base) return true;
  PyObject* key = PyUnicode_InternFromString(name);
  bool same = key && PyType_IsSubtype(type, base) && _PyType_Lookup(type, key) == _PyType_Lookup(base, key);
  Py_XDECREF(key);
  return same;
}

PyObject* missing_method(PyObject* container, PyObject* key) {
  static PyObject* const missing = PyUnicode_InternFromString("__missing__");
  if (!PyDict_Check(container) || PyDict_CheckExact(container)) return nullptr;
  PyObject* method = _PyType_Lookup(Py_TYPE(container), missing);
  if (!method) return nullptr;
  PyObject* found = PyDict_GetItemWithError(container, key);
  PyErr_Clear();
  return found ? nullptr : method;
}

bool is_method_wrapper(PyObject* object) {
  static PyTypeObject* const type = [] {  // CPython keeps the name of it to itself
    const Ref wrapper = Ref::take(PyObject_GetAttrString(Py_None, "__str__"));
    return Py_TYPE(wrapper.get());
  }();
  return Py_TYPE(object) == type;
}

PyObject* unbound(PyObject* callable) {
  if (is_method_wrapper(callable))
    return Py_NewRef(reinterpret_cast<PyObject*>(reinterpret_cast<WrapperObject*>(callable)->descr));
  if (!PyCFunction_Check(callable) || !PyCFunction_GET_SELF(callable)) return Py_NewRef(callable);
  auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
  PyObject* mro = Py_TYPE(function->m_self)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* dict = type_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i)));
    PyObject* entry = dict ? PyDict_GetItemString(dict, function->m_ml->ml_name) : nullptr;
    if (entry && Py_TYPE(entry) == &PyMethodDescr_Type &&
        reinterpret_cast<PyMethodDescrObject*>(entry)->d_method == function->m_ml)
      return Py_NewRef(entry);
  }
  return nullptr;
}

std::optional<DoubleRange> passes_doubles(std::string_view name) {
  static constexpr double kLeast = std::numeric_limits<double>::denorm_min(), kBelowOne = 1 - 0x1p-53;
  static constexpr DoubleRange kAny{-HUGE_VAL, HUGE_VAL}, kPositive{kLeast, HUGE_VAL}, kFraction{kLeast, kBelowOne};
  static constexpr DoubleRange kDropped{kLeast, kBelowOne, true};
  static const std::unordered_map<std::string_view, DoubleRange> names = {
      {"torch.layer_norm", kAny},
      {"torch.group_norm", kAny},
      {"torch.batch_norm", kAny},
      {"torch.instance_norm", kAny},
      {"torch.rms_norm", kAny},
      {"torch.cosine_similarity", kPositive},
      {"torch.pairwise_distance", kAny},
      {"torch.nn.functional.pad", kAny},
      {"torch.nan_to_num", kAny},
      {"torch.nan_to_num_", kAny},
      {"torch.Tensor.nan_to_num", kAny},
      {"torch.Tensor.nan_to_num_", kAny},
      {"torch.normal", kAny},
      {"torch.bernoulli", kAny},
      {"torch.Tensor.normal_", kAny},
      {"torch.Tensor.uniform_", kAny},
      {"torch.Tensor.bernoulli_", kAny},
      {"torch.Tensor.bernoulli", kAny},
      {"torch.Tensor.exponential_", kAny},
      {"torch.Tensor.log_normal_", kAny},
      {"torch.nn.functional.huber_loss", kAny},
      {"torch.nn.functional.smooth_l1_loss", kAny},
      {"torch.nn.functional.cross_entropy_loss", kFraction},
      {"torch.poisson_nll_loss", kAny},
      {"torch.triplet_margin_loss", kAny},
      {"torch.margin_ranking_loss", kAny},
      {"torch.hinge_embedding_loss", kAny},
      {"torch.cosine_embedding_loss", kAny},
      {"torch.nn.functional.scaled_dot_product_attention", kPositive},
      {"torch.dropout", kDropped},
      {"torch.dropout_", kDropped},
      {"torch.native_dropout", kDropped},
      {"torch.feature_dropout", kDropped},
      {"torch.feature_dropout_", kDropped},
  };
  const auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

std::string callable_name(PyObject* callable) {
  auto text = [](PyObject* o) -> std::string {
    const char* s = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : nullptr;
    return s ? s : "";
  };
  if (PyFunction_Check(callable)) return text(reinterpret_cast<PyFunctionObject*>(callable)->func_qualname);
  if (PyType_Check(callable)) return reinterpret_cast<PyTypeObject*>(callable)->tp_name;
  std::string name, owner;
  if (PyCFunction_Check(callable)) {
    auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    name = function->m_ml->ml_name;
    PyObject* self = function->m_self;
    if (self && PyModule_Check(self))
      owner = PyModule_GetName(self) ? PyModule_GetName(self) : "";
    else if (self && PyType_Check(self))
      owner = reinterpret_cast<PyTypeObject*>(self)->tp_name;
    else if (self && !PyCapsule_CheckExact(self) && !strstr(Py_TYPE(self)->tp_name, "pybind11"))
      owner = Py_TYPE(self)->tp_name;
    else
      owner = text(function->m_module);
  } else if (is_method_wrapper(callable)) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(reinterpret_cast<WrapperObject*>(callable)->descr);
    owner = descriptor->d_type->tp_name;
    name = text(descriptor->d_name);
  } else if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(callable);
    owner = descriptor->d_type->tp_name;
    name = text(descriptor->d_name);
  } else {
    return std::string("an object of type ") + Py_TYPE(callable)->tp_name;
  }
  PyErr_Clear();
  if (owner == "builtins" || owner.empty()) return name;
  // as users write it
  if (owner == "torch._C._VariableFunctionsClass") owner = "torch";
  if (owner == "torch._C.TensorBase") owner = "torch.Tensor";
  if (owner == "torch._C._nn") owner = "torch.nn.functional";
  return owner + "." + name;
}

}  // namespace magneto::capture
