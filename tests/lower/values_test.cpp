// Every operator that lowers to equations against what torch computed: values.txt, written by make_values.py.
// MAGNETO_COVERAGE=1 prints the operators whose cases all stayed extern calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "autograd/functionalise.h"
#include "base/text.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "loop/bounds.h"
#include "loop/interpret.h"
#include "loop/semantics.h"
#include "loop/text.h"
#include "loop/verify.h"
#include "lower/expand.h"
#include "lower/lower.h"

namespace magneto::lower {
namespace {

using loop::BufferId;
using types::Dtype;

struct Case {
  std::string call;
  int64_t below = 0;
  std::vector<std::string> results;  ///< "f32[2, 3] 1 2 ...", or "undef"
};

std::vector<Case> read_cases() {
  std::ifstream file(MAGNETO_TEST_DIR "/values.txt");
  std::vector<Case> cases;
  int64_t below = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("below ")) {
      below = std::stoll(line.substr(6));
    } else if (line.starts_with("= ")) {
      cases.back().results.push_back(line.substr(2));
    } else {
      cases.push_back({line, below, {}});
      below = 0;
    }
  }
  return cases;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Types in the call become inputs; the results are those that torch gave, row-major.
graph::Graph graph_of(const Case& c) {
  std::string inputs, body;
  int count = 0;
  for (size_t i = 0; i < c.call.size();) {
    std::string_view rest = std::string_view(c.call).substr(i);
    const size_t before = rest.size();
    if ((i == 0 || !is_word(c.call[i - 1])) && is_word(c.call[i]) && types::take_tensor_type(rest)) {
      inputs += base::concat("in %", count, ": ", c.call.substr(i, before - rest.size()), "\n");
      body += base::concat("%", count++);
      i += before - rest.size();
    } else {
      body += c.call[i++];
    }
  }
  std::string made, out;
  std::vector<int> results;
  std::vector<std::string> types_of;
  size_t copies_made = 0;
  for (const std::string& result : c.results) {
    std::string_view text = result;
    const auto type = types::take_tensor_type(text);
    if (!made.empty()) made += ", ";
    made += type ? base::concat("%", count, ": ", to_string(*type)) : "_";
    if (!type) continue;
    results.push_back(count++);
    types_of.push_back(to_string(*type));
  }
  // through a copy, so that views are read, too
  std::string copies;
  for (const int id : results) {
    out += base::concat(out.empty() ? "out " : ", ", "%", count);
    copies +=
        base::concat("%", count++, ": ", types_of[copies_made++], " = aten::clone(%", id, ", contiguous_format)\n");
  }
  if (made.empty()) return graph::parse(base::concat("graph {\n", inputs, body, "\n}"));
  return graph::parse(base::concat("graph {\n", inputs, made, " = ", body, "\n", copies, out, "\n}"));
}

loop::Number filled(Dtype dtype, uint32_t s, uint32_t argument, int64_t below) {
  uint32_t h = s * 2654435761u + argument * 40503u + 12345u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  const int64_t draw = h >> 8;
  if (types::is_floating(dtype)) return loop::Number::of(static_cast<double>(draw % 4096) / 512 - 4);
  if (dtype == Dtype::kBool) return loop::Number::of_int(draw % 2);
  if (below) return loop::Number::of_int(draw % below);
  return loop::Number::of_int(draw % 7 - (dtype == Dtype::kU8 ? 0 : 3));
}

bool near(Dtype dtype, double expected, double found) {
  if (std::isnan(expected) || std::isnan(found)) return std::isnan(expected) && std::isnan(found);
  if (expected == found) return true;
  if (!types::is_floating(dtype) || std::isinf(expected)) return false;
  const double unit = dtype == Dtype::kBF16 ? 1.0 / 64 : dtype == Dtype::kF16 ? 1.0 / 400 : 2e-5;
  return std::fabs(expected - found) <= unit * std::max(1.0, std::fabs(expected));
}

/// "extern" when the call stays one, "" when all values agree, else the difference.
std::string check(const Case& c) {
  const autograd::Functional functional = autograd::functionalise(graph_of(c));
  // torch's kernel alone knows what comes out of that
  if (functional.reason.ends_with("writes to a tensor whose elements share places in memory")) return "extern";
  // results are written down as copies, whose strides are not those of the view
  if (functional.reason.ends_with("looks by strides at memory that is not known to be there")) return "extern";
  if (!functional.reason.empty()) return functional.reason;
  const graph::Graph graph = expand(functional.graph);
  const Lowered lowered = lower(graph);
  for (const loop::Equation& e : lowered.program.equations)
    if (e.kind == loop::Equation::Kind::kExtern) return "extern";
  for (const loop::Unproved& place : loop::unproved_places(lowered.program))
    return base::concat(place.what, ", in ", place.where);
  const auto broken = loop::verify(lowered.program);
  if (!broken.empty()) return broken[0];
  std::vector<std::vector<char>> memory;
  std::vector<void*> pointers;
  for (size_t b = 0; b < lowered.program.buffers(); ++b) {
    const types::TensorType& type = lowered.program.buffer(BufferId(b)).type;
    const size_t item = types::item_size(type.dtype), count = static_cast<size_t>(loop::storage_size(type, {}));
    memory.emplace_back(count * item + 8);
    if (b < lowered.inputs.size())
      for (size_t s = 0; s < count; ++s)
        loop::write(type.dtype, memory[b].data() + s * item,
                    filled(type.dtype, static_cast<uint32_t>(s), static_cast<uint32_t>(b), c.below));
  }
  for (auto& bytes : memory) pointers.push_back(bytes.data());
  if (!loop::interpret(lowered.program, {}, pointers)) return "a fault at run time";
  size_t next = 0;
  for (const std::string& result : c.results) {
    std::string_view text = result;
    const auto type = types::take_tensor_type(text);
    if (!type) continue;
    const Output& output = lowered.outputs[next++];
    std::istringstream numbers{std::string(text)};
    const int64_t count = types::numel(type->sizes).value_or(0);
    for (int64_t k = 0; k < count; ++k) {
      std::string word;
      numbers >> word;
      const loop::Number found = loop::read(
          type->dtype, memory[output.buffer.index()].data() + static_cast<size_t>(k) * types::item_size(type->dtype));
      const double expected = std::strtod(word.c_str(), nullptr);
      const double given = types::is_floating(type->dtype) ? found.real : static_cast<double>(found.whole);
      if (!near(type->dtype, expected, given))
        return base::concat("result ", next - 1, " element ", k, ": torch gives ", word, ", found ",
                            std::to_string(given), "\n", loop::print(lowered.program));
    }
  }
  return "";
}

TEST(Values, EveryOperatorComputesWhatTorchDoes) {
  const std::vector<Case> cases = read_cases();
  ASSERT_GT(cases.size(), 500u);
  std::map<std::string, std::pair<size_t, size_t>> counts;  // lowered, extern
  for (const Case& c : cases) {
    const std::string op = c.call.substr(0, c.call.find('('));
    std::string wrong;
    try {
      wrong = check(c);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    if (wrong == "extern")
      ++counts[op].second;
    else
      ++counts[op].first;
    if (wrong != "extern") {
      EXPECT_EQ(wrong, "") << c.call;
    }
  }
  size_t covered = 0;
  for (const auto& [op, count] : counts) {
    covered += count.first > 0;
    if (std::getenv("MAGNETO_COVERAGE") && count.second)
      std::cout << op << ": " << count.first << " lowered, " << count.second << " extern\n";
  }
  EXPECT_GE(covered, 200u) << "operators that lower to equations";
}

}  // namespace
}  // namespace magneto::lower
