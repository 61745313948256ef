#include "capture/faults.h"

#include <string>

#include "base/check.h"

namespace magneto::capture {

static thread_local std::string point;
static thread_local long left = -1;

bool internal::g_tests_ask = false;

void internal::asked_fault_point(const char* where) {
  if (left < 0 || point != where || left-- > 0) return;
  throw base::Fault(std::string("a test asked for a fault at: ") + where);
}

void throw_at(const char* where, long countdown) {
  point = where ? where : "";
  left = where ? countdown : -1;
  internal::g_tests_ask = where != nullptr;
}

bool has_thrown() { return left < 0; }

}  // namespace magneto::capture
