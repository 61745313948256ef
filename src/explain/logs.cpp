#include "explain/logs.h"

#include "base/logs.h"
#include "base/report.h"
#include "base/text.h"
#include "explain/text.h"

namespace magneto::explain {

namespace {

using base::Log;
using base::logs;

void tell_graph(const base::GraphNote& note) {
  const std::string of = base::concat("graph of ", place(note.where), ", ", note.nodes, " operators\n");
  if (logs().tells(Log::kGraphCode)) logs().tell(Log::kGraphCode, "", of + note.text);
  if (logs().tells(Log::kGuards)) {
    std::string text = of;
    for (const std::string& guard : note.guards) text += base::concat("  ", guard, "\n");
    logs().tell(Log::kGuards, "", text);
  }
  if (logs().tells(Log::kDynamic) && !note.fixed_sizes.empty())
    logs().tell(Log::kDynamic, "", base::concat(of, "  sizes that change are fixed here: ", note.fixed_sizes, "\n"));
  if (logs().tells(Log::kPerfHints) && !note.fallback.empty())
    logs().tell(Log::kPerfHints, "", base::concat(of, "  runs operator by operator: ", note.fallback, "\n"));
}

void tell_break(const base::BreakNote& note, bool is_new) {
  const auto level = logs().level(Log::kGraphBreaks);
  if (level == base::Logs::Level::kMore || (is_new && level == base::Logs::Level::kOn))
    logs().tell(Log::kGraphBreaks, "", describe(note));
}

void tell_recompile(const base::RecompileNote& note) {
  if (logs().tells(Log::kRecompiles)) logs().tell(Log::kRecompiles, "", describe(note));
}

void tell_fallback(const base::FallbackNote& note) {
  if (logs().tells(Log::kFallbacks)) logs().tell(Log::kFallbacks, "", describe(note));
}

void tell_code(const base::CodeNote& note, const base::Line& where) {
  if (logs().tells(Log::kPasses))
    logs().tell(Log::kPasses, note.part, base::concat("code of ", place(where), "\n", describe(note)));
  if (logs().tells(Log::kPerfHints) && !note.calls.empty())
    logs().tell(Log::kPerfHints, note.part,
                base::concat("torch computes in ", place(where), "\n", describe_calls(note)));
}

constexpr base::Report::Listener kListener = {tell_graph, tell_break, tell_recompile, tell_fallback, tell_code};

}  // namespace

void tell_the_report() { base::process_report().set_listener(&kListener); }

}  // namespace magneto::explain
