#include <algorithm>

#include "base/text.h"
#include "plan/plan.h"

namespace magneto::plan {

using base::concat;

static std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made;
}

std::string print(const Plan& plan) {
  constexpr std::string_view kPlaces[] = {"in", "out", "constant", "temp", "alone", "made"};
  std::string text = "plan {\n";
  for (const Buffer& b : plan.buffers) {
    text += concat("  ", kPlaces[static_cast<size_t>(b.place)], " ", b.name, ": ", to_string(b.bytes));
    if (b.place == Place::kTemp) text += concat(" at ", to_string(b.at));
    text += "\n";
  }
  if (!(plan.arena == types::Expr(0))) text += concat("  arena ", to_string(plan.arena), "\n");
  for (const types::Condition& c : plan.conditions) text += concat("  where ", to_string(c), "\n");
  const auto names = [&](const std::vector<BufferId>& list) {
    std::string joined;
    for (size_t k = 0; k < list.size(); ++k) joined += concat(k ? ", " : "", plan[list[k]].name);
    return joined;
  };
  for (const Step& s : plan.steps) {
    if (s.kind == Step::Kind::kCall) {
      text += concat("  call \"", s.name, "\" (", names(s.reads), ") -> (", names(s.writes), ") \"",
                     escaped(s.arguments), "\"\n");
      continue;
    }
    const auto has = [](const std::vector<BufferId>& list, BufferId id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    text += concat("  run ", s.name, "(");
    for (size_t k = 0; k < s.buffers.size(); ++k) {
      const BufferId id = s.buffers[k];
      text += concat(k ? ", " : "", has(s.writes, id) ? has(s.reads, id) ? "<-> " : "-> " : "", plan[id].name);
    }
    text += concat(") points ", to_string(s.points));
    if (s.grain != 1) text += concat(" grain ", s.grain);
    if (s.threads > 0) text += concat(" threads ", s.threads);
    for (size_t k = 0; k < s.symbols.size(); ++k) text += concat(k ? ", s" : " with s", s.symbols[k]);
    if (!(s.scratch == types::Expr(0))) text += concat(" scratch ", to_string(s.scratch));
    text += "\n";
  }
  return text + "}\n";
}

}  // namespace magneto::plan
