#include "schedule/dead.h"

#include <algorithm>

#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

void drop_dead(Program& program) {
  std::vector<bool> needed(program.buffers()), seen(program.terms());
  for (size_t b = 0; b < program.buffers(); ++b) needed[b] = program.buffer(BufferId(b)).role == Role::kOut;
  const auto read = [&](TermId root) {
    std::vector<TermId> stack = {root};
    while (!stack.empty()) {
      const TermId id = stack.back();
      stack.pop_back();
      if (seen[id.index()]) continue;  // terms are shared between equations, and so is what they need
      seen[id.index()] = true;
      const Term& t = program.term(id);
      if (is_load(t)) needed[t.id] = true;
      for (const TermId operand : t.operands) stack.push_back(operand);
    }
  };
  std::optional<Uses> uses;  // few programs have anything dead
  const auto may_fault = [&](const Equation& e) {
    if (!uses) uses.emplace(program);
    bool any = false;
    for_each_root(e, [&](TermId id) { any = any || uses->of(id).may_fault; });
    return any;
  };
  std::vector<Equation> kept;
  for (size_t n = program.equations.size(); n-- > 0;) {
    Equation& e = program.equations[n];
    const auto wanted = [&](BufferId id) { return id.valid() && needed[id.index()]; };
    bool stays = wanted(e.target) || wanted(e.positions);
    if (e.kind == Equation::Kind::kExtern)
      stays = e.stays || e.writes.empty() || std::any_of(e.writes.begin(), e.writes.end(), wanted);
    if (!stays && e.kind != Equation::Kind::kExtern && may_fault(e)) {
      // its reader was folded, but it may refuse its data: its result is an output that nobody asks for
      program.buffer(e.target).role = Role::kOut;
      stays = true;
    }
    if (!stays) continue;
    for_each_root(e, read);
    if (e.base.valid()) needed[e.base.index()] = true;
    for (const BufferId id : e.reads) needed[id.index()] = true;
    kept.push_back(std::move(e));
  }
  std::reverse(kept.begin(), kept.end());
  program.equations = std::move(kept);
}

}  // namespace magneto::schedule
