#include "driver/compile.h"

#include <map>

#include "autograd/functionalise.h"
#include "autograd/verify_functional.h"
#include "base/check.h"
#include "base/text.h"
#include "base/violation.h"
#include "driver/assemble.h"
#include "driver/validate.h"
#include "graph/settle.h"
#include "loop/bounds.h"
#include "loop/text.h"
#include "lower/expand.h"
#include "lower/lower.h"

namespace magneto::driver {

namespace {

constexpr int64_t kAlone = 1 << 16;  ///< bytes of a temporary that are worth an allocation

plan::Signature signature_of(const lower::Lowered& lowered, const loop::Program& program, const Assembled& made) {
  plan::Signature signature;
  const auto place = [&](loop::BufferId id) { return id.valid() ? made.places[id.index()] : plan::BufferId(); };
  signature.types.resize(made.plan.buffers.size());
  for (size_t b = 0; b < program.buffers(); ++b) {
    const loop::Buffer& buffer = program.buffer(loop::BufferId(b));
    if (made.places[b].valid() && !buffer.of.valid()) signature.types[made.places[b].index()] = buffer.type;
  }
  for (const loop::BufferId id : lowered.inputs) signature.inputs.push_back(place(id));
  for (const loop::BufferId id : lowered.constants) signature.constants.push_back(place(id));
  for (const lower::Output& output : lowered.outputs)
    signature.outputs.push_back({place(output.buffer), output.type, output.is_itself});
  for (const lower::Store& store : lowered.stores)
    signature.stores.push_back({place(store.value), place(store.into), store.type});
  return signature;
}

/// Outputs share memory as functionalise says: a view that lowering made a tensor of its own would not.
void check_aliases(const autograd::Functional& functional, const lower::Lowered& lowered) {
  const std::vector<autograd::Alias>& aliases = functional.outputs;
  std::map<graph::ValueId, loop::BufferId> memory;
  for (size_t k = 0; k < aliases.size(); ++k) {
    if (aliases[k].kind != autograd::Alias::Kind::kView) continue;
    const loop::BufferId buffer = lowered.outputs[k].buffer;
    const bool same = buffer.valid() && memory.emplace(aliases[k].of, buffer).first->second == buffer;
    const bool outside = lowered.program.buffer(buffer).role == loop::Role::kIn;
    base::check(same && outside == functional.graph.comes_from_outside(aliases[k].of),
                "an output looks at the memory of another tensor in a way that sizes and strides do not tell");
  }
}

}  // namespace

std::unique_ptr<Compilation> compile(const graph::Graph& asked, const Request& request, Passes& passes) {
  auto made = std::make_unique<Compilation>();
  const graph::Graph graph = graph::settle(asked);
  autograd::Functional functional;
  Validator* const validator = request.validator;
  if (request.is_functional)
    functional.graph = graph;
  else
    passes.time("functionalise", [&] { functional = autograd::functionalise(graph, request.default_dtype); });
  base::check(functional.reason.empty(), functional.reason);
  // Sizes that are symbols: what is not known need not be wrong. The graph runs as operators then.
  const auto hold = [&](std::string_view stage, const std::vector<std::string>& broken) {
    if (broken.empty()) return;
    base::check(graph.conditions.empty(), "not proved for all sizes: ", stage, ": ", broken.front());
    throw base::Violation(base::concat(stage, ": ", broken.front()));
  };
  passes.verify([&] {
    hold("functionalise", request.is_functional
                              ? autograd::verify_functional(functional.graph, request.default_dtype)
                              : autograd::verify_functional(graph, functional, request.default_dtype));
  });
  if (validator) validator->graph("functionalise", functional.graph);
  passes.time("expand", [&] { made->functional = lower::expand(functional.graph, request.default_dtype); });
  passes.verify([&] { hold("expand", autograd::verify_functional(made->functional, request.default_dtype)); });
  if (validator) validator->graph("expand", made->functional);
  lower::Lowered lowered;
  if (validator)
    passes.validate = [&](std::string_view name, const loop::Program& p) { validator->loops(name, p, lowered); };
  const auto is_unproved = [&](const loop::Program& program, bool scheduled) {
    bool some = false;
    passes.verify([&] {
      some = call_instead(loop::unproved_places(program, graph.conditions), scheduled, made->functional, lowered,
                          made->unproved);
    });
    return some;
  };
  // What runs is proved. Only where that fails are the equations looked at, which name the operator that is to blame.
  for (bool doubts = false, done = false; !done;) {
    std::set<graph::NodeId> as_calls;
    for (const auto& [node, reason] : made->unproved) as_calls.insert(node);
    passes.time("lower",
                [&] { lowered = lower::lower(made->functional, request.default_dtype, request.device, as_calls); });
    check_aliases(functional, lowered);
    if (doubts && is_unproved(lowered.program, false)) continue;
    if (validator) validator->loops("lower", lowered.program, lowered);
    made->program = std::move(lowered.program);
    if (request.keeps_texts) made->equations = loop::print(made->program);
    try {
      schedule(made->program, passes, request.shape);
    } catch (const base::Violation&) {
      if (passes.each) throw;
      passes.each = true;  // once more, to name the pass
      continue;
    }
    if (doubts)
      done = !is_unproved(made->program, true);
    else
      passes.verify([&] { done = loop::unproved_places(made->program, graph.conditions).empty(); });
    doubts = true;
  }
  passes.time("assemble", [&] {
    Assembled assembled =
        assemble(made->program, {.device = request.device.kind, .memory = {.calls_make = true, .alone = kAlone}});
    made->signature = signature_of(lowered, made->program, assembled);
    made->plan = std::move(assembled.plan);
    made->plan.conditions = graph.conditions;
    made->units = std::move(assembled.units);
  });
  passes.verify([&] {
    hold("assemble", plan::verify(made->plan));
    std::vector<types::Condition> unproved;
    hold("assemble", plan::verify(made->plan, made->signature, &unproved));
    made->plan.conditions.insert(made->plan.conditions.end(), unproved.begin(), unproved.end());
  });
  passes.validate = nullptr;
  if (validator) validator->plan("assemble", made->plan, made->signature, made->units);
  return made;
}

}  // namespace magneto::driver
