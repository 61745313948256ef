// aten/trace.cpp: the door to the recorder, and who traces where.
#include "aten/trace.h"

#include <algorithm>
#include <bit>

#include "aten/convert_internal.h"
#include "aten/copying_internal.h"
#include "aten/custom_function.h"
#include "aten/early.h"
#include "aten/foreign_internal.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "aten/state_internal.h"
#include "aten/symbolic_key_internal.h"
#include "aten/symbols.h"
#include "aten/undo.h"
#include "base/check.h"
#include "graph/text.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

void add_once(std::vector<uint32_t>& list, uint32_t symbol) {
  if (std::find(list.begin(), list.end(), symbol) == list.end()) list.push_back(symbol);
}

/// The symbols of a graph: those of sizes and other ints, and those of floats.
void collect_symbols(const graph::Graph& graph, std::vector<uint32_t>& sizes, std::vector<uint32_t>& reals) {
  std::vector<uint32_t> found;
  const auto collect = [&](const types::Sizes& list) {
    for (const types::Expr& expr : list) expr.collect_symbols(found);
  };
  for (const graph::Value& value : graph.values()) {
    collect(value.type.sizes);
    collect(value.type.strides);
    value.type.offset.collect_symbols(found);
  }
  for (const graph::Node& node : graph.nodes())
    for (const graph::Arg& arg : node.args) {
      if (const auto* one = std::get_if<types::Expr>(&arg)) one->collect_symbols(found);
      if (const auto* list = std::get_if<types::Sizes>(&arg)) collect(*list);
      if (const auto* real = std::get_if<graph::Real>(&arg)) add_once(reals, real->symbol);
    }
  for (const uint32_t symbol : found) add_once(sizes, symbol);
}

thread_local Trace::State* this_threads_state = nullptr;

auto& entered_states() {  // guarded by links_mutex()
  static auto* states = new std::vector<Trace::State*>;
  return *states;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::atomic<WaitRunner> wait_runner{nullptr};

}  // namespace

void set_wait_runner(WaitRunner runner) { wait_runner = runner; }

void run_waiting(void (*work)(void*), void* argument) {
  if (WaitRunner runner = wait_runner)
    runner(work, argument);
  else
    work(argument);
}

Lock::Lock(Trace::State& state) : state_(state) {
  if (state.mutex.try_lock()) return;
  run_waiting([](void* mutex) { static_cast<std::recursive_mutex*>(mutex)->lock(); }, &state.mutex);
}

Trace::State* entered_state(std::shared_ptr<Trace::State>& keep) {
  if (this_threads_state) return this_threads_state;
  std::lock_guard<std::mutex> lock(links_mutex());
  if (entered_states().size() == 1) keep = entered_states()[0]->weak_from_this().lock();
  return keep.get();
}

void set_entered(Trace::State& state, bool entered) {
  this_threads_state = entered ? &state : nullptr;
  state.entered = entered;
  c10::impl::tls_set_dispatch_key_included(kTraceKey, entered);
  c10::impl::tls_set_dispatch_key_included(kForeignKey, entered);
  if (state.symbols) c10::impl::tls_set_dispatch_key_included(kSymbolicKey, entered);
  std::lock_guard<std::mutex> lock(links_mutex());
  if (entered)
    entered_states().push_back(&state);
  else
    std::erase(entered_states(), &state);
}

Trace::State::State(Trace& handle) : handle(&handle), id(next_id()) {}

Trace::State::~State() = default;

Trace::Trace() : state_(std::make_shared<State>(*this)) {}

Trace::Trace(std::shared_ptr<Symbols> symbols, const Trace& live) : Trace() {
  state_->symbols = std::move(symbols);
  state_->live = live.state_;
}

Trace::Trace(std::shared_ptr<Symbols> symbols, const graph::Graph& recorded) : Trace() {
  state_->symbols = std::move(symbols);
  state_->repeats_autograd = true;
  state_->live = std::make_shared<State>(*this);
  state_->live->graph = recorded;
  state_->live->values.resize(recorded.values().size());
  for (size_t v = 0; v < recorded.values().size(); ++v)
    state_->live->values[v].storage = static_cast<StorageIndex>(v);  // views are never looked up there
}

void Trace::repeat_node(size_t node) {
  Lock lock(*state_);
  state_->repeated = node;
}

Trace::~Trace() {
  if (state_->entered) leave();
  try {
    flush("end of the trace");
  } catch (...) {  // raised before, or not to be raised from here
  }
  std::lock_guard<std::mutex> lock(links_mutex());
  while (state_->links.first) state_->links.first->unlink_locked();
}

void Trace::enter() {
  base::check(!this_threads_state, "trace: this thread is in a trace already");
  meet_foreign_operators();
  set_entered(*state_, true);
}

void Trace::leave() {
  base::check(this_threads_state == state_.get(), "trace: left by a thread that did not enter it");
  set_entered(*state_, false);
}

bool Trace::entered() const { return state_->entered; }

void Trace::flush(std::string_view) {
  Lock lock(*state_);
  state_->run_recorded();
}

bool Trace::flush_without_effect() {
  Lock lock(*state_);
  const graph::Graph& graph = state_->graph;
  const Undo::Plan written = undo_plan(graph);
  if (!written.inputs.empty() || !written.is_complete) return false;
  for (const graph::Node& node : graph.nodes())
    if (operator_named(node.op).is_foreign) return false;
  try {
    state_->run_recorded();
  } catch (...) {  // the program meets it again
  }
  return state_->drawn.take_back();
}

void Trace::set_before_run(std::function<void()> release) {
  Lock lock(*state_);
  state_->before_run = std::move(release);
}

std::optional<ValueId> Trace::find(const at::Tensor& tensor) const {
  Lock lock(*state_);
  return state_->find(tensor);
}

bool Trace::made_here(const at::Tensor& tensor) const {
  if (!tensor.defined()) return false;
  const PendingImpl* pending = as_pending(tensor.unsafeGetTensorImpl());
  return pending && pending->made_by(state_->id);
}

bool Trace::has_known_data(const at::Tensor& tensor) const {
  Lock lock(*state_);
  const auto id = state_->find(tensor);
  return id && state_->storages[state_->values[id->index()].storage].known;
}

ValueId Trace::add_input(const at::Tensor& tensor, std::string name) {
  Lock lock(*state_);
  const char* odd = tensor.defined() ? not_plain(*tensor.unsafeGetTensorImpl()) : "an undefined tensor";
  base::check(!odd, "trace: ", odd ? odd : "", " cannot be an input of a graph");
  const ValueId value = state_->add_input(tensor, std::move(name));
  std::erase(state_->unclaimed, value);
  return value;
}

at::Tensor Trace::stand_in(const at::Tensor& tensor, types::Sizes sizes, types::Sizes strides, types::Expr offset,
                           std::string name) {
  Lock lock(*state_);
  types::TensorType type = type_of(*tensor.unsafeGetTensorImpl());
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  type.offset = std::move(offset);
  base::check(state_->symbols != nullptr, "trace: a stand-in outside a symbolic trace");
  return state_->make_stand_in(tensor, std::move(type), std::move(name));
}

at::Tensor Trace::stand_in(types::TensorType type, std::string name) {
  Lock lock(*state_);
  base::check(state_->symbols != nullptr, "trace: a stand-in outside a symbolic trace");
  return state_->make_stand_in(at::Tensor(), std::move(type), std::move(name));
}

ValueId Trace::add_constant(const at::Tensor& tensor) {
  Lock lock(*state_);
  return state_->add_outsider(tensor, state_->add_constant(tensor));
}

const at::Tensor& Trace::input_tensor(ValueId id) const {
  Lock lock(*state_);
  base::check(id.valid() && id.index() < state_->values.size(), "trace: no such value");
  return state_->values[id.index()].outsider;
}

std::vector<ValueId> Trace::take_unclaimed() {
  Lock lock(*state_);
  return std::exchange(state_->unclaimed, {});
}

bool Trace::has_unclaimed() const { return !state_->unclaimed.empty(); }

uint64_t Trace::data_reads() const { return state_->data_reads; }
const std::string& Trace::last_data_read() const { return state_->last_data_read; }
const std::string& Trace::last_refusal() const { return state_->last_refusal; }

void Trace::set_measures(Symbols* symbols, bool changes) {
  state_->measures = symbols;
  state_->measures_change = changes;
}

std::vector<Trace::Measure> Trace::take_measures() {
  const size_t first = std::exchange(state_->measures_told, state_->measured.size());
  return {state_->measured.begin() + static_cast<std::ptrdiff_t>(first), state_->measured.end()};
}

bool Trace::may_be_taken_back(const at::Tensor* read) const {
  const std::optional<ValueId> value = read ? find(*read) : std::nullopt;
  Lock lock(*state_);
  Reversible early;
  const Reversible* done = &state_->reversible;
  if (!state_->reversible.look(state_->graph)) {
    if (!read) return false;
    const std::vector<bool> needed = needed_by_reads(state_->graph, value.value_or(ValueId()));
    if (!early.look(state_->graph, &needed)) return false;
    done = &early;
  }
  const auto outsider = [&](ValueId input) -> const at::Tensor& { return state_->values[input.index()].outsider; };
  const std::vector<ValueId>& written = done->written();
  const bool writes_view = std::any_of(written.begin(), written.end(), [&](ValueId input) {
    return outsider(input).defined() && outsider(input).is_view();
  });
  if (!writes_view) return true;
  const std::span<const ValueId> inputs = state_->graph.inputs();
  return std::none_of(inputs.begin(), inputs.end(), [&](ValueId input) {  // the history of a view is its base's
    return outsider(input).defined() && outsider(input).requires_grad();
  });
}

Trace::Mark Trace::mark() const { return {state_->graph.nodes().size()}; }

void Trace::rewind(Mark mark) {
  Lock lock(*state_);
  state_->forget_nodes(mark.nodes);
}

Trace::EngineRun::EngineRun(Trace& trace) : state_(trace.state_) { state_->runs_engine = true; }
Trace::EngineRun::~EngineRun() { state_->runs_engine = false; }

Trace::Rehearsal::Rehearsal(Trace& trace) : trace_(trace), before_(trace.state_->rehearsed_from) {
  Lock lock(*trace_.state_);
  trace_.state_->rehearsed_from = static_cast<StorageIndex>(trace_.state_->storages.size());
}

Trace::Rehearsal::~Rehearsal() {
  Lock lock(*trace_.state_);
  trace_.state_->rehearsed_from = before_;
}

Trace::Part Trace::part(Mark since, const std::vector<ValueId>& given, const std::vector<ValueId>& outputs,
                        const std::vector<ValueId>& also) const {
  Lock lock(*state_);
  const graph::Graph& from = state_->graph;
  Copying copy(from);
  Part made;
  std::vector<bool> known(from.values().size());
  for (const ValueId id : given) {
    copy.add_input(id);
    known[id.index()] = true;
  }
  const auto is_given = [&](const graph::Node& node) {
    return node.outputs.size() == 1 && std::find(given.begin(), given.end(), node.outputs[0]) != given.end();
  };
  const auto read = [&](ValueId id) {
    if (!id.valid() || known[id.index()]) return;
    known[id.index()] = true;
    copy.add_input(id);
    copy.graph.value(copy.renamed.at(id)).name.clear();
    made.reads.push_back(id);
  };
  std::vector<const graph::Node*> nodes;
  for (size_t n = since.nodes; n < from.nodes().size(); ++n) {
    if (is_given(from.nodes()[n])) continue;
    nodes.push_back(&from.nodes()[n]);
    graph::for_each_read(*nodes.back(), read);
    for (const ValueId id : nodes.back()->outputs)
      if (id.valid()) known[id.index()] = true;
  }
  std::for_each(outputs.begin(), outputs.end(), read);
  std::for_each(also.begin(), also.end(), read);
  for (const graph::Node* node : nodes) copy.add_node(*node);
  for (const ValueId id : outputs) copy.graph.outputs.push_back(id.valid() ? copy.renamed.at(id) : ValueId());
  made.graph = graph::renumber(copy.graph);
  return made;
}

bool Trace::drop(Mark since) {
  Lock lock(*state_);
  return state_->drop_nodes(since.nodes);
}

bool Trace::holds(const graph::Graph& backward) {
  std::vector<uint32_t> sizes, reals;
  collect_symbols(backward, sizes, reals);
  return reals.size() <= CustomFunction::kMostReals;
}

void Trace::add_function(const CustomFunction& function, const std::vector<at::Tensor>& results,
                         const std::vector<ValueId>& inputs, const std::vector<ValueId>& saved,
                         const std::vector<int64_t>& numbers) {
  Lock lock(*state_);
  std::vector<uint32_t> sizes, reals;
  collect_symbols(function.backward, sizes, reals);
  base::check(reals.size() <= CustomFunction::kMostReals, "trace: a custom function with ", reals.size(), " floats");
  types::Sizes values, names;
  for (const uint32_t symbol : sizes) values.resize(std::max<size_t>(values.size(), symbol + 1));
  for (const uint32_t symbol : reals) values.resize(std::max<size_t>(values.size(), symbol + 1));
  for (const uint32_t symbol : sizes)
    values[symbol] = state_->symbols ? types::Expr::symbol(symbol) : types::Expr(numbers.at(symbol));
  std::vector<graph::Arg> args{function.name,
                               graph::print(function.backward),
                               function.once_differentiable,
                               function.checked,
                               std::vector<ValueId>(),
                               inputs,
                               saved,
                               std::move(values)};
  for (const uint32_t symbol : reals) names.emplace_back(static_cast<int64_t>(symbol));
  args.emplace_back(std::move(names));
  for (size_t r = 0; r < CustomFunction::kMostReals; ++r) {
    graph::Arg& number = args.emplace_back();
    if (r >= reals.size()) continue;
    if (state_->symbols)
      number = graph::Real{reals[r]};
    else
      number = std::bit_cast<double>(numbers.at(reals[r]));
  }
  std::vector<TensorPlace> places;
  std::vector<ValueId> outputs;
  for (const at::Tensor& result : results) {
    const ValueId id = *state_->find(result);
    std::get<std::vector<ValueId>>(args[CustomFunction::kResults]).push_back(id);
    places.push_back({result, CustomFunction::kResults, static_cast<int>(places.size())});
    const types::TensorType type = state_->graph.value(id).type;
    outputs.push_back(state_->add_value(type, state_->values[id.index()].storage));
  }
  std::vector<c10::IValue> boxed;
  const std::string name = CustomFunction::kOperator;
  const Operator& op = operator_named(name);
  for (size_t a = 0; a < args.size(); ++a)
    boxed.push_back(state_->symbols || std::holds_alternative<std::vector<ValueId>>(args[a])
                        ? c10::IValue()
                        : to_ivalue(args[a], op.arguments[a]));
  state_->add_call(op, std::move(args), std::move(boxed), places, outputs);
  for (size_t r = 0; r < results.size(); ++r) state_->rename(results[r], outputs[r]);
}

void Trace::set_place(std::string file, int line, std::string function) {
  Lock lock(*state_);
  state_->place = state_->graph.add_place({std::move(file), line, std::move(function)});
}

void Trace::set_checkpoint(uint32_t region) {
  Lock lock(*state_);
  state_->checkpoint = region;
}

const graph::Graph& Trace::graph() const { return state_->graph; }

std::shared_ptr<Program> Trace::finish(const std::vector<ValueId>& outputs, std::vector<ValueId>* inputs) const {
  Lock lock(*state_);
  base::check(state_->calls.empty(), "trace: finish with ", state_->calls.size(), " calls that were not run");
  graph::Graph whole = state_->graph;
  whole.outputs = outputs;
  if (state_->symbols) whole.conditions = state_->symbols->conditions();

  std::vector<bool> read(whole.values().size());
  for (ValueId output : outputs) read[output.index()] = true;
  for (const graph::Node& node : whole.nodes())
    graph::for_each_read(node, [&](ValueId value) { read[value.index()] = true; });
  std::vector<at::Tensor> constants;  // in the order in which compact keeps them
  for (size_t c = 0; c < whole.constants().size(); ++c)
    if (read[whole.constants()[c].index()]) constants.push_back(state_->constants[c]);

  std::vector<size_t> kept;
  graph::Graph compacted = graph::compact(whole, &kept);
  inputs->clear();
  for (size_t position : kept) inputs->push_back(whole.inputs()[position]);
  return std::make_shared<Program>(std::move(compacted), std::move(constants));
}

Trace* current_trace() { return this_threads_state ? this_threads_state->handle : nullptr; }

}  // namespace magneto::aten
