#include <set>

#include "base/text.h"
#include "plan/plan.h"

namespace magneto::plan {

std::vector<std::string> verify(const Plan& plan) {
  std::vector<std::string> broken;
  const auto say = [&](const auto&... pieces) { broken.push_back(base::concat(pieces...)); };
  std::set<std::string> names;
  for (const Buffer& b : plan.buffers) {
    if (!names.insert(b.name).second) say("two buffers are called ", b.name);
    if (b.place == Place::kTemp && plan.arena == types::Expr(0) && !(b.bytes == types::Expr(0)))
      say(b.name, " has no place: the arena is empty");
    const auto end = (b.at + b.bytes).constant(), arena = plan.arena.constant();
    if (b.place == Place::kTemp && end && arena && *end > *arena) say(b.name, " ends behind the arena");
    if (b.place != Place::kTemp && !(b.at == types::Expr(0))) say(b.name, " is not in the arena but has a place in it");
  }
  for (const Step& s : plan.steps) {
    for (const auto* list : {&s.reads, &s.writes})
      for (const BufferId id : *list)
        if (!id.valid() || id.index() >= plan.buffers.size()) {
          say("step ", s.name, " names a buffer that does not exist");
          return broken;
        }
    for (const BufferId id : s.writes)
      if (plan[id].place == Place::kIn || plan[id].place == Place::kConstant) say(s.name, " writes ", plan[id].name);
    if (s.kind != Step::Kind::kRun) continue;
    if (s.grain < 1) say("the grain of ", s.name, " is ", s.grain);
    if (s.threads < 0 || s.threads > 1024) say("a block of ", s.name, " has ", s.threads, " threads");
    if (s.threads == 0 && !s.symbols.empty()) say(s.name, " runs on a CPU, where a kernel finds its symbols itself");
    if (s.points.is_constant() && s.points.value_or(0) < 0) say(s.name, " has fewer points than none");
    if (!s.writes.empty()) say("kernel ", s.name, " lists its buffers as read");
  }
  return broken;
}

}  // namespace magneto::plan
