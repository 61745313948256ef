#include "base/logs.h"

#include <algorithm>
#include <iostream>

#include "base/text.h"

namespace magneto::base {

namespace {

constexpr std::array<LogName, kLogs> kNames = {{
    {"graph_breaks", "where a function leaves its graph: line, reason, cure"},
    {"recompiles", "why a function is recorded again"},
    {"fallbacks", "what runs in eager, and why"},
    {"graph_code", "each graph as it was recorded"},
    {"guards", "what each graph relies on"},
    {"dynamic", "sizes that change and could not be symbols, and why"},
    {"perf_hints", "operators that torch computes, and why no kernel does"},
    {"graph", "each graph as it is compiled, forward and backward"},
    {"loop", "its loops, an equation for each value"},
    {"fusion", "its kernels, in the loop language"},
    {"plan", "the steps of a run: launches, calls, buffers"},
    {"output_code", "the code of its kernels"},
    {"passes", "how long each pass took"},
    {"verify", "what the verifiers could not prove"},
    {"validate", "what was compared between the stages (MAGNETO_VALIDATE)"},
}};

struct Alias {
  std::string_view name;
  std::initializer_list<Log> logs;
};
using enum Log;
const std::initializer_list<Log> kAll = {kGraphBreaks, kRecompiles, kFallbacks, kGraphCode, kGuards,
                                         kDynamic,     kPerfHints,  kGraph,     kLoop,      kFusion,
                                         kPlan,        kOutputCode, kPasses};
const Alias kAliases[] = {
    {"all", kAll},
    {"dynamo", {kGraphBreaks, kRecompiles, kFallbacks}},
    {"aot", {kGraph}},
    {"inductor", {kFusion, kPlan, kPerfHints}},
    {"aot_graphs", {kGraph}},
    {"aot_joint_graph", {kGraph}},
    {"post_grad_graphs", {kGraph}},
    {"ir_pre_fusion", {kLoop}},
    {"ir_post_fusion", {kFusion}},
    {"schedule", {kPlan}},
    {"kernel_code", {kOutputCode}},
    {"recompiles_verbose", {kRecompiles}},
};

std::vector<Log> logs_named(std::string_view name) {
  for (size_t k = 0; k < kNames.size(); ++k)
    if (kNames[k].name == name) return {static_cast<Log>(k)};
  for (const Alias& alias : kAliases)
    if (alias.name == name) return alias.logs;
  return {};
}

}  // namespace

std::span<const LogName> log_names() { return kNames; }

std::vector<std::string> Logs::set(std::string_view names) {
  std::vector<std::string> unknown;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (name.empty()) continue;
    const Level level = name[0] == '+' ? Level::kMore : name[0] == '-' ? Level::kOff : Level::kOn;
    if (level != Level::kOn) name.remove_prefix(1);
    const std::vector<Log> some = logs_named(name);
    if (some.empty()) unknown.emplace_back(name);
    for (const Log log : some) levels_[static_cast<size_t>(log)] = level;
  }
  return unknown;
}

void Logs::clear() {
  for (auto& level : levels_) level = Level::kOff;
}

bool Logs::tells_any(std::span<const Log> logs) const {
  return std::any_of(logs.begin(), logs.end(), [&](Log log) { return tells(log); });
}

void Logs::tell(Log log, std::string_view part, std::string_view text) const {
  const bool is_line = text.find('\n') == std::string_view::npos;
  const std::string told = concat(kNames[static_cast<size_t>(log)].name, part.empty() ? "" : ", ", part,
                                  is_line ? ": " : "\n", text.substr(0, text.find_last_not_of('\n') + 1));
  if (const Sink sink = sink_)
    sink(log, level(log), told);
  else
    std::cerr << "# magneto: " << told << "\n";
}

Logs& logs() {
  static Logs logs;
  return logs;
}

}  // namespace magneto::base
