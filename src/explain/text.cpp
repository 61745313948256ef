#include "explain/text.h"

#include <sstream>

namespace magneto::explain {

static std::string place(const base::Line& where) {
  if (where.file.empty()) return "(everywhere)";
  return where.file + ":" + std::to_string(where.line);
}

std::string describe(const base::Report::Content& content, bool with_graphs) {
  std::ostringstream out;
  out << content.graphs.size() << (content.graphs.size() == 1 ? " graph, " : " graphs, ") << content.breaks.size()
      << (content.breaks.size() == 1 ? " break, " : " breaks, ") << content.recompiles.size() << " recompiles, "
      << content.fallbacks.size() << " fallbacks to eager\n";
  for (const auto& note : content.breaks) {
    out << "\nbreak at " << place(note.where) << " in " << note.where.function << "\n";
    if (std::string line = base::source_line(note.where); !line.empty()) out << "    " << line << "\n";
    out << "  what: " << note.what << "\n  cure: " << note.cure << "\n";
  }
  for (const auto& note : content.recompiles)
    out << "\nrecompile of " << note.where.function << " (" << place(note.where) << ")\n  why:  " << note.reason
        << "\n";
  for (const auto& note : content.fallbacks)
    out << "\nin eager: " << note.where.function << " (" << place(note.where) << ")\n  why:  " << note.reason
        << "\n  cure: " << note.cure << "\n";
  if (with_graphs)
    for (size_t i = 0; i < content.graphs.size(); ++i) {
      const auto& note = content.graphs[i];
      out << "\ngraph " << i << " of " << note.where.function << " (" << place(note.where) << "): " << note.nodes
          << " operators, " << note.guards.size() << " guards\n"
          << (note.fixed_sizes.empty() ? "" : "  sizes that change are fixed here: " + note.fixed_sizes + "\n")
          << note.text;
    }
  return out.str();
}

}  // namespace magneto::explain
