// explain/text.h: the report in words.
#pragma once
#include <string>

#include "base/report.h"

namespace magneto::explain {

std::string describe(const base::BreakNote& note);
std::string describe(const base::RecompileNote& note);
std::string describe(const base::FallbackNote& note);
std::string describe(const base::CodeNote& note);
/// What torch computes, and why: a line for each.
std::string describe_calls(const base::CodeNote& note);
/// "f (model.py:7)".
std::string place(const base::Line& where);

/// graphs, breaks with line, reason and cure, recompiles, fallbacks.
std::string describe(const base::Report::Content& content, bool with_graphs);

/// The texts of all stages, as far as they were kept.
std::string texts(const base::Report::Content& content);

}  // namespace magneto::explain
