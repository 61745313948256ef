// capture/stance.h: torch.compiler.set_stance, which says for the whole process what calls of compiled functions do.
#pragma once
#include <cstdint>

namespace magneto::capture {

enum class Stance : uint8_t {
  kDefault,
  kForceEager,        ///< nothing that was compiled runs
  kEagerOnRecompile,  ///< what was compiled runs where its guards hold; nothing is recorded
  kFailOnRecompile,   ///< the same, and a call that would be recorded raises
  kEagerThenCompile,  ///< the first call of each function runs in eager
};

Stance current_stance();

}  // namespace magneto::capture
