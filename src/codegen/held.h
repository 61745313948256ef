// codegen/held.h: what the threads of a point keep in registers from one phase to the next, on a GPU.
//
// A phase over few elements, a number that is known, needs no loop: each thread has the same few of them in every phase
// of that length. Then what one phase has read the next one has, and a row that only such phases touch needs no memory.
#pragma once
#include <cstdint>
#include <map>
#include <set>

#include "loop/program.h"

namespace magneto::codegen {

struct Held {
  static constexpr int kMost = 8;               ///< elements of one thread
  std::map<const loop::Loop*, int64_t> phases;  ///< those without a loop, with their lengths
  std::set<loop::BufferId> rows;                ///< that are in registers
};

Held held_of(const loop::Program& program, const loop::Kernel& kernel);

}  // namespace magneto::codegen
