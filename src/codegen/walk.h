// codegen/walk.h: walks a kernel and tells a target what to write.
#pragma once
#include "codegen/target.h"
#include "loop/uses.h"

namespace magneto::codegen {

/// Writes the body of `kernel` for each point from `point` on: `point` is a variable of the target, in scope 0, that
/// runs to `limit`. With `one_point` there is no loop: the target writes one point for each call.
void walk(const loop::Program& program, const loop::Uses& uses, const loop::Kernel& kernel, Target& target, Value point,
          const Value& limit, bool one_point = false);

}  // namespace magneto::codegen
