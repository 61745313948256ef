// codegen/llvm/print.h: kernels as LLVM IR.
#pragma once
#include <string>
#include <vector>

#include "codegen/machine.h"
#include "codegen/unit.h"

namespace magneto::codegen::llvm {

/// One module that defines the kernels as functions (abi.h), for LLVM 20 and newer. Needs no optimiser after it:
/// values are in SSA form, equal instructions are written once, what does not change in a loop stands before it.
/// Functions of f64 and rare ones of f32 call the math library, which the process must have.
std::string print(const std::vector<Unit>& units, const Machine& machine);

}  // namespace magneto::codegen::llvm
