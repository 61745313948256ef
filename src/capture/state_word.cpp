#include "capture/state_word.h"

#include <Python.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "capture/evaluator.h"

namespace magneto::capture {

// The class is known to whoever has made one.
static bool is_device_context(PyObject* mode) {
  static PyObject* cls = nullptr;
  if (!cls) {
    static PyObject* const name = PyUnicode_InternFromString("torch.utils._device");
    PyObject* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    if (module) cls = PyObject_GetAttrString(module, "DeviceContext");
    PyErr_Clear();
  }
  return cls && reinterpret_cast<PyObject*>(Py_TYPE(mode)) == cls;
}

/// The only function mode, if it does nothing but name a device to functions that make tensors. Borrowed.
static PyObject* only_device_context() {
  using TLS = at::impl::PythonTorchFunctionTLS;
  if (TLS::stack_len() != 1) return nullptr;
  PyObject* const mode = TLS::get_stack_at(0)->ptr(getPyInterpreter());
  return is_device_context(mode) ? mode : nullptr;
}

static int16_t device_of_context() {
  PyObject* const context = only_device_context();
  if (!context) return 0;
  static PyObject* const name = PyUnicode_InternFromString("device");
  const Ref device = Ref::take(PyObject_GetAttr(context, name));
  if (!device || !THPDevice_Check(device.get())) {
    PyErr_Clear();
    return 0;
  }
  const at::Device named = reinterpret_cast<THPDevice*>(device.get())->device;
  return static_cast<int16_t>((static_cast<int>(named.type()) + 1) << 8 | (static_cast<uint8_t>(named.index())));
}

WithoutFunctionModes::WithoutFunctionModes() {
  using TLS = at::impl::PythonTorchFunctionTLS;
  while (TLS::stack_len() > 0) modes_.push_back(TLS::pop_stack());
}

WithoutFunctionModes::~WithoutFunctionModes() {
  for (; !modes_.empty(); modes_.pop_back())
    at::impl::PythonTorchFunctionTLS::push_onto_stack(std::move(modes_.back()));
}

StateWord StateWord::now() {
  StateWord word;
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  at::Context& context = at::globalContext();
  auto bit = [&](int position, bool on) { word.flags |= uint64_t{on} << position; };
  bit(0, autograd.get_grad_mode());
  bit(1, autograd.get_inference_mode());
  bit(2, autograd.get_fw_grad_mode());
  bit(3, autograd.get_multithreading_enabled());
  bit(4, context.deterministicAlgorithms());
  bit(5, context.deterministicAlgorithmsWarnOnly());
  bit(6, at::autocast::is_autocast_cache_enabled());
  bit(7, context.deterministicFillUninitializedMemory());
  bit(8, context.userEnabledFlashSDP());
  bit(9, context.userEnabledMemEfficientSDP());
  bit(10, context.userEnabledMathSDP());
  bit(11, context.userEnabledCuDNNSDP());
  bit(12, context.userEnabledMkldnn());
  bit(13, context.userEnabledCuDNN());
  bit(14, context.userEnabledNNPACK());
  bit(15, context.benchmarkCuDNN());
  bit(16, at::impl::PythonTorchFunctionTLS::stack_len() > 0);
  bit(17, at::impl::PythonTorchFunctionTLS::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED);
  // Autocast of a device is on when its key is not excluded; which keys are, is part of the word anyway.
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCPU))
    word.autocast |= uint64_t{0x80} | static_cast<uint8_t>(at::autocast::get_autocast_dtype(at::kCPU));
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCUDA))
    word.autocast |= (uint64_t{0x80} | static_cast<uint8_t>(at::autocast::get_autocast_dtype(at::kCUDA))) << 8;
  word.included = keys.included_.raw_repr();
  word.excluded = keys.excluded_.raw_repr();
  word.threads = at::get_num_threads();
  word.default_device = device_of_context();
  word.default_dtype = static_cast<int16_t>(c10::get_default_dtype_as_scalartype());
  return word;
}

std::string StateWord::difference(const StateWord& before, const StateWord& now) {
  static constexpr const char* kNames[] = {"grad mode",
                                           "inference mode",
                                           "forward-mode AD",
                                           "multithreaded autograd",
                                           "deterministic algorithms",
                                           "deterministic algorithms (warn only)",
                                           "autocast cache",
                                           "fill of uninitialized memory",
                                           "flash attention",
                                           "memory-efficient attention",
                                           "math attention",
                                           "cuDNN attention",
                                           "oneDNN",
                                           "cuDNN",
                                           "NNPACK",
                                           "cuDNN benchmark",
                                           "a function mode",
                                           "__torch_function__"};
  if (before.default_device != now.default_device) return "default device changed";
  for (size_t i = 0; i < sizeof(kNames) / sizeof(*kNames); ++i)
    if ((before.flags ^ now.flags) >> i & 1)
      return std::string(kNames[i]) + (before.flags >> i & 1 ? " was on, is off" : " was off, is on");
  if (before.autocast != now.autocast) return "autocast changed";
  if (before.threads != now.threads)
    return "number of threads was " + std::to_string(before.threads) + ", is " + std::to_string(now.threads);
  if (before.default_dtype != now.default_dtype) return "default dtype changed";
  return "thread-local dispatch state changed";
}

// TorchDynamo, on this thread: it asks for each frame whether it is to be compiled.
static bool dynamo_is_active() {
  if (!has_other_evaluator()) return false;
  static PyObject* const callback = [] {
    Ref module = Ref::take(PyImport_ImportModule("torch._C._dynamo.eval_frame"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "get_eval_frame_callback") : nullptr;
    PyErr_Clear();
    return found;
  }();
  if (!callback) return false;
  Ref result = Ref::take(PyObject_CallNoArgs(callback));
  if (!result) PyErr_Clear();
  return result && result.get() != Py_None;
}

// It runs every backward, also those of which our graphs are recorded. Asked between segments: the module's dict is
// kept once it is there.
static bool compiled_autograd_is_active() {
  static PyObject* const name = PyUnicode_InternFromString("torch._dynamo.compiled_autograd");
  static PyObject* const flag = PyUnicode_InternFromString("compiled_autograd_enabled");
  static PyObject* dict = nullptr;
  if (!dict) {
    PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    if (!module || !PyModule_Check(module)) return false;
    dict = Py_NewRef(PyModule_GetDict(module));
  }
  return PyDict_GetItemWithError(dict, flag) == Py_True;
}

const char* foreign_mode() {
  if (dynamo_is_active()) return "torch.compile";
  if (compiled_autograd_is_active()) return "compiled autograd";
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode))
    return "a torch.func transform";
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return "a TorchDispatchMode";
  if (at::impl::PythonTorchFunctionTLS::stack_len() > 0 && !only_device_context()) return "a TorchFunctionMode";
  if (torch::jit::tracer::isTracing()) return "torch.jit.trace";
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly detection";
  if (at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks().has_value())
    return "a saved-tensor hook";
  return nullptr;
}

}  // namespace magneto::capture
