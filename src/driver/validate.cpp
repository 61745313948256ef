// Floats may differ by rounding: loops are interpreted in double precision, torch rounds each result, kernels round
// where they store. What is compared is the difference relative to the largest number of the tensor; integers and bools
// must be equal, up to a few where half types are about: a comparison of two rounded numbers may turn over.
#include "driver/validate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "base/violation.h"
#include "codegen/abi.h"
#include "loop/interpret.h"
#include "loop/semantics.h"
#include "runtime/run.h"
#include "runtime/sort.h"

namespace magneto::driver {

namespace {

using loop::Dtype;
using loop::Number;
using types::Expr;
using types::TensorType;

constexpr int64_t kMostTerms = 40'000'000;  ///< of one stage: some seconds

TensorType evaluated(TensorType type, const std::vector<int64_t>& symbols) {
  for (Expr& e : type.sizes) e = e.evaluate(symbols);
  for (Expr& e : type.strides) e = e.evaluate(symbols);
  type.offset = type.offset.evaluate(symbols);
  return type;
}

size_t bytes_of(const TensorType& type) {
  return static_cast<size_t>(std::max<int64_t>(loop::storage_size(type, {}), 0)) * types::item_size(type.dtype);
}

/// Calls `visit` with the address of each element, in row-major order.
void for_each_element(const Sample& sample, const std::function<void(const char*)>& visit) {
  const size_t rank = sample.type.sizes.size(), item = types::item_size(sample.type.dtype);
  std::vector<int64_t> index(rank), sizes(rank), strides(rank);
  for (size_t d = 0; d < rank; ++d) {
    sizes[d] = sample.type.sizes[d].value_or(0);
    strides[d] = sample.type.strides[d].value_or(0);
    if (sizes[d] == 0) return;
  }
  while (true) {
    int64_t at = sample.type.offset.value_or(0);
    for (size_t d = 0; d < rank; ++d) at += index[d] * strides[d];
    base::check((static_cast<size_t>(at) + 1) * item <= sample.memory.size(), "validate: ", to_string(sample.type),
                " has too little memory");
    visit(sample.memory.data() + static_cast<size_t>(at) * item);
    size_t d = rank;
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

std::string text_of(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", number);
  return text.data();
}

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return 1e-7;
    case Dtype::kF16:
      return 2e-2;
    case Dtype::kBF16:
      return 1e-1;
    default:
      return 1e-3;
  }
}

/// "" when both are the same tensor, up to rounding.
std::string difference(const Sample& expected, const Sample& given, bool rounds) {
  if (expected.defined != given.defined) return given.defined ? "is defined" : "is undefined";
  if (!expected.defined) return "";
  if (expected.type.dtype != given.type.dtype || expected.type.sizes != given.type.sizes)
    return base::concat("is ", to_string(given.type), ", not ", to_string(expected.type));
  const Dtype dtype = expected.type.dtype;
  std::vector<const char*> a, b;
  for_each_element(expected, [&](const char* at) { a.push_back(at); });
  for_each_element(given, [&](const char* at) { b.push_back(at); });
  if (!loop::is_known(dtype)) {
    for (size_t k = 0; k < a.size(); ++k)
      if (std::memcmp(a[k], b[k], types::item_size(dtype)) != 0) return base::concat("differs at element ", k);
    return "";
  }
  const bool real = types::is_floating(dtype);
  double largest = 0;
  if (real)
    for (const char* at : a)
      if (const double value = std::fabs(loop::read(dtype, at).real); std::isfinite(value))
        largest = std::max(largest, value);
  size_t wrong = 0;
  std::string first;
  for (size_t k = 0; k < a.size(); ++k) {
    const Number x = loop::read(dtype, a[k]), y = loop::read(dtype, b[k]);
    const bool equal = real ? x.real == y.real || (x.real != x.real && y.real != y.real) ||
                                  std::fabs(x.real - y.real) <= tolerance(dtype) * largest
                            : x.whole == y.whole;
    if (equal || wrong++ > 0) continue;
    first = real ? base::concat("is ", text_of(y.real), " instead of ", text_of(x.real), " at element ", k)
                 : base::concat("is ", y.whole, " instead of ", x.whole, " at element ", k);
  }
  const size_t allowed = rounds ? a.size() / 50 : real ? 0 : a.size() / 1000;
  return wrong > allowed ? base::concat(first, ", one of ", wrong, " of ", a.size()) : "";
}

}  // namespace

struct Validator::State {
  Evaluator& evaluator;
  std::vector<Sample> inputs, constants;
  std::vector<int64_t> symbols;
  std::optional<std::pair<std::vector<Sample>, std::vector<Sample>>> expected;  ///< outputs, inputs after them
  std::string before;                                                           ///< the stage that they are of
  bool rounds = false;                                                          ///< half types are about
  bool too_long = false;                                                        ///< no loops any more
  std::vector<std::string> notes;

  void compare(std::string_view stage, std::vector<Sample> outputs, std::vector<Sample> after) {
    if (expected) {
      const auto all = [&](std::string_view what, const std::vector<Sample>& a, const std::vector<Sample>& b) {
        if (a.size() != b.size())
          throw base::Violation(base::concat(stage, ": gives ", b.size(), " ", what, "s instead of ", a.size()));
        for (size_t k = 0; k < a.size(); ++k)
          if (const std::string found = difference(a[k], b[k], rounds); !found.empty())
            throw base::Violation(base::concat(stage, ": ", what, " ", k, " ", found, "; before it: ", before));
      };
      all("output", expected->first, outputs);
      all("input", expected->second, after);
    }
    notes.push_back(base::concat(stage, expected ? ": the same" : ": run"));
    if (!expected) expected.emplace(std::move(outputs), std::move(after));
    before = stage;
  }

  void leave_out(std::string_view stage, const std::string& reason) {
    notes.push_back(base::concat(stage, ": not compared: ", reason));
  }

  /// Runs a stage; what keeps it from being run is no fault of it.
  void attempt(std::string_view stage, const std::function<void()>& run) {
    if (too_long) return leave_out(stage, "loops take too long to interpret");
    try {
      evaluator.begin();
      run();
    } catch (const base::Violation&) {
      throw;
    } catch (const loop::TooLong& reason) {
      too_long = true;
      leave_out(stage, reason.what());
    } catch (const std::exception& reason) {
      leave_out(stage, reason.what());
    }
  }

  /// An operator of torch on memory; results are put where `place` says.
  void call(const std::string& op, const std::string& arguments, const std::vector<TensorType>& types,
            const std::vector<const void*>& memory, const std::vector<TensorType>& result_types,
            const std::function<char*(size_t)>& place) {
    std::vector<Sample> reads;
    for (size_t k = 0; k < types.size(); ++k) {
      Sample sample{.type = evaluated(types[k], symbols), .memory = {}};
      sample.memory.resize(bytes_of(sample.type));
      if (!sample.memory.empty()) std::memcpy(sample.memory.data(), memory[k], sample.memory.size());
      reads.push_back(std::move(sample));
    }
    const std::vector<Sample> results = evaluator.call(op, arguments, reads, symbols);
    base::check(results.size() == result_types.size(), op, " gave ", results.size(), " tensors");
    for (size_t k = 0; k < results.size(); ++k) {
      Sample into{.type = evaluated(result_types[k], symbols), .memory = {}};
      base::check(into.type.sizes == results[k].type.sizes && into.type.dtype == results[k].type.dtype, op, " gave ",
                  to_string(results[k].type), " instead of ", to_string(into.type));
      into.memory.resize(bytes_of(into.type));
      std::vector<const char*> from;
      for_each_element(results[k], [&](const char* at) { from.push_back(at); });
      size_t next = 0;
      char* const memory_of = place(k);
      for_each_element(into, [&](const char* at) {
        std::memcpy(memory_of + (at - into.memory.data()), from[next++], types::item_size(into.type.dtype));
      });
    }
  }

  Sample copy_of(const TensorType& type, const void* memory, const TensorType& whole) const {
    Sample made{.type = evaluated(type, symbols), .memory = {}};
    made.memory.resize(std::max(bytes_of(made.type), bytes_of(evaluated(whole, symbols))));
    if (!made.memory.empty()) std::memcpy(made.memory.data(), memory, bytes_of(evaluated(whole, symbols)));
    return made;
  }
};

Validator::Validator(Evaluator& evaluator, std::vector<Sample> inputs, std::vector<Sample> constants,
                     std::vector<int64_t> symbols)
    : state_(new State{
          evaluator, std::move(inputs), std::move(constants), std::move(symbols), {}, {}, false, false, {}}) {}
Validator::~Validator() = default;

const std::vector<Sample>& Validator::inputs() const { return state_->inputs; }
const std::vector<int64_t>& Validator::symbols() const { return state_->symbols; }
const std::vector<std::string>& Validator::notes() const { return state_->notes; }

void Validator::graph(std::string_view stage, const graph::Graph& graph) {
  for (const graph::Value& value : graph.values()) state_->rounds |= loop::is_half(value.type.dtype);
  state_->attempt(stage, [&] {
    std::vector<Sample> inputs = state_->inputs;
    std::vector<Sample> outputs = state_->evaluator.run(graph, state_->symbols, inputs);
    state_->compare(stage, std::move(outputs), std::move(inputs));
  });
}

void Validator::results(std::string_view stage, const std::vector<Sample>& outputs, const std::vector<Sample>& inputs) {
  state_->compare(stage, outputs, inputs);
}

namespace {

/// The memory of a run: of buffers that are tensors of the caller, and what is stored to them at the end.
struct Memory {
  std::vector<std::vector<char>> own;
  std::vector<void*> at;
};

/// Puts the elements of one tensor into another of the same sizes.
void store(Sample& into, const TensorType& part, const Sample& value) {
  Sample target{.type = part, .memory = {}};
  target.memory.swap(into.memory);
  std::vector<const char*> from;
  for_each_element(value, [&](const char* at) { from.push_back(at); });
  size_t next = 0;
  for_each_element(target, [&](const char* at) {
    std::memcpy(target.memory.data() + (at - target.memory.data()), from[next++], types::item_size(part.dtype));
  });
  into.memory.swap(target.memory);
}

}  // namespace

void Validator::loops(std::string_view stage, const loop::Program& program, const lower::Lowered& lowered) {
  State& s = *state_;
  s.attempt(stage, [&] {
    std::vector<Sample> inputs = s.inputs;
    Memory memory;
    memory.own.resize(program.buffers());
    memory.at.resize(program.buffers());
    const auto give = [&](loop::BufferId id, const Sample& sample) {
      if (id.valid()) memory.own[id.index()] = sample.memory;
    };
    for (size_t k = 0; k < lowered.inputs.size(); ++k) give(lowered.inputs[k], inputs[k]);
    for (size_t k = 0; k < lowered.constants.size(); ++k) give(lowered.constants[k], s.constants[k]);
    for (size_t b = 0; b < program.buffers(); ++b) {
      const loop::Buffer& buffer = program.buffer(loop::BufferId(b));
      if (buffer.of.valid() || buffer.role == loop::Role::kRow) continue;
      memory.own[b].resize(std::max(memory.own[b].size(), bytes_of(evaluated(buffer.type, s.symbols))) + 8);
      memory.at[b] = memory.own[b].data();
    }
    loop::Interpretation how;
    how.most = kMostTerms;
    how.call_extern = [&](const loop::Equation& e, const std::vector<void*>& at) {
      std::vector<TensorType> types, results;
      std::vector<const void*> reads;
      for (const loop::BufferId id : e.reads) {
        types.push_back(program.buffer(id).type);
        reads.push_back(at[id.index()]);
      }
      for (const loop::BufferId id : e.writes) results.push_back(program.buffer(id).type);
      s.call(e.callee, e.arguments, types, reads, results,
             [&](size_t k) { return static_cast<char*>(at[e.writes[k].index()]); });
    };
    if (!loop::interpret(program, s.symbols, memory.at, how)) return s.leave_out(stage, "a position is out of range");
    const auto sample = [&](loop::BufferId id, const TensorType& type) {
      return s.copy_of(type, memory.at[id.index()], program.buffer(id).type);
    };
    for (const lower::Store& one : lowered.stores)
      for (size_t k = 0; k < lowered.inputs.size(); ++k)
        if (lowered.inputs[k] == one.into)
          store(inputs[k], evaluated(one.type, s.symbols), sample(one.value, program.buffer(one.value).type));
    std::vector<Sample> outputs;
    for (const lower::Output& out : lowered.outputs) {
      if (!out.buffer.valid()) {
        outputs.push_back({.memory = {}, .defined = false});
        continue;
      }
      outputs.push_back(sample(out.buffer, out.type));
      for (size_t k = 0; k < lowered.inputs.size(); ++k)  // an input as it is after the stores
        if (lowered.inputs[k] == out.buffer) outputs.back().memory = inputs[k].memory;
    }
    s.compare(stage, std::move(outputs), std::move(inputs));
  });
}

namespace {

/// Kernels by the interpreter.
class Interpreting final : public runtime::Launcher {
 public:
  Interpreting(const plan::Plan& plan, const std::vector<codegen::Unit>& units, const std::vector<int64_t>& symbols)
      : plan_(plan), symbols_(symbols) {
    for (const codegen::Unit& unit : units) units_[unit.name] = &unit;
  }
  int scratch_copies(const runtime::Environment&) const override { return 1; }
  void launch(const Launch& l) const override {
    const plan::Step& step = plan_.steps[l.step];
    const auto found = units_.find(step.name);
    base::check(found != units_.end(), "validate: nobody has kernel ", step.name);
    const codegen::Unit& unit = *found->second;
    std::vector<void*> memory(unit.program->buffers());
    const std::vector<loop::BufferId> arguments = codegen::arguments_of(*unit.program, *unit.kernel);
    for (size_t k = 0; k < arguments.size(); ++k) {
      const loop::BufferId own = arguments[k], storage = unit.program->storage(own);
      memory[own.index()] = memory[storage.index()] = l.place[step.buffers[k].index()];
    }
    loop::Interpretation how;
    how.most = kMostTerms;
    if (!loop::interpret(*unit.program, *unit.kernel, symbols_, memory, how)) *l.fault = 1;
  }

 private:
  const plan::Plan& plan_;
  const std::vector<int64_t>& symbols_;
  std::map<std::string, const codegen::Unit*> units_;
};

}  // namespace

void Validator::plan(std::string_view stage, const plan::Plan& plan, const plan::Signature& signature,
                     const std::vector<codegen::Unit>& units) {
  State& s = *state_;
  s.attempt(stage, [&] {
    std::vector<Sample> inputs = s.inputs;
    Memory memory;
    memory.own.resize(plan.buffers.size());
    memory.at.resize(plan.buffers.size());
    const auto give = [&](plan::BufferId id, const Sample& sample) {
      if (id.valid()) memory.own[id.index()] = sample.memory;
    };
    for (size_t k = 0; k < signature.inputs.size(); ++k) give(signature.inputs[k], inputs[k]);
    for (size_t k = 0; k < signature.constants.size(); ++k) give(signature.constants[k], s.constants[k]);
    const auto room = [&](plan::BufferId id) {
      std::vector<char>& own = memory.own[id.index()];
      own.resize(std::max(own.size(), bytes_of(evaluated(signature.types[id.index()], s.symbols))) + 8);
      return memory.at[id.index()] = own.data();
    };
    for (size_t b = 0; b < plan.buffers.size(); ++b)
      if (plan.buffers[b].place != plan::Place::kTemp) room(plan::BufferId(b));
    const runtime::Runner runner(plan, [&](const plan::Plan& own) -> std::unique_ptr<runtime::Launcher> {
      return std::make_unique<Interpreting>(own, units, s.symbols);
    });
    runtime::Environment with;
    with.call = [&](const plan::Step& step, void** buffers, const std::vector<int64_t>&) {
      if (step.name == "magneto::sort") return runtime::sort(step, buffers, s.symbols);
      std::vector<TensorType> types, results;
      for (const plan::BufferId id : step.reads) types.push_back(signature.types[id.index()]);
      for (const plan::BufferId id : step.writes) results.push_back(signature.types[id.index()]);
      s.call(step.name, step.arguments, types, std::vector<const void*>(buffers, buffers + step.reads.size()), results,
             [&](size_t k) { return static_cast<char*>(buffers[step.reads.size() + k]); });
    };
    const runtime::Outcome outcome = runner.run(memory.at, s.symbols, with);
    if (outcome != runtime::Outcome::kDone)
      return s.leave_out(
          stage, outcome == runtime::Outcome::kFault ? "a position is out of range" : "a condition does not hold");
    const auto sample = [&](plan::BufferId id, const TensorType& type) {
      return s.copy_of(type, memory.at[id.index()], signature.types[id.index()]);
    };
    const auto input_of = [&](plan::BufferId id) {
      return std::find(signature.inputs.begin(), signature.inputs.end(), id) - signature.inputs.begin();
    };
    for (const plan::Signature::Store& one : signature.stores)
      store(inputs[static_cast<size_t>(input_of(one.into))], evaluated(one.type, s.symbols),
            sample(one.value, signature.types[one.value.index()]));
    std::vector<Sample> outputs;
    for (const plan::Signature::Output& out : signature.outputs) {
      if (!out.buffer.valid()) {
        outputs.push_back({.memory = {}, .defined = false});
        continue;
      }
      outputs.push_back(sample(out.buffer, out.type));
      if (const auto k = static_cast<size_t>(input_of(out.buffer)); k < inputs.size())
        outputs.back().memory = inputs[k].memory;
    }
    s.compare(stage, std::move(outputs), std::move(inputs));
  });
}

// ---- data ----------------------------------------------------------------------------------------------------------

std::vector<Sample> random_samples(const std::vector<TensorType>& types, const std::vector<int64_t>& symbols,
                                   unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Sample> made;
  for (const TensorType& type : types) {
    Sample sample{.type = evaluated(type, symbols), .memory = {}};
    sample.memory.resize(bytes_of(sample.type));
    const size_t item = types::item_size(type.dtype);
    if (loop::is_known(type.dtype))
      for (size_t at = 0; at + item <= sample.memory.size(); at += item)
        loop::write(type.dtype, sample.memory.data() + at, {normal(random), static_cast<int64_t>(random() % 2)});
    made.push_back(std::move(sample));
  }
  return made;
}

// The symbols that are floats.
static std::vector<uint32_t> reals_of(const graph::Graph& graph) {
  std::vector<uint32_t> found;
  for (const graph::Node& node : graph.nodes())
    for (const graph::Arg& arg : node.args)
      if (const auto* real = std::get_if<graph::Real>(&arg)) found.push_back(real->symbol);
  return found;
}

static std::vector<uint32_t> symbols_of(const graph::Graph& graph) {
  std::vector<uint32_t> used;
  const auto collect = [&](const TensorType& type) {
    for (const Expr& e : type.sizes) e.collect_symbols(used);
    for (const Expr& e : type.strides) e.collect_symbols(used);
    type.offset.collect_symbols(used);
  };
  for (const graph::Value& value : graph.values()) collect(value.type);
  for (const graph::Node& node : graph.nodes())
    for (const graph::Arg& arg : node.args) {
      if (const auto* one = std::get_if<Expr>(&arg)) one->collect_symbols(used);
      if (const auto* list = std::get_if<types::Sizes>(&arg))
        for (const Expr& e : *list) e.collect_symbols(used);
    }
  for (const types::Condition& c : graph.conditions) {
    c.left.collect_symbols(used);
    c.right.collect_symbols(used);
  }
  const std::vector<uint32_t> reals = reals_of(graph);
  used.insert(used.end(), reals.begin(), reals.end());
  return used;
}

bool know_all(const graph::Graph& graph, const std::vector<int64_t>& symbols) {
  for (const uint32_t symbol : symbols_of(graph))
    if (symbol >= symbols.size() || symbols[symbol] < 0) return false;
  return std::all_of(graph.conditions.begin(), graph.conditions.end(), [&](const types::Condition& c) {
    try {
      return c.holds(symbols);
    } catch (const base::Fault&) {
      return false;  // a division by zero
    }
  });
}

std::vector<int64_t> small_symbols(const graph::Graph& graph) {
  const std::vector<uint32_t> used = symbols_of(graph);
  if (used.empty()) return {};
  std::vector<int64_t> values(*std::max_element(used.begin(), used.end()) + 1);
  const std::vector<uint32_t> reals = reals_of(graph);
  std::mt19937 random(11);
  for (int turn = 0; turn < 20000; ++turn) {
    const int64_t most = 3 + turn / 500;
    for (int64_t& value : values) value = 2 + static_cast<int64_t>(random() % static_cast<unsigned>(most));
    for (const uint32_t real : reals)
      values[real] = std::bit_cast<int64_t>(static_cast<double>(1 + random() % 1000) / 512);
    if (know_all(graph, values)) return values;
  }
  return {};
}

}  // namespace magneto::driver
