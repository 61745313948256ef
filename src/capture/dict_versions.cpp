#include "capture/dict_versions.h"

#include <unordered_map>

namespace magneto::capture {

#if PY_VERSION_HEX >= 0x030D0000

static uint64_t latest_version = 0;

/// The dicts that are watched, while they live. Never destroyed: dicts change until the process ends.
static std::unordered_map<PyObject*, uint64_t>& versions() {
  static auto* const versions = new std::unordered_map<PyObject*, uint64_t>;
  return *versions;
}

static int note_change(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  const auto found = versions().find(dict);
  if (found == versions().end()) return 0;
  if (event == PyDict_EVENT_DEALLOCATED)
    versions().erase(found);
  else
    found->second = ++latest_version;
  return 0;
}

// The dict of an object may keep its values inside of the object, where 3.13.0 changes them without telling anybody.
// popitem gives it a table of its own; what it took comes back to where it was, at the end.
static bool keep_values_apart(PyObject* dict) {
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr) return true;
  if (PyDict_GET_SIZE(dict) == 0) {  // a key that is no name does the same
    if (PyDict_SetItem(dict, Py_None, Py_None) < 0) return false;
    PyDict_Clear(dict);
    return true;
  }
  PyObject* item = PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyDict_Type), "popitem", "O", dict);
  if (item == nullptr) return false;
  const int status = PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
  Py_DECREF(item);
  return status == 0 && reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr;
}

const uint64_t* dict_version_place(PyObject* dict) {
  static const int watcher = PyDict_AddWatcher(note_change);
  const auto found = versions().find(dict);
  if (found != versions().end()) return &found->second;
  // Eight may watch in one interpreter.
  if (watcher < 0 || !keep_values_apart(dict) || PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear();
    return nullptr;
  }
  return &versions().emplace(dict, ++latest_version).first->second;
}

uint64_t dict_version(PyObject* dict) {
  const uint64_t* place = dict_version_place(dict);
  return place != nullptr ? *place : ++latest_version;
}

#else

// 3.12 calls the tag deprecated, because later versions keep none for readers.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const uint64_t* dict_version_place(PyObject* dict) { return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop

uint64_t dict_version(PyObject* dict) { return *dict_version_place(dict); }

#endif

}  // namespace magneto::capture
