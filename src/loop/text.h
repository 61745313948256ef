// loop/text.h: the loop language as text. print(parse(text)) == text for every text that print wrote.
#pragma once
#include <string>
#include <string_view>

#include "loop/program.h"

namespace magneto::loop {

std::string print(const Program& program);
std::string print(const Program& program, TermId term);
std::string print(const Program& program, const Equation& equation);
std::string print(const Program& program, const Kernel& kernel);
std::string print(const Program& program, const Range& range);

/// Throws base::Fault with line, what was found and what was expected.
Program parse(std::string_view text);

}  // namespace magneto::loop
