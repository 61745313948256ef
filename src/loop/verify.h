// loop/verify.h: what must hold for a program.
#pragma once
#include <string>
#include <vector>

#include "loop/program.h"

namespace magneto::loop {

/// What does not hold, one sentence each; empty for a valid program.
/// Terms: operands have the types their operation takes; half types are only moved; indices are i64, one for each
/// dimension. Names: axes and values are bound where they are used, and bound once. Equations: each target is written
/// once, before it is read, in its own type. Kernels: phases do not nest, lanes hold phases that are not vectorised, a
/// fold is read after its phase, a row is read after the phase that fills it, memory that a kernel stores to is read
/// only at the place it is stored to.
std::vector<std::string> verify(const Program& program);

}  // namespace magneto::loop
