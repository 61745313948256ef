// codegen/unit.h: a kernel that is to be printed, and under which name. Several make one source text.
#pragma once
#include <string>
#include <vector>

#include "loop/program.h"

namespace magneto::codegen {

struct Unit {
  const loop::Program* program = nullptr;
  const loop::Kernel* kernel = nullptr;
  std::string name;
};

/// All kernels of a program, under their own names.
inline std::vector<Unit> units_of(const loop::Program& program) {
  std::vector<Unit> list;
  for (const loop::Kernel& kernel : program.kernels) list.push_back({&program, &kernel, kernel.name});
  return list;
}

}  // namespace magneto::codegen
