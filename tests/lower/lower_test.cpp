// Graph text in, equations out: texts/*.txt hold a graph, a line of dashes, and the program. MAGNETO_UPDATE=1 writes
// the second half anew.
#include "lower/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/text.h"
#include "graph/verify.h"
#include "loop/text.h"
#include "loop/verify.h"
#include "lower/expand.h"

namespace magneto::lower {
namespace {

const std::string kLine = "----\n";

std::string describe(const Lowered& lowered) {
  const auto name = [&](loop::BufferId id) { return id.valid() ? lowered.program.buffer(id).name : "undef"; };
  std::string text = loop::print(lowered.program);
  for (const Output& out : lowered.outputs) {
    text += "result " + name(out.buffer);
    if (out.is_itself) text += " itself";
    if (out.buffer.valid() && out.type != lowered.program.buffer(out.buffer).type) text += " as " + to_string(out.type);
    text += "\n";
  }
  for (const Store& store : lowered.stores) text += "store " + name(store.value) + " -> " + name(store.into) + "\n";
  return text;
}

TEST(Lower, TextsInTextsOut) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/texts"))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    const std::string text = content.str();
    const size_t cut = text.find(kLine);
    const std::string input = text.substr(0, cut);
    const graph::Graph graph = expand(graph::parse(input.substr(input.find("graph {"))));
    EXPECT_EQ(graph::verify(graph), std::vector<std::string>()) << path << graph::print(graph);
    const Lowered lowered = lower(graph);
    EXPECT_EQ(loop::verify(lowered.program), std::vector<std::string>()) << path;
    const std::string printed = loop::print(lowered.program);
    EXPECT_EQ(loop::print(loop::parse(printed)), printed) << path;
    if (std::getenv("MAGNETO_UPDATE"))
      std::ofstream(path) << input << kLine << describe(lowered);
    else
      EXPECT_EQ(describe(lowered), cut == std::string::npos ? "" : text.substr(cut + kLine.size())) << path;
  }
}

}  // namespace
}  // namespace magneto::lower
