// A buffer is named after the value it holds (v12), so a kernel's operators are found in the graph: from the values it
// makes back to the values that it reads from memory.
#include "driver/notes.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "ops/op.h"

namespace magneto::driver {

namespace {

using graph::ValueId;

class Notes {
 public:
  explicit Notes(const Compilation& made) : made_(made), graph_(made.functional) {}

  base::CodeNote run() {
    for (size_t b = 0; b < made_.plan.buffers.size(); ++b) {
      const ValueId value = value_of(made_.plan.buffers[b].name);
      values_.push_back(value);
      if (value.valid()) in_memory_.insert(value);
    }
    for (const plan::Step& step : made_.plan.steps) {
      if (step.kind == plan::Step::Kind::kRun)
        kernel(step);
      else
        call(step);
      for (const auto* list : {&step.reads, &step.writes})
        for (const plan::BufferId id : *list) seen_.insert(id);
    }
    note_.bytes_before = bytes_of_operators();
    note_.bytes_after = bytes_of_steps();
    return std::move(note_);
  }

 private:
  ValueId value_of(const std::string& buffer) const {  // v12, v12_new, v12_0
    size_t number = 0;
    if (buffer.empty() || buffer[0] != 'v') return {};
    const auto read = std::from_chars(buffer.data() + 1, buffer.data() + buffer.size(), number);
    if (read.ec != std::errc() || number >= graph_.values().size()) return {};
    const ValueId id(number);
    if (!std::string_view(read.ptr).starts_with("_new")) return id;
    for (const graph::Store& store : graph_.stores)
      if (store.into == id) return store.value;
    return {};
  }

  base::Line line(const graph::Node& node) const {
    const graph::Place& place = graph_.places()[node.place];
    return {place.file, place.line, place.function};
  }

  void kernel(const plan::Step& step) {
    const auto found = std::find_if(note_.kernels.begin(), note_.kernels.end(),
                                    [&](const base::KernelNote& k) { return k.name == step.name; });
    base::KernelNote& note = found != note_.kernels.end() ? *found : note_.kernels.emplace_back();
    const bool first = note.runs++ == 0;
    note.name = step.name;
    std::set<ValueId> visited;
    std::vector<ValueId> stack;
    for (const plan::BufferId id : step.writes)
      if (const ValueId value = values_[id.index()]; !seen_.contains(id) && value.valid()) stack.push_back(value);
    const std::set<ValueId> made(stack.begin(), stack.end());
    while (!stack.empty()) {
      const ValueId value = stack.back();
      stack.pop_back();
      if (!visited.insert(value).second || (in_memory_.contains(value) && !made.contains(value))) continue;
      const graph::NodeId maker = graph_.value(value).maker;
      if (!maker.valid()) continue;
      const graph::Node& node = graph_.node(maker);
      const ops::Op* op = ops::find(node.op);
      if (first && !(op && op->view)) note.operators.push_back(node.op);
      const base::Line where = line(node);
      if (!where.file.empty() && std::find(note.lines.begin(), note.lines.end(), where) == note.lines.end())
        note.lines.push_back(where);
      graph::for_each_read(node, [&](ValueId read) {
        if (read.valid()) stack.push_back(read);
      });
    }
    std::reverse(note.operators.begin(), note.operators.end());
    std::sort(note.lines.begin(), note.lines.end(), [](const base::Line& a, const base::Line& b) {
      return std::tie(a.file, a.line) < std::tie(b.file, b.line);
    });
  }

  static std::string reason_of(const std::string& name) {
    const ops::Op* op = ops::find(name);
    if (name == "magneto::sort") return "sorted by the runtime";
    if (!op) return "the operator is not declared in ops/";
    if (op->random) return "torch's generator draws the random numbers";
    if (op->body || op->equation || op->expand) return "its loop form does not cover these arguments";
    if (op->view) return "sizes and strides do not tell what it looks at";
    static const std::set<std::string_view> kLibraries = {
        "aten::mm",    "aten::bmm",   "aten::addmm", "aten::baddbmm",     "aten::addbmm",
        "aten::mv",    "aten::addmv", "aten::dot",   "aten::convolution", "aten::convolution_backward",
        "aten::linear"};
    if (kLibraries.contains(name)) return "a library computes it best";
    if (name.find("attention") != std::string::npos) return "torch has a fused kernel for it";
    return "it has no loop form";
  }

  void call(const plan::Step& step) {
    base::CallNote note{step.name, {}, reason_of(step.name)};
    for (const plan::BufferId id : step.writes)
      if (const ValueId value = values_[id.index()]; value.valid() && graph_.value(value).maker.valid()) {
        const graph::NodeId maker = graph_.value(value).maker;
        note.where = line(graph_.node(maker));
        if (const auto found = made_.unproved.find(maker); found != made_.unproved.end()) note.reason = found->second;
      }
    note_.calls.push_back(std::move(note));
  }

  static int64_t bytes_of(const types::TensorType& type) {
    const auto count = types::numel(type.sizes).constant();
    return count ? *count * static_cast<int64_t>(types::item_size(type.dtype)) : -1;
  }
  /// -1 as soon as one is unknown.
  static void add(int64_t& sum, int64_t bytes) { sum = sum < 0 || bytes < 0 ? -1 : sum + bytes; }

  int64_t bytes_of_operators() const {
    int64_t sum = 0;
    for (const graph::Node& node : graph_.nodes()) {
      const ops::Op* op = ops::find(node.op);
      if (op && op->view) continue;
      graph::for_each_read(node, [&](ValueId id) {
        if (id.valid()) add(sum, bytes_of(graph_.value(id).type));
      });
      for (const ValueId id : node.outputs)
        if (id.valid()) add(sum, bytes_of(graph_.value(id).type));
    }
    return sum;
  }
  int64_t bytes_of_steps() const {
    int64_t sum = 0;
    for (const plan::Step& step : made_.plan.steps)
      for (const auto* list : {&step.reads, &step.writes})
        for (const plan::BufferId id : *list) add(sum, bytes_of(made_.signature.types[id.index()]));
    return sum;
  }

  const Compilation& made_;
  const graph::Graph& graph_;
  std::vector<ValueId> values_;  ///< of buffers
  std::set<ValueId> in_memory_;
  std::set<plan::BufferId> seen_;
  base::CodeNote note_;
};

}  // namespace

base::CodeNote describe(const Compilation& made, const Passes& passes) {
  base::CodeNote note = Notes(made).run();
  for (const PassTime& time : passes.times()) note.times.emplace_back(time.name, time.seconds);
  return note;
}

}  // namespace magneto::driver
