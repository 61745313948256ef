// Graph text in, functional graph text out: texts/*.txt hold a graph, a line of dashes, and the result or the reason.
// MAGNETO_UPDATE=1 writes the second half anew.
#include "autograd/functionalise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/op.h"

namespace magneto::autograd {
namespace {

const std::string kLine = "----\n";

std::string describe(const Functional& made) {
  if (!made.reason.empty()) return "cannot: " + made.reason + "\n";
  std::string text = graph::print(made.graph);
  for (size_t k = 0; k < made.outputs.size(); ++k) {
    const Alias& alias = made.outputs[k];
    if (alias.kind == Alias::Kind::kFresh) continue;
    text += base::concat("output ", k, alias.kind == Alias::Kind::kView ? " is a view of %" : " is %", alias.of.index(),
                         "\n");
  }
  return text;
}

TEST(Functionalise, TextsInTextsOut) {
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
    const Functional made = functionalise(graph::parse(input.substr(input.find("graph {"))));
    if (made.reason.empty()) {
      EXPECT_EQ(graph::verify(made.graph), std::vector<std::string>()) << path << graph::print(made.graph);
      EXPECT_EQ(graph::print(graph::parse(graph::print(made.graph))), graph::print(made.graph)) << path;
    }
    if (std::getenv("MAGNETO_UPDATE"))
      std::ofstream(path) << input << kLine << describe(made);
    else
      EXPECT_EQ(describe(made), cut == std::string::npos ? "" : text.substr(cut + kLine.size())) << path;
  }
}

TEST(Functionalise, EveryFunctionalFormIsDeclared) {
  for (const ops::Op* op : ops::all())
    if (!op->functional.empty()) {
      EXPECT_NE(ops::find(op->functional), nullptr) << op->name << " -> " << op->functional;
    }
}

}  // namespace
}  // namespace magneto::autograd
