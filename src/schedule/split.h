// schedule/split.h: cuts long reductions with few results into two stages.
#pragma once
#include <cstdint>

namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

/// s[] = sum(i0 < n, x[i0]) becomes part[i0] = sum(i1 in i0 * 1024 .. min(i0 * 1024 + 1024, n), x[i1]) and
/// s[] = sum(i0 < (n + 1023) // 1024, part[i0]), where the results are too few to keep the machine busy. The order of a
/// sum changes, as it does with every accumulator. Runs after simplify and before fuse, so that reductions over the
/// same data are cut alike and join.
/// `together`: so many columns of a column sum are one point.
void split(loop::Program& program, int64_t few_points, int64_t together = 64);

}  // namespace magneto::schedule
