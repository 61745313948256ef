// schedule/tile.h: groups of joined equations become kernels.
#pragma once
#include <cstdint>

namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

/// What a kernel is made for.
struct Shape {
  int vector = 16;          ///< elements in one vector
  int unroll = 1;           ///< vectors in one step of a phase
  int chains = 1;           ///< the same where functions such as exp are computed, on a CPU
  int accumulators = 4;     ///< of a fold of little work, on a CPU: an addition waits for the one before it
  int columns = 4;          ///< vectors of columns side by side in a column reduction
  int64_t streamed = 2048;  ///< columns of one point of a column reduction that walks whole rows, on a CPU
  int64_t block = 4096;     ///< elements of one point, where a space has one long axis only
  int64_t few_points = 16;  ///< fewer than these keep no machine busy
  int64_t part = 8192;      ///< elements of one part of a long reduction, about
  int64_t part_rows = 64;   ///< rows of one part of a column reduction, on a CPU; fewer where rows are walked anyway
  int64_t most_columns = 1 << 16;  ///< whose sums stay in a cache while rows are walked
  /// On a GPU, the most threads that share a point of rows, and one without a reduction; fewer where it is short. A
  /// kernel has as many as its phases keep busy.
  int threads = 1, flat_threads = 1;
  int64_t row_bytes = INT64_MAX;  ///< of kept rows, for one point

  bool on_gpu() const { return threads > 1; }
};

/// For a GPU: one thread takes 16 bytes at a time, a warp is 32 columns wide.
Shape gpu_shape();

/// Every group of joined maps, every scan and every scatter becomes a kernel or two; extern calls and sorts stay as
/// equations between them. Runs after simplify; each equation must be in its form.
void tile(loop::Program& program, const Shape& shape);

}  // namespace magneto::schedule
