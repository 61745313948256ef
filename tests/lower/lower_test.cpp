// Graph text in, equations out.
#include "lower/lower.h"

#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph/verify.h"
#include "loop/text.h"
#include "loop/verify.h"
#include "lower/expand.h"
#include "text_cases.h"

namespace magneto::lower {
namespace {

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
  expect_text_cases(MAGNETO_TEST_DIR "/texts", [](const std::string& input, const std::filesystem::path& path) {
    const graph::Graph graph = expand(graph::parse(input.substr(input.find("graph {"))));
    EXPECT_EQ(graph::verify(graph), std::vector<std::string>()) << path << graph::print(graph);
    const Lowered lowered = lower(graph);
    EXPECT_EQ(loop::verify(lowered.program), std::vector<std::string>()) << path;
    const std::string printed = loop::print(lowered.program);
    EXPECT_EQ(loop::print(loop::parse(printed)), printed) << path;
    return describe(lowered);
  });
}

}  // namespace
}  // namespace magneto::lower
