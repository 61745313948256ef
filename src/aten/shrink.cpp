#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "aten/convert_internal.h"
#include "aten/generators_internal.h"
#include "aten/shrink_internal.h"

namespace magneto::aten {

using graph::Graph;
using graph::ValueId;

namespace {

/// The nodes that are `kept`, with these outputs; what the others made are inputs, as they are in `values`. Nothing:
/// one of them is not known there.
std::optional<Case> cut(const Case& at, const std::vector<bool>& kept, const std::vector<ValueId>& outputs,
                        const std::vector<at::Tensor>& values) {
  const Graph& from = at.graph;
  std::vector<bool> is_made(from.values().size()), is_input(from.values().size());
  const auto need = [&](ValueId id) {
    if (id.valid() && !is_made[id.index()]) is_input[id.index()] = true;
  };
  for (size_t n = 0; n < from.nodes().size(); ++n) {
    if (!kept[n]) continue;
    graph::for_each_read(from.nodes()[n], need);
    for (const ValueId output : from.nodes()[n].outputs)
      if (output.valid()) is_made[output.index()] = true;
  }
  for (const ValueId output : outputs) need(output);

  Graph made;
  Case result;
  std::vector<ValueId> renamed(from.values().size());
  for (const ValueId constant : from.constants()) is_input[constant.index()] = false;
  for (size_t v = 0; v < is_input.size(); ++v) {
    if (!is_input[v]) continue;
    if (!values[v].defined()) return std::nullopt;
    renamed[v] = made.add_input(from.values()[v].type, from.values()[v].name);
    result.inputs.push_back(values[v]);
  }
  for (const ValueId constant : from.constants())
    renamed[constant.index()] = made.add_constant(from.value(constant).type);
  const auto rename = [&](ValueId& id) {
    if (!id.valid()) return;
    if (!renamed[id.index()].valid()) renamed[id.index()] = made.add_value(from.value(id).type);
    id = renamed[id.index()];
  };
  for (size_t n = 0; n < from.nodes().size(); ++n) {
    if (!kept[n]) continue;
    graph::Node node = from.nodes()[n];
    for (graph::Arg& arg : node.args) {
      if (auto* one = std::get_if<ValueId>(&arg)) rename(*one);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
        for (ValueId& id : *list) rename(id);
    }
    for (ValueId& id : node.outputs) rename(id);
    node.place = made.add_place(from.places().at(node.place));
    made.add_node(std::move(node));
  }
  made.outputs = outputs;
  for (ValueId& id : made.outputs) rename(id);
  made.conditions = from.conditions;

  std::vector<size_t> kept_inputs, kept_constants;
  result.graph = graph::compact(made, &kept_inputs, &kept_constants);
  std::vector<at::Tensor> inputs;
  for (const size_t i : kept_inputs) inputs.push_back(result.inputs[i]);
  result.inputs = std::move(inputs);
  for (const size_t c : kept_constants) result.constants.push_back(at.constants[c]);
  result.symbols = at.symbols;
  result.number = at.number;
  result.random_on = random_devices(result.graph);
  for (const c10::Device device : result.random_on) {
    const auto known = std::find(at.random_on.begin(), at.random_on.end(), device);
    result.generators.push_back(at.generators[static_cast<size_t>(known - at.random_on.begin())]);
  }
  return result;
}

std::vector<at::Tensor> seeded_states(const std::vector<c10::Device>& devices) {
  std::vector<at::Tensor> states;
  for (const c10::Device device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(0);
    states.push_back(generator.get_state());
  }
  return states;
}

class Shrinking {
 public:
  Shrinking(const BuildAgain& build, std::chrono::steady_clock::time_point deadline)
      : build_(build), deadline_(deadline) {}

  bool is_late() const { return std::chrono::steady_clock::now() > deadline_; }

  /// In what words the two differ; empty: they do not. Nothing: it cannot be compiled or run, or it is late.
  std::optional<std::string> compare(const Case& at, const std::string& without = "") const try {
    if (is_late()) return std::nullopt;
    const auto program = std::make_shared<Program>(at.graph, at.constants);
    const std::shared_ptr<Executable> made = build_(program, at.inputs, without);
    if (made == program) return std::nullopt;
    const Sight eager = look(*program, at);
    if (eager.error) return std::nullopt;
    return difference(eager, look(*made, at), at);
  } catch (const std::exception&) {
    return std::nullopt;
  }

  /// Takes a smaller case when it differs, too.
  bool take(std::optional<Case> smaller) {
    if (!smaller || smaller->graph.outputs.empty()) return false;
    std::optional<std::string> words = compare(*smaller);
    if (!words || words->empty()) return false;
    at = std::move(*smaller);
    what = std::move(*words);
    return true;
  }

  void shorten() {
    const Case whole = at;
    size_t none = 0, some = whole.graph.nodes().size();
    while (some - none > 1) {
      const size_t middle = none + (some - none) / 2;
      (take(beginning(whole, middle)) ? some : none) = middle;
    }
    const Case begun = at;
    none = begun.graph.nodes().size();
    some = 0;
    while (none - some > 1) {
      const size_t middle = some + (none - some) / 2;
      (take(end(begun, middle)) ? some : none) = middle;
    }
  }

  void thin_out() {
    for (bool again = true; std::exchange(again, false);) {
      for (size_t o = 0; at.graph.outputs.size() > 1 && o < at.graph.outputs.size(); ++o)
        if (take(cut(at, std::vector<bool>(at.graph.nodes().size(), true), {at.graph.outputs[o]}, inputs_of(at))))
          break;
      std::vector<at::Tensor> values = values_of(at);
      for (size_t n = at.graph.nodes().size(); n-- > 0 && at.graph.nodes().size() > 1 && !is_late();) {
        std::vector<bool> kept(at.graph.nodes().size(), true);
        kept[n] = false;
        if (!take(cut(at, kept, outputs_of(at, kept), values))) continue;
        values = values_of(at);
        again = true;
      }
    }
  }

  /// Inputs without a history: they are easier to write down.
  void make_leaves() {
    Case simple = at;
    bool any = false;
    for (at::Tensor& input : simple.inputs)
      if (input.requires_grad() && !input.is_leaf()) {
        input = input.detach().set_requires_grad(true);
        any = true;
      }
    if (any) take(std::move(simple));
  }

  void take_seeds(std::vector<bool>& is_seeded) {
    is_seeded.assign(at.inputs.size(), false);
    const auto seeded = [&](const std::vector<bool>& which) {
      Case made = at;
      made.inputs = copies_of(at.inputs);
      at::AutoDispatchBelowADInplaceOrView below;
      for (size_t i = 0; i < which.size(); ++i) {
        if (!which[i]) continue;
        const at::Tensor& input = made.inputs[i];
        const auto count = static_cast<int64_t>(input.storage().nbytes() / input.element_size());
        at::Tensor all = at::empty({0}, input.options()).set_(input.storage(), 0, {count}, {1});
        const auto [low, high] = range_of(all);
        all.copy_(numbers_of_seed(i, count, input.scalar_type(), low, high));
      }
      return made;
    };
    // Memory that several inputs share is of the first.
    std::vector<bool> all(at.inputs.size(), true);
    for (size_t i = 0; i < at.inputs.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        if (at.inputs[i].storage().is_alias_of(at.inputs[k].storage())) all[i] = false;
    if (take(seeded(all))) {
      is_seeded = all;
      return;
    }
    for (size_t i = 0; i < at.inputs.size(); ++i) {
      if (!all[i]) continue;
      std::vector<bool> one(at.inputs.size(), false);
      one[i] = true;
      if (take(seeded(one))) is_seeded[i] = true;
    }
  }

  Case at;
  std::string what;

 private:
  static std::vector<at::Tensor> inputs_of(const Case& at) {
    std::vector<at::Tensor> values(at.graph.values().size());
    for (size_t i = 0; i < at.inputs.size(); ++i) values[at.graph.inputs()[i].index()] = at.inputs[i];
    return values;
  }

  /// Those that are still made, and what only nodes that are gone have read.
  static std::vector<ValueId> outputs_of(const Case& at, const std::vector<bool>& kept) {
    std::vector<bool> is_made(at.graph.values().size()), was_read(at.graph.values().size());
    std::vector<ValueId> outputs;
    for (size_t n = 0; n < kept.size(); ++n) {
      if (kept[n])
        for (const ValueId output : at.graph.nodes()[n].outputs) {
          if (output.valid()) is_made[output.index()] = true;
        }
      else
        graph::for_each_read(at.graph.nodes()[n], [&](ValueId id) { was_read[id.index()] = true; });
    }
    for (const ValueId output : at.graph.outputs)
      if (output.valid() && (is_made[output.index()] || at.graph.comes_from_outside(output))) outputs.push_back(output);
    for (size_t v = 0; v < was_read.size(); ++v)
      if (was_read[v] && is_made[v] && std::find(outputs.begin(), outputs.end(), ValueId(v)) == outputs.end())
        outputs.push_back(ValueId(v));
    return outputs;
  }

  static std::vector<bool> first_nodes(const Case& at, size_t count) {
    std::vector<bool> kept(at.graph.nodes().size());
    std::fill(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(count), true);
    return kept;
  }

  static std::optional<Case> beginning(const Case& at, size_t count) {
    const std::vector<bool> kept = first_nodes(at, count);
    return cut(at, kept, outputs_of(at, kept), inputs_of(at));
  }

  /// After the first `count` nodes, from what they leave in eager.
  static std::optional<Case> end(const Case& at, size_t count) {
    std::vector<bool> kept = first_nodes(at, count);
    const std::vector<ValueId> between = outputs_of(at, kept);
    Graph before = at.graph;
    before.truncate(count);
    before.outputs = between;
    Case state = at;
    {
      const GeneratorsAsTheyWere generators(at.random_on, at.generators);
      std::vector<at::Tensor> inputs = copies_of(at.inputs), taken = inputs;
      c10::SmallVector<at::Tensor, 8> outputs;
      if (Program(before, at.constants).run(taken, at.symbols, outputs).error) return std::nullopt;
      inputs.insert(inputs.end(), outputs.begin(), outputs.end());
      state.inputs = copies_of(inputs);
      state.generators = generator_states(at.random_on);
    }
    std::vector<at::Tensor> values(at.graph.values().size());
    for (size_t i = 0; i < at.inputs.size(); ++i) values[at.graph.inputs()[i].index()] = state.inputs[i];
    for (size_t o = 0; o < between.size(); ++o) values[between[o].index()] = state.inputs[at.inputs.size() + o];
    kept.flip();
    return cut(state, kept, at.graph.outputs, values);
  }

  const BuildAgain& build_;
  const std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

at::Tensor numbers_of_seed(uint64_t seed, int64_t count, c10::ScalarType dtype, int64_t low, int64_t high) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  if (c10::isComplexType(dtype)) return at::view_as_complex(at::randn({count, 2}, generator)).to(dtype);
  if (c10::isFloatingType(dtype)) return at::randn({count}, generator).to(dtype);
  return at::randint(low, high, {count}, generator, at::TensorOptions(at::kLong)).to(dtype);
}

std::pair<int64_t, int64_t> range_of(const at::Tensor& numbers) {
  if (!c10::isIntegralType(numbers.scalar_type(), /*includeBool=*/true) || numbers.numel() == 0) return {0, 2};
  const at::Tensor integers = numbers.to(at::kLong);
  constexpr int64_t kMost = int64_t{1} << 60;
  return {std::max(integers.min().item<int64_t>(), -kMost), std::min(integers.max().item<int64_t>(), kMost) + 1};
}

Shrunk shrink(Case at, std::string what, const BuildAgain& build, const std::vector<std::string>& passes,
              std::chrono::steady_clock::time_point deadline) {
  Shrinking work(build, deadline);
  work.at = at;
  work.what = std::move(what);
  Case fixed = at;
  fixed.graph = graph::evaluate(at.graph, at.symbols);
  fixed.symbols.clear();
  fixed.generators = seeded_states(at.random_on);
  Case seeded = at;
  seeded.generators = fixed.generators;
  Shrunk result;
  result.is_reproduced = work.take(std::move(fixed)) || work.take(std::move(seeded)) || work.take(std::move(at));
  if (result.is_reproduced) {
    work.shorten();
    work.thin_out();
    work.make_leaves();
    work.take_seeds(result.is_seeded);
    for (const std::string& pass : passes)
      if (result.pass.empty() && work.compare(work.at, pass) == "") result.pass = pass;
  }
  result.is_seeded.resize(work.at.inputs.size());
  result.at = std::move(work.at);
  result.what = std::move(work.what);
  return result;
}

}  // namespace magneto::aten
