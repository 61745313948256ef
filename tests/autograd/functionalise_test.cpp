// Graph text in, functional graph text out, or the reason why not.
#include "autograd/functionalise.h"

#include <gtest/gtest.h>

#include "autograd/verify_functional.h"
#include "base/text.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/op.h"
#include "text_cases.h"

namespace magneto::autograd {
namespace {

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
  expect_text_cases(MAGNETO_TEST_DIR "/texts", [](const std::string& input, const std::filesystem::path& path) {
    const graph::Graph recorded = graph::parse(input.substr(input.find("graph {")));
    const Functional made = functionalise(recorded);
    if (made.reason.empty()) {
      EXPECT_EQ(verify_functional(recorded, made), std::vector<std::string>()) << path << graph::print(made.graph);
      EXPECT_EQ(graph::verify(made.graph), std::vector<std::string>()) << path << graph::print(made.graph);
      EXPECT_EQ(graph::print(graph::parse(graph::print(made.graph))), graph::print(made.graph)) << path;
    }
    return describe(made);
  });
}

TEST(Functionalise, EveryFunctionalFormIsDeclared) {
  for (const ops::Op* op : ops::all())
    if (!op->functional.empty()) {
      EXPECT_NE(ops::find(op->functional), nullptr) << op->name << " -> " << op->functional;
    }
}

}  // namespace
}  // namespace magneto::autograd
