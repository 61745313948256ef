// driver/passes.h: the door that every pass goes through: it names, times, prints and verifies it, and can leave it
// out.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "loop/program.h"
#include "schedule/tile.h"

namespace magneto::driver {

struct PassTime {
  std::string name;
  double seconds = 0;
  bool skipped = false;
};

class Passes {
 public:
  std::set<std::string, std::less<>> skip;  ///< names of optional passes to leave out
  bool verifies = true;
  bool each = true;  ///< verifies after each pass, so that it can be named; else what the last one leaves
  std::function<void(std::string_view name, const std::string&)> print;  ///< called with the program after each pass
  base::Poll poll;                                                       ///< asked before each pass and stage
  std::function<void(std::string_view name, const loop::Program&)> validate;  ///< called after each pass

  /// Runs a pass. Throws base::Violation with the name of the pass when its result is not valid (`each`).
  void run(std::string_view name, loop::Program& program, const std::function<void(loop::Program&)>& pass);
  /// The same for a pass without which the results are the same: it may be skipped.
  void run_optional(std::string_view name, loop::Program& program, const std::function<void(loop::Program&)>& pass);

  /// A stage that is no pass over loops: only timed.
  void time(std::string_view name, const std::function<void()>& stage);
  /// A verifier: what it costs is one line of the times, "verify".
  void verify(const std::function<void()>& verifier);

  /// Throws base::Violation when the program is not valid.
  void verify(std::string_view name, const loop::Program& program);

  const std::vector<PassTime>& times() const { return times_; }

 private:
  std::vector<PassTime> times_;
};

/// "fuse,inline": the names between commas.
std::set<std::string, std::less<>> parse_names(std::string_view text);

/// Equations to kernels: simplify, sink, inline, split, fuse, tile. Every pass but simplify and tile may be skipped.
void schedule(loop::Program& program, Passes& passes, const schedule::Shape& shape);
std::vector<std::string> optional_passes();

}  // namespace magneto::driver
