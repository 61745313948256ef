// A joint graph in, its two halves out. The first line tells how many inputs and outputs are the forward's:
//   # inputs 2 outputs 1
// and, where it matters, how many nodes: nodes 3
#include "autograd/partition.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "base/text.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "text_cases.h"

namespace magneto::autograd {
namespace {

Halves read_halves(const std::string& text) {
  Halves halves;
  std::istringstream words(text.substr(text.find("# inputs") + 2));
  std::string word;
  size_t number = 0;
  while (words >> word && word != "#" && word != "graph") {
    if (word == "inputs" && words >> number) halves.inputs = number;
    if (word == "outputs" && words >> number) halves.outputs = number;
    if (word == "nodes" && words >> number) halves.forward_nodes = number;
    if (word == "hint" && words >> number) halves.hints.push_back(static_cast<int64_t>(number));
  }
  return halves;
}

std::string describe(const Partition& made) {
  if (!made.reason.empty()) return "cannot: " + made.reason + "\n";
  static constexpr const char* kFrom[] = {"input", "output", "extra"};
  std::string text = "forward " + graph::print(made.forward) + "backward " + graph::print(made.backward) + "saved";
  for (const Saved& saved : made.saved) {
    text += base::concat(" ", kFrom[static_cast<size_t>(saved.from)], " ", saved.index);
    if (saved.shares != Saved::kNone) text += base::concat(" (under output ", saved.shares, ")");
  }
  text += base::concat("; ", made.bytes, " bytes\n");
  for (size_t g = 0; g < made.depends.size(); ++g) {
    text += base::concat("gradient ", g, ":");
    for (size_t t = 0; t < made.depends[g].size(); ++t)
      if (made.depends[g][t]) text += base::concat(" ", t);
    text += "\n";
  }
  return text;
}

TEST(Partition, TextsInTextsOut) {
  expect_text_cases(MAGNETO_TEST_DIR "/partitions", [](const std::string& input, const std::filesystem::path& path) {
    const Partition made = partition(graph::parse(input.substr(input.find("graph {"))), read_halves(input));
    if (made.reason.empty()) {
      EXPECT_EQ(graph::verify(made.forward), std::vector<std::string>()) << path;
      EXPECT_EQ(graph::verify(made.backward), std::vector<std::string>()) << path;
    }
    return describe(made);
  });
}

// A chain of layers, each a product and an activation, with the backward that torch would record.
graph::Graph layers(size_t count) {
  std::string text = "graph {\n  in %0: f32[32, 64]\n  in %1: f32[64, 64]\n  in %2: f32[32, 64]\n";
  size_t next = 3, above = 0;
  std::vector<size_t> read, product;
  const auto add = [&](const std::string& type, const std::string& call) {
    text += base::concat("  %", next, ": ", type, " = ", call, "\n");
    return next++;
  };
  for (size_t l = 0; l < count; ++l) {
    read.push_back(above);
    product.push_back(add("f32[32, 64]", base::concat("aten::mm(%", above, ", %1)")));
    above = add("f32[32, 64]", base::concat("aten::gelu(%", product.back(), ", \"none\")"));
  }
  const size_t output = above;
  size_t gradient = 2, weight = 0;
  for (size_t l = count; l-- > 0;) {
    const size_t inner =
        add("f32[32, 64]", base::concat("aten::gelu_backward(%", gradient, ", %", product[l], ", \"none\")"));
    const size_t turned = add("f32[64, 32]{1, 64}", base::concat("aten::t(%", read[l], ")"));
    const size_t part = add("f32[64, 64]", base::concat("aten::mm(%", turned, ", %", inner, ")"));
    weight = weight ? add("f32[64, 64]", base::concat("aten::add.Tensor(%", weight, ", %", part, ", 1)")) : part;
    const size_t back = add("f32[64, 64]{1, 64}", "aten::t(%1)");
    gradient = add("f32[32, 64]", base::concat("aten::mm(%", inner, ", %", back, ")"));
  }
  return graph::parse(text + base::concat("  out %", output, ", %", gradient, ", %", weight, "\n}\n"));
}

TEST(Partition, ActivationsOfManyLayersAreComputedAgain) {
  const graph::Graph joint = layers(400);
  const auto start = std::chrono::steady_clock::now();
  const Partition made = partition(joint, {.inputs = 2, .outputs = 1});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(made.reason, "");
  EXPECT_EQ(made.bytes, 400 * 32 * 64 * 4);  // the products; eager keeps the activations, too
  EXPECT_LT(taken.count(), 1.0);             // a few ms on an idle machine
  RecordProperty("milliseconds", static_cast<int>(taken.count() * 1000));
}

}  // namespace
}  // namespace magneto::autograd
