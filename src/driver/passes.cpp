#include "driver/passes.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "base/violation.h"
#include "loop/text.h"
#include "loop/verify.h"
#include "schedule/fuse.h"
#include "schedule/inline.h"
#include "schedule/simplify.h"
#include "schedule/sink.h"
#include "schedule/split.h"

namespace magneto::driver {

void Passes::time(std::string_view name, const std::function<void()>& stage) {
  if (poll) poll();
  const auto start = std::chrono::steady_clock::now();
  stage();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  times_.push_back({std::string(name), taken.count()});
}

void Passes::verify(const std::function<void()>& verifier) {
  const auto start = std::chrono::steady_clock::now();
  verifier();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const auto line = std::find_if(times_.begin(), times_.end(), [](const PassTime& t) { return t.name == "verify"; });
  if (line == times_.end())
    times_.push_back({"verify", taken.count()});
  else
    line->seconds += taken.count();
}

void Passes::verify(std::string_view name, const loop::Program& program) {
  if (!verifies) return;
  verify([&] {
    const std::vector<std::string> broken = loop::verify(program);
    if (!broken.empty()) throw base::Violation(base::concat(name, ": ", broken.front()));
  });
}

void Passes::run(std::string_view name, loop::Program& program, const std::function<void(loop::Program&)>& pass) {
  time(name, [&] { pass(program); });
  if (print) print(name, loop::print(program));
  if (each) verify(name, program);
  if (validate) validate(name, program);
}

void Passes::run_optional(std::string_view name, loop::Program& program,
                          const std::function<void(loop::Program&)>& pass) {
  if (skip.find(name) == skip.end()) return run(name, program, pass);
  times_.push_back({std::string(name), 0, true});
}

std::set<std::string, std::less<>> parse_names(std::string_view text) {
  std::set<std::string, std::less<>> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

std::vector<std::string> optional_passes() { return {"sink", "inline", "split", "fuse"}; }

void schedule(loop::Program& program, Passes& passes, const schedule::Shape& shape) {
  passes.run("simplify", program, schedule::simplify);
  passes.run_optional("sink", program, schedule::sink_calls);
  passes.run_optional("inline", program, [&](loop::Program& p) {
    schedule::inline_cheap(p, shape);
    schedule::simplify(p);  // what was put together may fold
  });
  passes.run_optional("split", program, [&](loop::Program& p) { schedule::split(p, shape); });
  passes.run_optional("fuse", program, [&](loop::Program& p) { schedule::fuse(p, shape); });
  passes.run("tile", program, [&](loop::Program& p) { schedule::tile(p, shape); });
  if (!passes.each) passes.verify("schedule", program);
}

}  // namespace magneto::driver
