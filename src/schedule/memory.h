// schedule/memory.h: places for temporaries.
#pragma once
#include <vector>

#include "loop/program.h"

namespace magneto::schedule {

struct Arena {
  types::Expr bytes;              ///< the peak
  types::Expr apart;              ///< what it would be if no byte were used twice
  std::vector<bool> used;         ///< by buffer: a temporary that a step reads or writes
  std::vector<bool> made;         ///< by buffer: a call makes its memory
  std::vector<types::Expr> at;    ///< by buffer: where it begins, a multiple of 64
  std::vector<types::Expr> size;  ///< by buffer: bytes, also of inputs and outputs
};

/// One arena for the temporaries of a scheduled program. Two share bytes when one is last read before the other is
/// first written. Outputs keep the memory and the strides they are given. Where `calls_make`, what an extern call
/// writes has no place here: the call makes its memory.
Arena plan_memory(const loop::Program& program, bool calls_make = false);

}  // namespace magneto::schedule
