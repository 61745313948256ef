// capture/stance.h: what is said for the whole process of calls of compiled functions: torch.compiler.set_stance, and
// torch._dynamo.error_on_graph_break.
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

/// Whether torch._dynamo.error_on_graph_break(True) is in force: a break is an error.
bool error_on_graph_break();

}  // namespace magneto::capture
