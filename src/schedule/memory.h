// schedule/memory.h: places for temporaries.
#pragma once
#include <cstdint>
#include <vector>

#include "loop/program.h"

namespace magneto::schedule {

struct Arena {
  types::Expr bytes;              ///< the peak of what lies in it
  types::Expr apart;              ///< what it would be if no byte were used twice
  std::vector<bool> used;         ///< by buffer: a temporary that a step reads or writes
  std::vector<bool> made;         ///< by buffer: a call makes its memory
  std::vector<bool> alone;        ///< by buffer: a large one has memory of its own
  std::vector<types::Expr> at;    ///< by buffer: where it begins, a multiple of 64
  std::vector<types::Expr> size;  ///< by buffer: bytes, also of inputs and outputs
};

struct Memory {
  bool calls_make = false;  ///< what an extern call writes has no place here: the call makes its memory
  /// Temporaries of so many bytes, or of a size that is not known yet, have memory of their own: an arena is there from
  /// the first step to the last, beside all that calls make and outputs take; they are not.
  int64_t alone = INT64_MAX;
};

/// One arena for the temporaries of a scheduled program. Two share bytes when one is last read before the other is
/// first written. Outputs keep the memory and the strides they are given.
Arena plan_memory(const loop::Program& program, const Memory& how = {});

}  // namespace magneto::schedule
