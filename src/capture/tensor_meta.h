// capture/tensor_meta.h: the properties of a tensor that a recording relied on.
#pragma once
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/util/SmallVector.h>

#include <span>
#include <string>
#include <vector>

#include "types/expr.h"
#include "types/tensor_type.h"

namespace magneto::capture {

bool is_tensor(PyObject* object);  ///< torch.Tensor or a subclass
/// What torch.func's wrappers stand around: of a batched tensor, of one that a transform differentiates.
at::Tensor unwrapped(const at::Tensor& tensor);
bool is_wrapped(const at::Tensor& tensor);
bool is_plain_tensor(
    PyObject* object);  ///< a dense strided Tensor, Parameter or Buffer: no __torch_function__ of its own
const at::Tensor& tensor_of(PyObject* object);  ///< is_tensor(object)
PyTypeObject* tensor_base();                    ///< torch._C.TensorBase
PyTypeObject* size_type();                      ///< torch.Size

struct TensorMeta {
  PyTypeObject* type = nullptr;
  c10::DispatchKeySet keys;
  caffe2::TypeMeta dtype;
  bool requires_grad = false;
  bool is_leaf = false;
  int64_t offset = 0;
  int8_t device_index = -1;
  c10::SmallVector<int64_t, 8> sizes_strides;  ///< sizes, then strides

  std::vector<int32_t> symbols;      ///< of the sizes; -1: fixed. Empty: all are fixed
  std::vector<types::Expr> strides;  ///< where there are symbols
  int32_t offset_symbol = -1;        ///< -1: the storage offset is `offset`

  static TensorMeta of(PyObject* tensor);
  bool has_symbols() const { return !symbols.empty() || offset_symbol >= 0; }
  /// Makes sizes symbols. Strides follow where the layout is dense, else they stay as they are.
  void set_symbols(std::vector<int32_t> symbols);
  types::Sizes symbolic_sizes() const;
  types::Sizes symbolic_strides() const;
  types::Expr symbolic_offset() const;
  /// Reads the symbols off a tensor that matches; false: its strides do not follow its sizes as they did.
  bool take_symbols(PyObject* tensor, std::span<int64_t> into) const;
  bool matches(PyObject* object) const;
  bool matches(const c10::TensorImpl* impl) const;  ///< all but the Python type
  /// What differs, in words: "size of dimension 0 was 2, is 3".
  std::string difference(PyObject* object) const;
};

}  // namespace magneto::capture
