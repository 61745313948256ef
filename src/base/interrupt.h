// base/interrupt.h: long work that its caller may want to end.
#pragma once
#include <functional>

namespace magneto::base {

/// Thrown through everything: not a fault, and no std::exception, so that nobody who goes on after a fault holds it.
struct Interrupted {};

/// Long work asks it now and then, from the thread that called: it throws Interrupted when the work is to end. Empty:
/// nobody wants to know.
using Poll = std::function<void()>;

}  // namespace magneto::base
