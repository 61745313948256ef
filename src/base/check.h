// base/check.h: our own faults. A fault names the part of the compiler, what it saw and what it was promised; it never
// looks like a stop (a reason to leave the graph), which is an ordinary value.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace magneto::base {

class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws a Fault made of `parts` unless `promise` holds.
template <class... Parts>
void check(bool promise, const Parts&... parts) {
  if (promise) [[likely]]
    return;
  std::ostringstream text;
  (text << ... << parts);
  throw Fault(text.str());
}

}  // namespace magneto::base
