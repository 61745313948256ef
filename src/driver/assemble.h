// driver/assemble.h: a scheduled program to a plan.
#pragma once
#include <vector>

#include "codegen/unit.h"
#include "loop/program.h"
#include "plan/plan.h"
#include "schedule/memory.h"
#include "types/device.h"

namespace magneto::driver {

struct Assembled {
  plan::Plan plan;
  std::vector<codegen::Unit> units;    ///< the kernels to compile, each once; they point into the program
  std::vector<plan::BufferId> places;  ///< in the plan, of each buffer of the program; invalid: it has none
  types::Expr peak, apart;             ///< bytes of the arena, and of all temporaries without reuse
};

struct Assembly {
  types::Device::Kind device = types::Device::Kind::kCpu;  ///< on a GPU steps are grids of blocks (codegen/abi.h)
  schedule::Memory memory = {};
};

/// Puts the steps of a program in order, finds equal kernels, plans memory. Buffers keep their names; only those that a
/// step uses are in the plan, and every input and output. Sorts become calls of "magneto::sort" with the types of
/// source and results, the dimension, and "descending" as arguments. Throws base::Fault when equations are left that no
/// kernel computes.
Assembled assemble(const loop::Program& program, const Assembly& how = {});

}  // namespace magneto::driver
