// codegen/abi.h: how a kernel is called.
//
// On a CPU:   extern "C" void name(void* const* buffers, const int64_t* s, int64_t lo, int64_t hi, char* scratch,
//                                  int32_t* fault)
//   computes the points lo .. hi of the outer space in row-major order. `buffers` holds the storage of arguments_of(),
//   s[i] is the value of symbol i, `scratch` the rows (scratch_bytes() of them, aligned to 64, one for each thread).
//   *fault becomes 1 when an index is out of bounds or an integer is divided by zero; nobody sets it back.
//
// On a GPU:   extern "C" __global__ void name(T* buffer ..., int64_t symbol ...)
//   with the blocks, threads and dynamic shared memory of grid_of(). Every buffer is aligned to 16 bytes. An index out
//   of bounds is a device-side assert, as in eager torch: the kernel stops, and whoever waits for the device is told.
//   Nobody looks at integers that are divided by zero.
#pragma once
#include <cstdint>
#include <vector>

#include "loop/program.h"

namespace magneto::codegen {

/// The buffers that a kernel reads or writes, rows not included, by id.
std::vector<loop::BufferId> arguments_of(const loop::Program& program, const loop::Kernel& kernel);
/// The symbols that a kernel needs, sorted.
std::vector<uint32_t> symbols_of(const loop::Program& program, const loop::Kernel& kernel);
/// The number of points of the outer space. Throws base::Fault when the space depends on more than sizes.
types::Expr points_of(const loop::Program& program, const loop::Kernel& kernel);
/// Bytes of scratch memory for rows: on a CPU `kernel.rows`, on a GPU those of shared_rows().
types::Expr scratch_bytes(const loop::Program& program, const std::vector<loop::BufferId>& rows);
/// Where each row begins there, in bytes.
std::vector<types::Expr> row_offsets(const loop::Program& program, const std::vector<loop::BufferId>& rows);
/// The rows that are not in registers (held.h).
std::vector<loop::BufferId> shared_rows(const loop::Program& program, const loop::Kernel& kernel);

/// How a kernel is launched on a GPU. A block computes one point, or, where few threads share one, several: `points` of
/// them, one for each warp or thread.
struct Grid {
  int points = 1;   ///< of one block
  int threads = 1;  ///< of one block
  types::Expr blocks;
  types::Expr shared;  ///< bytes for one block
};
Grid grid_of(const loop::Program& program, const loop::Kernel& kernel);

/// Calls `visit` with every statement, those of loops after the loop itself.
template <class Visit>
void for_each_statement(const std::vector<loop::Statement>& body, const Visit& visit) {
  for (const loop::Statement& s : body) {
    visit(s);
    if (s.kind == loop::Statement::Kind::kLoop) for_each_statement(s.loop.front().body, visit);
  }
}

/// Every term of the kernel, operands before their readers, each once.
std::vector<loop::TermId> terms_of(const loop::Program& program, const loop::Kernel& kernel);

}  // namespace magneto::codegen
