// explain/text.h: the report in words.
#pragma once
#include <string>

#include "base/report.h"

namespace magneto::explain {

/// The line of the user's program, without indentation; empty when the file cannot be read.
std::string source_line(const base::Line& where);

/// graphs, breaks with line, reason and cure, recompiles, fallbacks.
std::string describe(const base::Report::Content& content, bool with_graphs);

}  // namespace magneto::explain
