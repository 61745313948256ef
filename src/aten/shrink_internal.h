// aten/shrink_internal.h: makes a case in which a compiled graph and eager differ small enough to read.
//
// Whatever is cut away, the rest is a graph of its own: it is compiled again, and compared with eager on the same
// inputs. So nothing that is cut has to keep a meaning, it only has to differ still.
//
//   1  numbers in place of symbols
//   2  the shortest beginning that differs, then the shortest end of it: its inputs are what eager computed before
//   3  each operator alone: gone, and its results are inputs
//   4  inputs of seeded random numbers, which a script can repeat
//   5  each pass left out: the one without which nothing differs is to blame
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aten/program.h"
#include "aten/sight_internal.h"

namespace magneto::aten {

/// Compiles a program as the one that was checked, without the pass `without` (none: empty). Gives the program back
/// where it cannot.
using BuildAgain = std::function<std::shared_ptr<Executable>(
    const std::shared_ptr<Program>& program, std::span<const at::Tensor> examples, const std::string& without)>;

struct Shrunk {
  Case at;
  std::string what;  ///< differs
  std::string pass;  ///< empty: none of those that can be left out
  /// Of each input: whether the memory that it lies in is numbers_of_seed(the input's number).
  std::vector<bool> is_seeded;
  bool is_reproduced = false;  ///< false: only the call itself differed, a second try did not
};

/// Ends soon after the deadline, with what it has.
Shrunk shrink(Case at, std::string what, const BuildAgain& build, const std::vector<std::string>& passes,
              std::chrono::steady_clock::time_point deadline);

/// What a script makes of a seed: normal numbers, or integers in [low, high).
at::Tensor numbers_of_seed(uint64_t seed, int64_t count, c10::ScalarType dtype, int64_t low, int64_t high);
/// The integers of a tensor's memory, as numbers_of_seed takes them.
std::pair<int64_t, int64_t> range_of(const at::Tensor& numbers);

}  // namespace magneto::aten
