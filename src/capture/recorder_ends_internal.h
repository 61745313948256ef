// capture/recorder_ends_internal.h: objects that run code when they end.
#pragma once
#include <Python.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace magneto::capture {

/// It has a __del__, or is a generator with handlers that its end runs.
bool ends_with_code(PyObject* object);

/// What stands there, borrowed: an attribute that an assignment replaces. nullptr: nothing.
PyObject* attribute_there(PyObject* owner, PyObject* name);

/// Which objects end when some references are let go, as reference counts tell: and whether one of them runs code then.
class LetGo {
 public:
  /// How many references to an object do not count.
  using Aside = std::function<Py_ssize_t(PyObject*)>;
  explicit LetGo(Aside aside = {}) : aside_(std::move(aside)) {}

  void drop(PyObject* object);         ///< one reference to it; may be nullptr
  void end(PyObject* object);          ///< it ends, whoever holds it
  void parts_of(PyObject* container);  ///< one reference to all that it holds
  void keep(PyObject* object) { seen_[object] = kStays; }
  bool is_empty() const { return next_.empty(); }
  void ignore_callbacks() { callbacks_ = false; }  ///< of weak references
  /// `unknown`: the answer where there is more to look at than is worth the while.
  bool runs_code(bool unknown = true);
  const std::unordered_map<PyObject*, Py_ssize_t>& seen() const { return seen_; }
  static constexpr Py_ssize_t kEnds = -1;  ///< in seen(); others are references that were let go

 private:
  static constexpr Py_ssize_t kStays = -2;
  static constexpr size_t kMost = 20'000;
  Aside aside_;
  bool callbacks_ = true;
  std::unordered_map<PyObject*, Py_ssize_t> seen_;
  std::vector<PyObject*> next_;  ///< they end; their parts were not looked at
};

}  // namespace magneto::capture
