#include "capture/libraries.h"

#include "capture/evaluator.h"

namespace magneto::capture {

static std::string folder_of(const char* module) {
  const Ref found = Ref::take(PyImport_ImportModule(module));
  const Ref file = Ref::take(found ? PyObject_GetAttrString(found.get(), "__file__") : nullptr);
  const char* path = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
  PyErr_Clear();
  const std::string_view text = path ? path : "";
  return std::string(text.substr(0, text.rfind('/') + 1));
}

const std::string& torch_folder() {
  static const std::string folder = folder_of("torch");
  return folder;
}

const std::string& standard_folder() {
  static const std::string folder = folder_of("os");
  return folder;
}

}  // namespace magneto::capture
