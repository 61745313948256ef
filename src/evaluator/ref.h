// evaluator/ref.h: an owned reference to a Python object; an error that is put aside. The GIL is held wherever one is
// made, copied or dropped.
#pragma once
#include <Python.h>

#include <utility>

namespace magneto::evaluator {

class Ref {
 public:
  Ref() = default;
  static Ref take(PyObject* owned) { return Ref(owned); }
  static Ref share(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  PyObject* borrow_new() const { return Py_XNewRef(object_); }  ///< a new reference
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* owned) : object_(owned) {}
  PyObject* object_ = nullptr;
};

/// The error that is set, if any, is put aside; at the end it is set again, and whatever was set meanwhile is
/// forgotten.
class ErrorAside {
 public:
  ErrorAside() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorAside() { PyErr_Restore(type_, value_, traceback_); }
  ErrorAside(const ErrorAside&) = delete;
  ErrorAside& operator=(const ErrorAside&) = delete;
  PyObject* type() const { return type_; }  ///< nullptr: none was set

 private:
  PyObject *type_, *value_, *traceback_;
};

}  // namespace magneto::evaluator
