// capture/source.h: where an object from outside was found. A source is pinned when every step to it is guarded by
// identity (function, globals, self): then its address is known and nothing has to be walked at a call. It is floating
// when it is reached from an argument or a frame slot: then the guard program walks the path at every call.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "capture/evaluator.h"

namespace magneto::capture {

using SourceId = base::Id<struct SourceTag>;

struct Source {
  enum class Kind : unsigned char {
    kPinned,   ///< reached by guarded reads from function, globals, self; `key` names it
    kRoot,     ///< argument or slot `index`
    kAttr,     ///< in the instance dict of the parent, under `key`
    kDict,     ///< the instance dict of the parent
    kItem,     ///< dict entry `key`, or list / tuple element `index`
    kCell,     ///< the content of the parent, a cell
    kMember,   ///< a __slots__ member of the parent
    kClosure,  ///< cell `index` of the parent, a function
    kReduced,  ///< what the parent, an iterator, was made of: a tuple
    kSelf,     ///< __self__ / __func__ of a bound method (`index` says which); the dict of a view
    kHeld,     ///< this very object (`key`): what it holds is walked, though its address is known
  };
  Kind kind = Kind::kPinned;
  bool floating = false;
  SourceId parent;
  Ref key;
  Py_ssize_t index = -1;
  uint32_t slot = 0;  ///< floating: its number among the floating ones
};

class Sources {
 public:
  SourceId root(Py_ssize_t index, PyObject* name) {
    return add({Source::Kind::kRoot, true, {}, Ref::share(name), index});
  }
  SourceId pinned(SourceId parent, PyObject* key) {
    return add({Source::Kind::kPinned, false, parent, Ref::share(key), -1});
  }
  /// A part of `parent`; floating when the parent is.
  SourceId part(Source::Kind kind, SourceId parent, PyObject* key, Py_ssize_t index = -1) {
    const bool floating = this->floating(parent);
    return add({floating ? kind : Source::Kind::kPinned, floating, parent, Ref::share(key), index});
  }
  SourceId held(SourceId parent, PyObject* object) {
    return add({Source::Kind::kHeld, true, parent, Ref::share(object), -1});
  }
  const Source& operator[](SourceId id) const { return table_[id.index()]; }
  /// False for one of another table, too: code of the program may end a recording while it asks for a guard.
  bool floating(SourceId id) const { return id.valid() && id.index() < table_.size() && table_[id.index()].floating; }
  size_t size() const { return table_.size(); }
  size_t floating_count() const { return floating_; }

  /// The path as a user would write it: self.layers[2].weight
  std::string describe(SourceId id) const;
  /// The entry `key` of the dict (or object) at `id`.
  std::string describe_key(SourceId id, PyObject* key) const;

 private:
  SourceId add(Source source) {
    if (source.floating) source.slot = floating_++;
    table_.push_back(std::move(source));
    return SourceId(table_.size() - 1);
  }
  std::vector<Source> table_;
  uint32_t floating_ = 0;
};

}  // namespace magneto::capture
