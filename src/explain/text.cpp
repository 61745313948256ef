#include "explain/text.h"

#include <iomanip>
#include <map>
#include <sstream>

#include "base/text.h"

namespace magneto::explain {

static std::string file_and_line(const base::Line& where) {
  if (where.file.empty()) return "(everywhere)";
  return where.file + ":" + std::to_string(where.line);
}

std::string place(const base::Line& where) { return base::concat(where.function, " (", file_and_line(where), ")"); }

std::string describe(const base::BreakNote& note) {
  const std::string line = base::source_line(note.where);
  return base::concat("break at ", file_and_line(note.where), " in ", note.where.function, "\n",
                      line.empty() ? "" : base::concat("    ", line, "\n"), "  what: ", note.what,
                      "\n  cure: ", note.cure, "\n");
}

std::string describe(const base::RecompileNote& note) {
  return base::concat("recompile of ", place(note.where), "\n  why:  ", note.reason, "\n");
}

std::string describe(const base::FallbackNote& note) {
  return base::concat("in eager: ", place(note.where), "\n  why:  ", note.reason, "\n  cure: ", note.cure, "\n");
}

std::string describe(const base::CodeNote& code) {
  std::ostringstream out;
  size_t runs = 0;
  for (const base::KernelNote& kernel : code.kernels) runs += kernel.runs;
  out << "  " << (code.part.empty() ? "compiled" : code.part) << ": " << code.kernels.size() << " kernels, run " << runs
      << " times, " << code.calls.size() << " calls of torch" << (code.by.empty() ? "" : ", by ") << code.by;
  if (code.bytes_after >= 0) out << "; bytes moved " << code.bytes_before << " -> " << code.bytes_after;
  double seconds = 0;
  for (const auto& [name, time] : code.times) seconds += time;
  out << std::fixed << std::setprecision(1) << "; " << 1e3 * seconds << " ms:";
  for (const auto& [name, time] : code.times) out << " " << name << " " << 1e3 * time;
  out << "\n";
  for (const base::KernelNote& kernel : code.kernels) {
    out << "    kernel " << kernel.name << " (" << kernel.runs << "x):";
    for (const std::string& op : kernel.operators) out << " " << op;
    out << "\n";
    for (const base::Line& line : kernel.lines)
      out << "      " << file_and_line(line) << "  " << base::source_line(line) << "\n";
  }
  out << describe_calls(code);
  return out.str();
}

std::string describe_calls(const base::CodeNote& code) {
  std::map<std::pair<std::string, std::string>, size_t> calls;
  for (const base::CallNote& call : code.calls) ++calls[{call.op, call.reason}];
  std::string text;
  for (const auto& [call, count] : calls)
    text += base::concat("    call ", call.first, " (", count, "x): ", call.second, "\n");
  return text;
}

std::string texts(const base::Report::Content& content) {
  std::ostringstream out;
  for (const base::GraphNote& graph : content.graphs)
    for (const base::CodeNote& code : graph.code)
      for (const auto& [name, text] : code.texts)
        out << "# " << name << (code.part.empty() ? "" : ", ") << code.part << " of " << graph.where.function << "\n"
            << text << "\n";
  return out.str();
}

std::string describe(const base::Report::Content& content, bool with_graphs) {
  std::ostringstream out;
  out << content.graphs.size() << (content.graphs.size() == 1 ? " graph, " : " graphs, ") << content.breaks.size()
      << (content.breaks.size() == 1 ? " break, " : " breaks, ") << content.recompiles.size() << " recompiles, "
      << content.fallbacks.size() << " fallbacks to eager\n";
  for (const auto& note : content.breaks) out << "\n" << describe(note);
  for (const auto& note : content.recompiles) out << "\n" << describe(note);
  for (const auto& note : content.fallbacks) out << "\n" << describe(note);
  if (content.checked > 0)
    out << "\n" << content.checked << " runs of graphs compared with eager, " << content.checks.size() << " differ\n";
  for (const auto& note : content.checks) {
    out << "\ndiffers from eager: " << file_and_line(note.where) << " in " << note.where.function
        << "\n  what: " << note.what << "\n  from:";
    for (const std::string& op : note.operators) out << " " << op;
    out << "\n";
    if (!note.pass.empty()) out << "  pass: " << note.pass << "\n";
    if (!note.script.empty()) out << "  see:  " << note.script << "\n";
  }
  if (with_graphs)
    for (size_t i = 0; i < content.graphs.size(); ++i) {
      const auto& note = content.graphs[i];
      out << "\ngraph " << i << " of " << place(note.where) << ": " << note.nodes << " operators, "
          << note.guards.size() << " guards\n"
          << (note.fixed_sizes.empty() ? "" : "  sizes that change are fixed here: " + note.fixed_sizes + "\n")
          << (note.backend.empty() ? "" : "  compiled by the backend " + note.backend + "\n")
          << (note.fallback.empty() ? "" : "  runs operator by operator: " + note.fallback + "\n");
      for (const base::CodeNote& code : note.code) out << describe(code);
      out << note.text;
    }
  return out.str();
}

}  // namespace magneto::explain
