// Holds every shape rule to what torch really returned: cases.txt, written by make_cases.py. MAGNETO_CASES names
// another file, MAGNETO_COVERAGE=1 prints for each operator how many of its cases its rule answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"
#include "graph/text.h"
#include "ops/op.h"

namespace magneto::ops {
namespace {

/// One line: a call, and the results or "raises".
struct Case {
  std::string op;
  graph::Graph graph;  ///< the tensors as inputs, the call as its only node
  std::vector<std::string> results;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Types in the call become inputs: add(f32[2], 1) -> in %0: f32[2], add(%0, 1).
Case read_case(const std::string& line) {
  Case made;
  const size_t arrow = line.rfind(" -> ");
  const std::string call = line.substr(0, arrow);
  std::string inputs, body;
  int count = 0;
  for (size_t i = 0; i < call.size();) {
    std::string_view rest = std::string_view(call).substr(i);
    const size_t before = rest.size();
    if ((i == 0 || !is_word(call[i - 1])) && is_word(call[i]) && types::take_tensor_type(rest)) {
      inputs += base::concat("in %", count, ": ", call.substr(i, before - rest.size()), "\n");
      body += base::concat("%", count++);
      i += before - rest.size();
    } else {
      body += call[i++];
    }
  }
  made.graph = graph::parse(base::concat("graph {\n", inputs, body, "\n}"));
  made.op = made.graph.nodes()[0].op;
  std::string text = line.substr(arrow + 4);
  size_t depth = 0, start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > start) made.results.push_back(text.substr(start, i - start));
      start = i + 2;
    } else if (text[i] == '[' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return made;
}

std::string print(const Result& result, const graph::Graph& graph, const std::vector<graph::Arg>& args) {
  switch (result.kind) {
    case Result::Kind::kFresh:
      return base::concat("fresh ", to_string(result.type));
    case Result::Kind::kView:
      return base::concat("view ", result.of, " ", to_string(result.type));
    case Result::Kind::kUndefined:
      return "undef";
    case Result::Kind::kSame: {
      std::string text = base::concat("same ", result.of);
      if (result.item >= 0) return base::concat(text, "/", result.item);
      const auto& id = std::get<graph::ValueId>(args[static_cast<size_t>(result.of)]);
      if (result.type != graph.value(id).type) text += base::concat(" ", to_string(result.type));
      return text;
    }
  }
  return "";
}

struct Count {
  int cases = 0, answered = 0;
};

TEST(ShapeRules, AnswerAsTorchDoesOrNotAtAll) {
  const char* other = std::getenv("MAGNETO_CASES");
  std::ifstream file(other ? other : MAGNETO_TEST_DIR "/cases.txt");
  ASSERT_TRUE(file) << "cases.txt is missing";
  std::map<std::string, Count> counts;
  std::map<std::string, int> wrong;
  int checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const Op* op = find(line.substr(0, line.find('(')));
    if (!op || !op->type) continue;
    const Case one = read_case(line);
    const std::vector<graph::Arg>& args = one.graph.nodes()[0].args;
    const auto results = op->type(Call{args, &one.graph});
    const bool raises = one.results == std::vector<std::string>{"raises"};
    ++checked;
    if (!raises) ++counts[one.op].cases;
    if (!results) continue;
    if (raises) {
      if (!op->may_raise_on_data && ++wrong[one.op] <= 4) ADD_FAILURE() << line << "\n  has an answer";
      continue;
    }
    std::vector<std::string> found;
    for (const Result& result : *results) found.push_back(print(result, one.graph, args));
    if (found == one.results) {
      ++counts[one.op].answered;
    } else if (++wrong[one.op] <= 4) {
      std::string text;
      for (const std::string& result : found) text += base::concat(text.empty() ? "" : ", ", result);
      ADD_FAILURE() << line << "\n  answered " << text;
    }
  }
  int ops = 0, cases = 0, answered = 0;
  for (const auto& [name, count] : counts) {
    ++ops;
    cases += count.cases;
    answered += count.answered;
    if (std::getenv("MAGNETO_COVERAGE")) std::printf("%5d of %5d  %s\n", count.answered, count.cases, name.c_str());
  }
  std::printf("%d cases checked; %d calls of %d operators, %d answered\n", checked, cases, ops, answered);
  for (const auto& [name, count] : wrong) std::printf("wrong %5d  %s\n", count, name.c_str());

  // Every declared rule must be seen to answer something.
  for (const Op* op : all())
    EXPECT_TRUE(!op->type || counts[std::string(op->name)].answered > 0) << op->name << " answers no case";
}

// ---- the same with symbols ----------------------------------------------------------------------------------------

/// Puts a symbol in the place of every size from 2 on, one symbol for each number, also in lists of integers.
class Generaliser {
 public:
  std::vector<int64_t> values;  ///< of the symbols

  types::Expr operator()(const types::Expr& size) {
    const int64_t n = size.value_or(0);
    if (n < 2 || n > 1000) return size;
    const auto found = std::find(values.begin(), values.end(), n);
    if (found == values.end()) {
      values.push_back(n);
      return types::Expr::symbol(static_cast<uint32_t>(values.size() - 1));
    }
    return types::Expr::symbol(static_cast<uint32_t>(found - values.begin()));
  }
  types::TensorType operator()(types::TensorType type) {
    const bool plain = type.strides == types::contiguous_strides(type.sizes);
    for (types::Expr& size : type.sizes) size = (*this)(size);
    if (plain) type.strides = types::contiguous_strides(type.sizes);
    return type;
  }
};

types::TensorType evaluate(types::TensorType type, const std::vector<int64_t>& symbols) {
  for (types::Expr& size : type.sizes) size = size.evaluate(symbols);
  for (types::Expr& stride : type.strides) stride = stride.evaluate(symbols);
  type.offset = type.offset.evaluate(symbols);
  return type;
}

// What a rule says of symbols must be right for the numbers that they stand for.
TEST(ShapeRules, AnswerWithSymbolsWhatTheyAnswerWithNumbers) {
  const char* other = std::getenv("MAGNETO_CASES");
  std::ifstream file(other ? other : MAGNETO_TEST_DIR "/cases.txt");
  int answered = 0, wrong = 0;
  std::map<std::string, Count> counts;
  for (std::string line; std::getline(file, line);) {
    const Op* op = find(line.substr(0, line.find('(')));
    if (!op || !op->type || line.ends_with(" raises")) continue;
    Case one = read_case(line);
    graph::Graph symbolic;
    Generaliser generalise;
    for (const graph::ValueId id : one.graph.inputs()) symbolic.add_input(generalise(one.graph.value(id).type), "");
    if (generalise.values.empty()) continue;
    std::vector<graph::Arg> args = one.graph.nodes()[0].args;
    for (graph::Arg& arg : args)
      if (auto* list = std::get_if<types::Sizes>(&arg))
        for (types::Expr& size : *list)
          if (std::count(generalise.values.begin(), generalise.values.end(), size.value_or(-1)))
            size = generalise(size);
    for (size_t i = 0; i < generalise.values.size(); ++i)
      symbolic.conditions.push_back({2, types::Relation::kLe, types::Expr::symbol(static_cast<uint32_t>(i))});
    Count& count = counts[one.op];
    ++count.cases;
    const auto results = op->type(Call{args, &symbolic});
    if (!results) continue;
    std::vector<std::string> found;
    for (Result result : *results) {
      result.type = evaluate(result.type, generalise.values);
      found.push_back(print(result, one.graph, args));
    }
    ++answered;
    ++count.answered;
    if (found == one.results) continue;
    if (++wrong > 30) break;
    std::string text;
    for (const std::string& result : found) text += base::concat(text.empty() ? "" : ", ", result);
    ADD_FAILURE() << line << "\n  answered with symbols, and for these numbers that is " << text;
  }
  std::printf("%d answers with symbols\n", answered);
  if (std::getenv("MAGNETO_COVERAGE"))
    for (const auto& [name, count] : counts)
      std::printf("symbolic %5d of %5d  %s\n", count.answered, count.cases, name.c_str());
}

// The operators that 80 real models call, forward and backward.
TEST(ShapeRules, EveryOperatorOfTheCensusHasOne) {
  const std::set<std::string_view> without = {
      "aten::_local_scalar_dense",  // reads data
      "aten::_unique2",             // the size of its result is data
      "aten::nonzero",              // likewise
  };
  std::ifstream file(MAGNETO_TEST_DIR "/census.txt");
  ASSERT_TRUE(file);
  int seen = 0;
  for (std::string name; std::getline(file, name);) {
    if (name.empty() || name[0] == '#') continue;
    ++seen;
    const Op* op = find(name);
    ASSERT_TRUE(op) << name << " has no declaration";
    EXPECT_EQ(op->type == nullptr, without.contains(name)) << name;
  }
  EXPECT_EQ(seen, 184);
}

TEST(Ops, AreSortedAndDeclaredOnce) {
  const auto ops = all();
  for (size_t i = 1; i < ops.size(); ++i) EXPECT_LT(ops[i - 1]->name, ops[i]->name);
  for (const Op* op : ops) EXPECT_EQ(find(op->name), op);
  EXPECT_EQ(find("aten::no_such_operator"), nullptr);
}

TEST(Ops, WriteWhatTheirNameSays) {
  for (const Op* op : all()) {
    const std::string_view base = op->name.substr(0, op->name.find('.'));
    if (base.ends_with("_")) {
      ASSERT_EQ(op->writes.size(), 1u) << op->name;
      EXPECT_EQ(op->writes[0], 0) << op->name;
    }
  }
}

}  // namespace
}  // namespace magneto::ops
