// driver/notes.h: what the compiler did to a graph, for the report.
#pragma once
#include "base/report.h"
#include "driver/compile.h"

namespace magneto::driver {

/// Kernels with their operators and lines, calls with their reasons, bytes moved, times.
base::CodeNote describe(const Compilation& made, const Passes& passes);

}  // namespace magneto::driver
