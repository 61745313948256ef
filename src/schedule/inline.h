// schedule/inline.h: computes cheap values where they are read.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

struct Shape;

/// Puts the term of a producer in the place of its loads: always when it only moves or casts data, when it has one
/// reader that reads each element once, and when reading its inputs again moves fewer bytes than storing it. On a GPU
/// also when it would be a small kernel for itself, like the rsqrt of a batch norm. What is dear and read often stays
/// stored, and so do reductions, outputs and what extern calls read, and what takes less memory than its inputs while
/// calls run. No equation grows beyond a bound. Runs after simplify.
void inline_cheap(loop::Program& program, const Shape& shape);

}  // namespace magneto::schedule
