#include "capture/tensor_meta.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "capture/evaluator.h"

namespace magneto::capture {

namespace {

// Looked up once, at import; torch keeps these types alive.
struct TensorTypes {
  PyTypeObject *base, *tensor, *parameter, *buffer, *size;
};

const TensorTypes& types() {
  static const TensorTypes table = [] {
    auto get = [](const char* module, const char* name) {
      PyObject* m = PyImport_ImportModule(module);
      PyObject* type = m ? PyObject_GetAttrString(m, name) : nullptr;
      base::check(type != nullptr, "capture: ", module, ".", name, " is missing in this torch");
      Py_DECREF(m);
      return reinterpret_cast<PyTypeObject*>(type);
    };
    return TensorTypes{get("torch._C", "TensorBase"), get("torch", "Tensor"), get("torch.nn.parameter", "Parameter"),
                       get("torch.nn.parameter", "Buffer"), get("torch", "Size")};
  }();
  return table;
}

struct GradState {
  bool requires_grad, is_leaf;
  bool is_dual;  ///< it carries a tangent of forward-mode AD
  friend bool operator==(const GradState&, const GradState&) = default;
};

// What Tensor::requires_grad and is_leaf answer, without their virtual calls: this is asked for each parameter at each
// call. A view may have to make its grad_fn again before it can answer.
GradState grad_state(const c10::TensorImpl* impl) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  if (!meta) return {false, true, false};
  const bool is_dual = meta->fw_grad_ && !meta->fw_grad_->empty();
  if (meta->is_view_) {
    const at::Tensor tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(const_cast<c10::TensorImpl*>(impl)));
    return {tensor.requires_grad(), tensor.is_leaf(), is_dual};
  }
  const bool made = meta->grad_fn_ != nullptr;
  return {meta->requires_grad_ || made, !made, is_dual};
}

}  // namespace

PyTypeObject* tensor_base() { return types().base; }
PyTypeObject* size_type() { return types().size; }
bool is_tensor(PyObject* object) { return PyType_IsSubtype(Py_TYPE(object), types().base); }
/// A nested tensor says that its layout is strided, and has no sizes.
static bool has_sizes(const c10::TensorImpl* impl) {
  return impl->layout() == c10::kStrided && !impl->key_set().has(c10::DispatchKey::NestedTensor);
}

bool is_plain_tensor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type != types().tensor && type != types().parameter && type != types().buffer) return false;
  const c10::TensorImpl* impl = tensor_of(object).unsafeGetTensorImpl();
  auto keys = impl->key_set();
  return has_sizes(impl) && !keys.has(c10::DispatchKey::Python) &&
         !keys.has_any(c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                            c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                            c10::DispatchKey::Functionalize})) &&
         !c10::isQIntType(c10::typeMetaToScalarType(impl->dtype())) && !grad_state(impl).is_dual;
}
static constexpr c10::DispatchKeySet kWrapperKeys({c10::DispatchKey::FuncTorchBatched,
                                                   c10::DispatchKey::FuncTorchGradWrapper});

bool is_wrapped(const at::Tensor& tensor) { return tensor.defined() && tensor.key_set().has_any(kWrapperKeys); }

at::Tensor unwrapped(const at::Tensor& tensor) {
  static PyObject* const get = [] {
    const Ref module = Ref::take(PyImport_ImportModule("torch._C._functorch"));
    return module ? PyObject_GetAttrString(module.get(), "get_unwrapped") : nullptr;
  }();
  at::Tensor inner = tensor;
  while (get && is_wrapped(inner)) {
    const Ref outer = Ref::take(THPVariable_Wrap(inner));
    const Ref found = Ref::take(outer ? PyObject_CallOneArg(get, outer.get()) : nullptr);
    if (!found || !THPVariable_Check(found.get())) {
      PyErr_Clear();
      break;
    }
    inner = tensor_of(found.get());
  }
  return inner;
}

const at::Tensor& tensor_of(PyObject* object) { return THPVariable_Unpack(object); }

TensorMeta TensorMeta::of(PyObject* object) {
  const at::Tensor& tensor = tensor_of(object);
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  TensorMeta meta;
  meta.type = Py_TYPE(object);
  meta.keys = impl->key_set();
  meta.dtype = impl->dtype();
  meta.requires_grad = tensor.requires_grad();
  meta.is_leaf = tensor.is_leaf();
  meta.device_index = impl->device().index();
  if (has_sizes(impl)) {
    meta.offset = impl->storage_offset();
    auto sizes = impl->sizes(), strides = impl->strides();
    meta.sizes_strides.assign(sizes.begin(), sizes.end());
    meta.sizes_strides.insert(meta.sizes_strides.end(), strides.begin(), strides.end());
  }
  return meta;
}

bool TensorMeta::matches(PyObject* object) const {
  return Py_TYPE(object) == type && matches(tensor_of(object).unsafeGetTensorImpl());
}

bool TensorMeta::matches(const c10::TensorImpl* impl) const {
  if (impl->key_set() != keys || impl->dtype() != dtype || impl->device().index() != device_index) return false;
  if (grad_state(impl) != GradState{requires_grad, is_leaf, false}) return false;
  if (!has_sizes(impl)) return sizes_strides.empty();
  size_t dims = sizes_strides.size() / 2;
  auto sizes = impl->sizes(), strides = impl->strides();
  if (sizes.size() != dims) return false;
  if (offset_symbol < 0 && impl->storage_offset() != offset) return false;
  if (!symbols.empty()) {
    for (size_t i = 0; i < dims; ++i)
      if (symbols[i] < 0 && sizes[i] != sizes_strides[i]) return false;
    return true;
  }
  for (size_t i = 0; i < dims; ++i)
    if (sizes[i] != sizes_strides[i] || strides[i] != sizes_strides[dims + i]) return false;
  return true;
}

types::Sizes TensorMeta::symbolic_sizes() const {
  types::Sizes sizes(sizes_strides.begin(), sizes_strides.begin() + static_cast<ptrdiff_t>(sizes_strides.size() / 2));
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] >= 0) sizes[i] = types::Expr::symbol(static_cast<uint32_t>(symbols[i]));
  return sizes;
}

types::Sizes TensorMeta::symbolic_strides() const {
  if (!symbols.empty()) return strides;
  return types::Sizes(sizes_strides.begin() + static_cast<ptrdiff_t>(sizes_strides.size() / 2), sizes_strides.end());
}

types::Expr TensorMeta::symbolic_offset() const {
  if (offset_symbol < 0) return offset;
  return types::Expr::symbol(static_cast<uint32_t>(offset_symbol));
}

void TensorMeta::set_symbols(std::vector<int32_t> of_sizes) {
  symbols = std::move(of_sizes);
  const size_t dims = symbols.size();
  const types::Sizes sizes = symbolic_sizes();
  strides.assign(sizes_strides.begin() + static_cast<ptrdiff_t>(dims), sizes_strides.end());
  std::vector<size_t> order(dims);
  for (size_t i = 0; i < dims; ++i) order[i] = dims - 1 - i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes_strides[dims + a] < sizes_strides[dims + b]; });
  types::Expr expected = 1;
  int64_t number = 1;
  for (size_t dim : order) {
    if (sizes_strides[dims + dim] != number) return;  // from here on there are gaps
    strides[dim] = expected;
    expected = expected * sizes[dim];
    number *= sizes_strides[dim];
  }
}

bool TensorMeta::take_symbols(PyObject* object, std::span<int64_t> into) const {
  const c10::TensorImpl* impl = tensor_of(object).unsafeGetTensorImpl();
  const auto sizes = impl->sizes(), now = impl->strides();
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] >= 0) into[static_cast<size_t>(symbols[i])] = sizes[i];
  if (offset_symbol >= 0) into[static_cast<size_t>(offset_symbol)] = impl->storage_offset();
  for (size_t i = 0; i < symbols.size(); ++i)
    if (now[i] != strides[i].evaluate(into)) return false;
  return true;
}

std::string TensorMeta::difference(PyObject* object) const {
  std::ostringstream out;
  if (Py_TYPE(object) != type) {
    out << "type was " << type->tp_name << ", is " << Py_TYPE(object)->tp_name;
    return out.str();
  }
  const at::Tensor& tensor = tensor_of(object);
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->dtype() != dtype) {
    out << "dtype was " << dtype.name() << ", is " << impl->dtype().name();
  } else if (impl->key_set() != keys || impl->device().index() != device_index) {
    out << "device or kind of tensor was " << c10::toString(keys) << ", is " << c10::toString(impl->key_set());
  } else if (tensor.requires_grad() != requires_grad) {
    out << "requires_grad was " << (requires_grad ? "True" : "False");
  } else if (tensor.is_leaf() != is_leaf) {
    out << "is_leaf was " << (is_leaf ? "True" : "False");
  } else if (has_sizes(impl)) {
    size_t dims = sizes_strides.size() / 2;
    auto sizes = impl->sizes(), strides = impl->strides();
    if (sizes.size() != dims) {
      out << "number of dimensions was " << dims << ", is " << sizes.size();
      return out.str();
    }
    for (size_t i = 0; i < dims; ++i)
      if (sizes[i] != sizes_strides[i] && (symbols.empty() || symbols[i] < 0)) {
        out << "size of dimension " << i << " was " << sizes_strides[i] << ", is " << sizes[i];
        return out.str();
      }
    for (size_t i = 0; i < dims; ++i)
      if (strides[i] != sizes_strides[dims + i]) {
        out << "stride of dimension " << i << " was " << sizes_strides[dims + i] << ", is " << strides[i];
        return out.str();
      }
    out << "storage offset was " << offset << ", is " << impl->storage_offset();
  }
  return out.str();
}

}  // namespace magneto::capture
