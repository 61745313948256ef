// tests/codegen/agree.h: runs compiled kernels and compares them with the interpreter.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "codegen/unit.h"
#include "loop/interpret.h"
#include "memory.h"

namespace magneto::codegen {

/// In tests that run under AddressSanitizer generated kernels do, too: their buffers are exactly as long as they must
/// be.
inline std::vector<std::string> with_sanitizer(std::vector<std::string> flags) {
#ifdef __SANITIZE_ADDRESS__
  flags.push_back("-fsanitize=address");
#endif
  return flags;
}

using CpuKernel = void(void* const*, const int64_t*, int64_t, int64_t, char*, int32_t*);

/// Runs the kernels of a program one after the other, each in two parts, as two threads would. False: a fault.
inline bool run(const loop::Program& program, const std::vector<int64_t>& symbols, loop::Memory& memory,
                const std::function<CpuKernel*(const loop::Kernel&)>& find) {
  int32_t fault = 0;
  const std::vector<void*> pointers = memory.pointers();
  for (const loop::Kernel& kernel : program.kernels) {
    std::vector<void*> buffers;
    for (const loop::BufferId id : arguments_of(program, kernel)) buffers.push_back(pointers[id.index()]);
    const auto bytes = static_cast<size_t>(scratch_bytes(program, kernel.rows).evaluate(symbols));
    void* scratch = nullptr;
    if (posix_memalign(&scratch, 64, bytes) != 0) std::abort();
    const int64_t points = points_of(program, kernel).evaluate(symbols), half = points / 2;
    std::vector<int64_t> padded = symbols;
    padded.resize(std::max<size_t>(padded.size(), 1));
    CpuKernel* const function = find(kernel);
    function(buffers.data(), padded.data(), 0, half, static_cast<char*>(scratch), &fault);
    function(buffers.data(), padded.data(), half, points, static_cast<char*>(scratch), &fault);
    std::free(scratch);
  }
  return fault == 0;
}

/// "" when the kernels that `find` gives compute what the interpreter computes.
inline std::string compare(const loop::Program& program, const std::vector<int64_t>& symbols, unsigned seed,
                           const std::function<CpuKernel*(const loop::Kernel&)>& find, double tolerance = 2e-4) {
  loop::Memory expected(program, symbols, seed), given(program, symbols, seed);
  loop::Interpretation how;
  how.round_each = true;
  const bool sound = loop::interpret(program, symbols, expected.pointers(), how);
  if (run(program, symbols, given, find) != sound) return "one of them has a fault";
  return loop::difference(expected, given, tolerance);
}

}  // namespace magneto::codegen
