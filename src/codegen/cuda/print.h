// codegen/cuda/print.h: kernels as CUDA C++ for NVRTC.
#pragma once
#include <string>
#include <vector>

#include "codegen/unit.h"

namespace magneto::codegen::cuda {

/// One source text, without any header, that defines the kernels as extern "C" __global__ functions (abi.h). A block
/// computes one point. The threads of a block share each phase: element k is of thread k mod `threads`, so that
/// neighbours read neighbours; folds are joined by shuffles; `unroll` is copies for one thread, `vector` is none of a
/// GPU's business. The threads of a kernel are 1 or a multiple of 32. Updates of memory are atomic, whatever they say.
std::string print(const std::vector<Unit>& units);

}  // namespace magneto::codegen::cuda
