#include "capture/hook.h"
#include "capture/opcodes.h"
namespace magneto::capture {
const char* unsupported_interpreter() {
  if (kVersionColumn < 0) return "not known";
  return nullptr;
}
}
