// capture/ref.h: an owned reference to a Python object. The GIL is held wherever one is made, copied or dropped.
#pragma once
#include <Python.h>

#include <utility>

namespace magneto::capture {

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

}  // namespace magneto::capture
