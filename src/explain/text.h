// explain/text.h: the report in words.
#pragma once
#include <string>

#include "base/report.h"

namespace magneto::explain {

/// graphs, breaks with line, reason and cure, recompiles, fallbacks.
std::string describe(const base::Report::Content& content, bool with_graphs);

}  // namespace magneto::explain
