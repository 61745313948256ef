// loop/bounds.h: every place of memory that a program touches lies inside its buffer, for all sizes that are allowed.
#pragma once
#include <string>
#include <vector>

#include "loop/program.h"

namespace magneto::loop {

/// A place that is not known to lie inside.
struct Unproved {
  std::string what;            ///< x[i + 1]: i + 1 < 8 is not proved
  std::string where;           ///< the text of the equation, or "kernel k_y"
  BufferId buffer{};           ///< whose memory it is; invalid: a loop is said to have no tail
  size_t equation = SIZE_MAX;  ///< in which it stands,
  size_t kernel = SIZE_MAX;    ///< or in which kernel
};

/// The places that are not proved, of equations and kernels; one for each access. Of a valid program (verify.h): an
/// axis lies in its range, a load under a condition is reached only where that holds, `checked` gives a place in its
/// size. A loop that says that it has no tail has none. `conditions` hold for all sizes the program is run with. The
/// cost is that of reading the program.
std::vector<Unproved> unproved_places(const Program& program, const std::vector<types::Condition>& conditions = {});

}  // namespace magneto::loop
