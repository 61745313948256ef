// schedule/split.h: cuts long reductions with few results into two stages.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

struct Shape;

/// s[] = sum(i0 < n, x[i0]) becomes part[i0] = sum(i1 in i0 * 1024 .. min(i0 * 1024 + 1024, n), x[i1]) and
/// s[] = sum(i0 < (n + 1023) // 1024, part[i0]), where the results are too few to keep the machine busy. The order of a
/// sum changes, as it does with every accumulator. Runs after simplify and before fuse, so that reductions over the
/// same data are cut alike and join.
void split(loop::Program& program, const Shape& shape);

}  // namespace magneto::schedule
