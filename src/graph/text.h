// graph/text.h: the graph language as text. print(parse(text)) == text for every text that print wrote.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace magneto::graph {

std::string print(const Graph& graph);
std::string print(const Arg& arg);

/// Throws base::Fault with line, what was found and what was expected.
Graph parse(std::string_view text);
/// The arguments of one operator: what stands between its parentheses.
std::vector<Arg> parse_arguments(std::string_view text);

}  // namespace magneto::graph
