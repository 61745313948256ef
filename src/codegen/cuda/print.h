// codegen/cuda/print.h: kernels as CUDA C++ for NVRTC.
#pragma once
#include <string>
#include <vector>

#include "codegen/unit.h"

namespace magneto::codegen::cuda {

/// One source text, without any header, that defines the kernels as extern "C" __global__ functions (abi.h). A block
/// computes one point, or a few narrow ones. The threads of a point share each phase: neighbours read neighbours,
/// `vector` elements at once where memory is aligned to them, and folds are joined by shuffles and shared memory. In
/// `lanes`, vector * unroll threads have a column each and the others more rows of it. The threads of a kernel are 1 or
/// a power of two from 32 to 1024. Updates of memory are atomic, whatever they say.
std::string print(const std::vector<Unit>& units);

}  // namespace magneto::codegen::cuda
