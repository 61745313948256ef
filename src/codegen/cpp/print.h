// codegen/cpp/print.h: kernels as C++ for g++ and clang.
#pragma once
#include <string>
#include <vector>

#include "codegen/machine.h"
#include "codegen/unit.h"

namespace magneto::codegen::cpp {

/// One source text, without any header, that defines the kernels as extern "C" functions (abi.h). Vectors are vector
/// extensions; what the extensions cannot say in one instruction of `machine` is inline assembly. To be compiled with
/// -fwrapv -ffp-contract=off -fno-math-errno and the flags of the machine.
std::string print(const std::vector<Unit>& units, const Machine& machine);

}  // namespace magneto::codegen::cpp
