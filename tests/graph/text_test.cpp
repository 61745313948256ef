#include "graph/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "base/check.h"
#include "graph/verify.h"

namespace magneto::graph {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Text, EveryGraphFileReadsBackUnchanged) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/texts")) {
    const std::string text = read_file(entry.path());
    const Graph graph = parse(text);
    EXPECT_EQ(print(graph), text) << entry.path();
    EXPECT_TRUE(verify(graph).empty()) << entry.path() << ": " << verify(graph)[0];
    ++seen;
  }
  EXPECT_GE(seen, 2);
}

TEST(Text, ANumberIsAnIntegerOrAFloatAndStaysWhatItIs) {
  const auto back = [](const Arg& arg) { return parse("graph {\n f(" + print(arg) + ")\n}").nodes()[0].args[0]; };
  for (const double number : {0.0, -0.0, 1.0, 1e300, 5e-324, 0.1, -3.5, 1e22, std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()}) {
    const Arg arg = back(number);
    ASSERT_TRUE(std::holds_alternative<double>(arg)) << number;
    EXPECT_EQ(std::get<double>(arg), number);
    EXPECT_EQ(std::signbit(std::get<double>(arg)), std::signbit(number));
  }
  EXPECT_TRUE(std::isnan(std::get<double>(back(std::nan("")))));
  EXPECT_EQ(back(types::Expr(1)), Arg(types::Expr(1)));
  EXPECT_EQ(back(types::Expr(INT64_MIN)), Arg(types::Expr(INT64_MIN)));
  EXPECT_EQ(back(Arg(true)), Arg(true));
  EXPECT_EQ(back(std::complex<double>(1, -2)), Arg(std::complex<double>(1, -2)));
  EXPECT_EQ(back(Real{3}), Arg(Real{3}));
  EXPECT_EQ(print(Arg(Real{3})), "real(s3)");
  EXPECT_THROW(parse("graph {\n f(real(s1 + 1))\n}"), base::Fault);
}

TEST(Text, AFloatIsTheBitsOfItsSymbol) {
  for (const double number : {0.0, -0.0, 0.1, -3.5, 5e-324, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const int64_t bits = std::bit_cast<int64_t>(number);
    const Arg arg = evaluate(Real{1}, std::vector<int64_t>{7, bits});
    ASSERT_TRUE(std::holds_alternative<double>(arg)) << number;
    EXPECT_EQ(std::bit_cast<int64_t>(std::get<double>(arg)), bits);
  }
}

TEST(Text, EmptyListsKeepTheirKind) {
  for (const Arg& arg :
       {Arg(types::Sizes()), Arg(std::vector<ValueId>()), Arg(std::vector<double>()), Arg(std::vector<bool>())})
    EXPECT_EQ(parse("graph {\n f(" + print(arg) + ")\n}").nodes()[0].args[0], arg) << print(arg);
}

TEST(Text, AnErrorNamesTheLineAndWhatWasExpected) {
  const auto error = [](const char* text) -> std::string {
    try {
      parse(text);
    } catch (const base::Fault& fault) {
      return fault.what();
    }
    return "";
  };
  EXPECT_EQ(error("graph {\n  in %0 f32[2]\n}"), "graph text, line 2: found 'f32[2]', expected ':'");
  EXPECT_EQ(error("graph {\n  in %0: f31[2]\n}"), "graph text, line 2: found 'f31[2]', expected a tensor type");
  EXPECT_EQ(error("graph {\n  in %0: f32[2]\n  in %0: f32[2]\n}"),
            "graph text, line 3: found '', expected %0 to be defined once");
  for (const char* text :
       {"", "graph {", "x", "graph {\n f(\n}", "graph {\n f(1 2)\n}", "graph {\n f(\"a)\n}",
        "graph {\n %1: f32[2] f()\n}", "graph {\n where s0 > 2\n}", "graph {\n out x\n}", "graph {\n}\nx",
        "graph {\n in %3: f32[]\n in %1: f32[]\n}", "graph {\n f([1, 2.0])\n}", "graph {\n f([1.0, 2])\n}",
        "graph {\n f([true, 1])\n}", "graph {\n f(\"\\q\")\n}", "graph {\n %99999999999: f32[] = f()\n}"})
    EXPECT_NE(error(text), "") << text;
}

// ---- random graphs -------------------------------------------------------------------------------------------------

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  Graph graph() {
    Graph graph;
    // the first input binds every symbol
    graph.add_input(fresh({types::Expr::symbol(0), types::Expr::symbol(1)}), "x");
    std::vector<ValueId> values = {ValueId(0)};
    const int steps = pick(12);
    for (int i = 0; i < steps; ++i) {
      if (pick(4) == 0) values.push_back(graph.add_input(type(), word()));
      if (pick(6) == 0) values.push_back(graph.add_constant(type()));
      if (pick(7) == 0) graph.add_value(type());  // nobody's
      Node node;
      node.op = "aten::op" + std::to_string(pick(5)) + (pick(2) ? ".Tensor" : "_");
      node.grad = pick(4) != 0;
      const int args = pick(6);
      for (int k = 0; k < args; ++k) node.args.push_back(arg(values));
      const int results = pick(4);
      std::vector<ValueId> made;
      for (int k = 0; k < results; ++k) {
        if (pick(6) == 0) {
          node.outputs.emplace_back();
        } else if (pick(5) == 0) {
          const ValueId old = some(values);
          node.args.push_back(old);
          node.outputs.push_back(old);
        } else {
          made.push_back(graph.add_value(type()));
          node.outputs.push_back(made.back());
        }
      }
      values.insert(values.end(), made.begin(), made.end());
      if (pick(3)) node.place = graph.add_place({word(), pick(3000), pick(2) ? word() : ""});
      graph.add_node(std::move(node));
    }
    for (int i = pick(4); i-- > 0;) graph.outputs.push_back(pick(9) ? some(values) : ValueId());
    for (int i = pick(3); i-- > 0;) graph.conditions.push_back({expr(), static_cast<types::Relation>(pick(4)), expr()});
    return graph;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  ValueId some(const std::vector<ValueId>& values) {
    return values[static_cast<size_t>(pick(static_cast<int>(values.size())))];
  }
  std::string word() {
    std::string text;
    for (int i = pick(8); i-- > 0;) text += "ab c\n\"\\#:% in\x01\xc3\xa4.,"[pick(18)];
    return text;
  }
  types::Expr expr() {
    if (pick(2)) return pick(20);
    const types::Expr a = types::Expr::symbol(static_cast<uint32_t>(pick(2)));
    switch (pick(4)) {
      case 0:
        return a * 3 + pick(5);
      case 1:
        return types::Expr::floor_div(a, 2);
      case 2:
        return types::Expr::max(a, pick(5));
      default:
        return a;
    }
  }
  types::Sizes sizes() {
    types::Sizes list;
    for (int i = pick(4); i-- > 0;) list.push_back(expr());
    return list;
  }
  static types::TensorType fresh(types::Sizes sizes) {
    types::Sizes strides = types::contiguous_strides(sizes);
    return {types::Dtype::kF32, {}, std::move(sizes), std::move(strides), 0};
  }
  types::TensorType type() {
    types::TensorType made = fresh(sizes());
    made.dtype = static_cast<types::Dtype>(pick(21));
    if (pick(3) == 0) std::reverse(made.strides.begin(), made.strides.end());
    if (pick(4) == 0) made.offset = expr();
    if (pick(4) == 0) made.device = {types::Device::Kind::kCuda, static_cast<int8_t>(pick(3) - 1)};
    return made;
  }
  double number() {
    const double some[] = {0.0, -0.0, 1.0, -2.5, 1e-7, 3e40, std::numeric_limits<double>::infinity()};
    return some[pick(7)];
  }
  template <class Item, class Make>
  std::vector<Item> list(const Make& make) {
    std::vector<Item> items;
    for (int i = pick(4); i-- > 0;) items.push_back(make());
    return items;
  }
  Arg arg(const std::vector<ValueId>& values) {
    switch (pick(15)) {
      case 0:
        return std::monostate();
      case 1:
        return some(values);
      case 2:
        return ValueId();
      case 3:
        return list<ValueId>([&] { return pick(4) ? some(values) : ValueId(); });
      case 4:
        return expr();
      case 5:
        return sizes();
      case 6:
        return number();
      case 7:
        return list<double>([&] { return number(); });
      case 8:
        return pick(2) == 0;
      case 9:
        return list<bool>([&] { return pick(2) == 0; });
      case 10:
        return std::complex<double>(number(), number());
      case 11:
        return word();
      case 12:
        return static_cast<types::Dtype>(pick(21));
      case 13:
        return types::Device{static_cast<types::Device::Kind>(pick(3)), static_cast<int8_t>(pick(3) - 1)};
      default:
        if (pick(2)) return static_cast<types::Layout>(pick(2));
        return static_cast<types::MemoryFormat>(pick(4));
    }
  }
  std::mt19937 random_;
};

TEST(Text, RandomGraphsRoundTrip) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const Graph graph = Maker(seed).graph();
    const std::string text = print(graph);
    const Graph back = parse(text);
    ASSERT_EQ(print(back), text) << "seed " << seed;
    ASSERT_EQ(back.inputs(), graph.inputs());
    ASSERT_EQ(back.constants(), graph.constants());
    ASSERT_EQ(back.outputs, graph.outputs);
    ASSERT_EQ(back.conditions, graph.conditions);
    ASSERT_EQ(back.nodes().size(), graph.nodes().size());
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node &a = back.nodes()[i], &b = graph.nodes()[i];
      EXPECT_EQ(a.args, b.args) << "seed " << seed;
      EXPECT_EQ(a.outputs, b.outputs);
      EXPECT_EQ(a.grad, b.grad);
      EXPECT_EQ(back.places()[a.place], graph.places()[b.place]) << "seed " << seed;
    }
    const auto broken = verify(graph);
    ASSERT_TRUE(broken.empty()) << "seed " << seed << ": " << broken[0] << "\n" << text;
    std::vector<size_t> inputs, constants;
    const Graph small = compact(graph, &inputs, &constants);
    const auto still = verify(small);
    ASSERT_TRUE(still.empty()) << "seed " << seed << ": " << still[0] << "\n" << text << print(small);
    ASSERT_EQ(inputs.size(), small.inputs().size());
    ASSERT_EQ(constants.size(), small.constants().size());
    ASSERT_EQ(print(compact(small, nullptr)), print(small));
  }
}

// Whatever the text, parsing ends with a graph or a Fault.
TEST(Text, DamagedTextIsAFaultAndNothingWorse) {
  std::mt19937 random(3);
  int read = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const std::string text = print(Maker(seed).graph());
    for (int i = 0; i < 10; ++i) {
      std::string damaged = text;
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged.erase(at, 1 + random() % 3);
          break;
        case 1:
          damaged.insert(at, 1, "%,()[]{}:\"\\0s-"[random() % 14]);
          break;
        default:
          damaged.resize(at);
      }
      try {
        const Graph graph = parse(damaged);
        verify(graph);
        EXPECT_EQ(print(parse(print(graph))), print(graph));
        ++read;
      } catch (const base::Fault&) {
      }
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace magneto::graph
