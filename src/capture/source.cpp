#include "capture/source.h"

namespace magneto::capture {

static std::string key_text(PyObject* key, bool as_attribute) {
  if (!key) return "?";
  if (PyUnicode_Check(key)) {
    const char* text = PyUnicode_AsUTF8(key);
    if (!text) {
      PyErr_Clear();
      return "?";
    }
    return as_attribute ? text : "'" + std::string(text) + "'";
  }
  if (PyLong_CheckExact(key)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(key, &overflow);
    return overflow ? "a large int" : std::to_string(number);
  }
  return std::string("<") + Py_TYPE(key)->tp_name + ">";
}

std::string Sources::describe(SourceId id) const {
  if (!id.valid() || id.index() >= size()) return "?";
  const Source& source = (*this)[id];
  std::string parent = source.parent.valid() ? describe(source.parent) : "";
  switch (source.kind) {
    case Source::Kind::kRoot:
      return source.key ? key_text(source.key.get(), true) : "argument " + std::to_string(source.index);
    case Source::Kind::kDict:
      return parent;
    case Source::Kind::kCell:
      return parent;
    case Source::Kind::kItem:
      return parent + "[" + (source.key ? key_text(source.key.get(), false) : std::to_string(source.index)) + "]";
    case Source::Kind::kHeld:
    case Source::Kind::kReduced:
    case Source::Kind::kSelf:
      return parent;
    case Source::Kind::kClosure:
      return source.key ? key_text(source.key.get(), true) : parent;
    case Source::Kind::kPinned:
    case Source::Kind::kAttr:
    case Source::Kind::kMember: {
      if (!source.key) return source.index >= 0 ? parent + "[" + std::to_string(source.index) + "]" : parent;
      std::string key = key_text(source.key.get(), true);
      return parent.empty() ? key : parent + "." + key;
    }
  }
  return "?";
}

std::string Sources::describe_key(SourceId id, PyObject* key) const {
  std::string path = id.valid() ? describe(id) : "";
  return path.empty() ? key_text(key, true) : path + "." + key_text(key, true);
}

}  // namespace magneto::capture
