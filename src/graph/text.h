// graph/text.h: the graph language as text. print(parse(text)) == text for every text that print wrote.
#pragma once
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace magneto::graph {

std::string print(const Graph& graph);
std::string print(const Arg& arg);

/// Throws base::Fault with line, what was found and what was expected.
Graph parse(std::string_view text);

}  // namespace magneto::graph
