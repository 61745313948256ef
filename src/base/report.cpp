#include "base/report.h"

#include <fstream>

namespace magneto::base {

std::string source_line(const Line& where) {
  std::ifstream file(where.file);
  std::string line;
  for (int i = 0; i < where.line && std::getline(file, line); ++i) {
    if (i + 1 != where.line) continue;
    size_t first = line.find_first_not_of(" \t");
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

// A process that runs for months must not grow with its report.
static constexpr size_t kMostNotes = 10000;

size_t Report::add(GraphNote note) {
  if (const Listener* listener = listener_) listener->graph(note);
  std::lock_guard lock(mutex_);
  if (content_.graphs.size() >= kMostNotes) return kMostNotes;
  content_.graphs.push_back(std::move(note));
  return content_.graphs.size() - 1;
}

void Report::add(BreakNote note) {
  const bool is_new = [&] {
    std::lock_guard lock(mutex_);
    for (BreakNote& known : content_.breaks)
      if (known.callable == note.callable && known.where == note.where && known.what == note.what) {
        ++known.count;
        return false;
      }
    if (content_.breaks.size() < kMostNotes) content_.breaks.push_back(note);
    return true;
  }();
  if (const Listener* listener = listener_) listener->graph_break(note, is_new);
}

void Report::add(RecompileNote note) {
  if (const Listener* listener = listener_) listener->recompile(note);
  std::lock_guard lock(mutex_);
  if (content_.recompiles.size() < kMostNotes) content_.recompiles.push_back(std::move(note));
}

void Report::add(FallbackNote note) {
  {
    std::lock_guard lock(mutex_);
    for (FallbackNote& known : content_.fallbacks)
      if (known.callable == note.callable && known.where == note.where && known.reason == note.reason) return;
    if (content_.fallbacks.size() < kMostNotes) content_.fallbacks.push_back(note);
  }
  if (const Listener* listener = listener_) listener->fallback(note);
}

void Report::tell(const CodeNote& note, const Line& where) const {
  if (const Listener* listener = listener_) listener->code(note, where);
}

void Report::add(CheckNote note) {
  std::lock_guard lock(mutex_);
  if (content_.checks.size() < kMostNotes) content_.checks.push_back(std::move(note));
}

void Report::add_checked(uint64_t callable) {
  std::lock_guard lock(mutex_);
  ++checked_[callable];
}

void Report::clear() {
  std::lock_guard lock(mutex_);
  content_ = {};
  checked_.clear();
}

Report::Content Report::content(uint64_t callable) const {
  std::lock_guard lock(mutex_);
  Content chosen;
  auto copy = [&](const auto& from, auto& to) {
    for (const auto& note : from)
      if (callable == 0 || note.callable == callable) to.push_back(note);
  };
  copy(content_.graphs, chosen.graphs);
  copy(content_.breaks, chosen.breaks);
  copy(content_.recompiles, chosen.recompiles);
  copy(content_.fallbacks, chosen.fallbacks);
  copy(content_.checks, chosen.checks);
  for (const auto& [of, count] : checked_)
    if (callable == 0 || of == callable) chosen.checked += count;
  for (GraphNote& note : chosen.graphs)
    if (note.late) {
      std::lock_guard late(note.late->mutex);
      note.code.insert(note.code.end(), note.late->code.begin(), note.late->code.end());
      if (note.fallback.empty()) note.fallback = note.late->fallback;
    }
  return chosen;
}

Report& process_report() {
  static Report report;
  return report;
}

}  // namespace magneto::base
