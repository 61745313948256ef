#include "evaluator/frame_abi.h"

namespace magneto::evaluator {

#if PY_VERSION_HEX >= 0x030E0000

// Small ints are shared. So one that is too large for that is made, and gets its digit afterwards.
PyObject* number_object(int number) {
  constexpr int kLarge = 1 << 29;
  const auto index = static_cast<size_t>(number);
  if (index >= number_objects.size()) number_objects.resize(index + 1);
  PyObject*& object = number_objects[index];
  if (object != nullptr) return object;
  object = PyLong_FromLong(kLarge);
  if (object == nullptr) return nullptr;
  auto& value = reinterpret_cast<PyLongObject*>(object)->long_value;
  value.ob_digit[0] = static_cast<digit>(number);
  if (number == 0) value.lv_tag = 1;
  return object;
}

#endif

}  // namespace magneto::evaluator
