#include "aten/early.h"

#include <algorithm>
#include <unordered_map>

#include "aten/operators_internal.h"
#include "aten/reading.h"

namespace magneto::aten {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

template <class Meet>
void each_value(const Arg& arg, const Meet& meet) {
  if (const auto* one = std::get_if<ValueId>(&arg); one && one->valid()) meet(*one);
  if (const auto* list = std::get_if<std::vector<ValueId>>(&arg))
    for (const ValueId value : *list)
      if (value.valid()) meet(value);
}

/// What the nodes of a graph read and write: memory, symbols, and the state of generators. Each is a number.
class Accesses {
 public:
  struct Of {
    std::vector<uint32_t> reads, writes;
  };

  /// `read_at` as make_reading has it: symbols that are computed of others.
  explicit Accesses(const Graph& graph, std::span<const size_t> read_at = {})
      : read_at_(read_at), values_(graph.values().size()), root_(values_) {
    for (uint32_t v = 0; v < values_; ++v) root_[v] = v;
    for (const Node& node : graph.nodes()) {
      const Operator& op = operator_named(node.op);
      for (size_t a = 0; a < node.args.size(); ++a)
        if (op.aliases[a])
          each_value(node.args[a], [&](ValueId value) {
            for (const ValueId output : node.outputs)
              if (output.valid()) join(value, output);
          });
    }
    for (const Node& node : graph.nodes()) {
      nodes_.push_back(of(node));
      if (is_read(node)) nodes_.back().writes.push_back(place_of(reads_++));
    }
  }

  const Of& operator[](size_t node) const { return nodes_[node]; }
  uint32_t memory(ValueId value) const {
    auto at = static_cast<uint32_t>(value.index());
    while (root_[at] != at) at = root_[at];
    return at;
  }

 private:
  void join(ValueId a, ValueId b) { root_[memory(b)] = memory(a); }

  // After the values there is the state of all generators, and then symbols and places in the row of all reads.
  uint32_t drawing() const { return static_cast<uint32_t>(values_); }
  uint32_t symbol(uint32_t number) const { return drawing() + 1 + 2 * number; }
  uint32_t place_of(size_t read) const { return drawing() + 2 + 2 * static_cast<uint32_t>(read); }

  Of of(const Node& node) const {
    const Operator& op = operator_named(node.op);
    Of found;
    std::vector<uint32_t> symbols;
    for (size_t a = 0; a < node.args.size(); ++a) {
      each_value(node.args[a],
                 [&](ValueId value) { (op.writes[a] ? found.writes : found.reads).push_back(memory(value)); });
      if (const auto* number = std::get_if<types::Expr>(&node.args[a])) number->collect_symbols(symbols);
      if (const auto* numbers = std::get_if<std::vector<types::Expr>>(&node.args[a]))
        for (const types::Expr& number : *numbers) number.collect_symbols(symbols);
      if (const auto* real = std::get_if<graph::Real>(&node.args[a])) symbols.push_back(real->symbol);
    }
    for (const uint32_t number : symbols) {
      found.reads.push_back(symbol(number));
      if (number < read_at_.size() && read_at_[number] > 0) found.reads.push_back(place_of(read_at_[number] - 1));
    }
    if (is_read(node))  // it gives them their values
      for (const types::Expr& number : std::get<std::vector<types::Expr>>(node.args.back()))
        found.writes.push_back(symbol(static_cast<uint32_t>(number.value_or(0))));
    for (const ValueId output : node.outputs)
      if (output.valid()) found.writes.push_back(memory(output));
    if (op.random || op.is_foreign) found.writes.push_back(drawing());
    return found;
  }

  const std::span<const size_t> read_at_;
  const size_t values_;
  size_t reads_ = 0;
  std::vector<uint32_t> root_;
  std::vector<Of> nodes_;
};

/// What a set of nodes reads and writes, from the end of a graph on.
class Closure {
 public:
  void add(const Accesses::Of& of) {
    for (const uint32_t what : of.reads) touch(what, kReads);
    for (const uint32_t what : of.writes) touch(what, kWrites);
  }
  void read(uint32_t what) { touch(what, kReads); }
  /// It may not come after what stands in the set.
  bool needs(const Accesses::Of& of) const {
    const auto has = [&](uint32_t what, unsigned char how) { return what < touched_.size() && touched_[what] & how; };
    return std::any_of(of.writes.begin(), of.writes.end(),
                       [&](uint32_t what) { return has(what, kReads | kWrites); }) ||
           std::any_of(of.reads.begin(), of.reads.end(), [&](uint32_t what) { return has(what, kWrites); });
  }

 private:
  static constexpr unsigned char kReads = 1, kWrites = 2;
  void touch(uint32_t what, unsigned char how) {
    if (touched_.size() <= what) touched_.resize(what + 1);
    touched_[what] |= how;
  }
  std::vector<unsigned char> touched_;
};

std::vector<size_t> numbers_of_reads(const Graph& graph) {
  std::vector<size_t> reads;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (is_read(graph.nodes()[n])) reads.push_back(n);
  return reads;
}

/// Of the nodes before `end`: those that are such ones, and all that they and the set need.
template <class IsSuch>
std::vector<bool> closed(const Accesses& accesses, size_t end, Closure closure, const IsSuch& is_such) {
  std::vector<bool> needed(end);
  for (size_t n = end; n-- > 0;) {
    if (!is_such(n) && !closure.needs(accesses[n])) continue;
    needed[n] = true;
    closure.add(accesses[n]);
  }
  return needed;
}

/// What any number needs that is read.
std::vector<bool> needed_by_reads(const Graph& graph, const Accesses& accesses, const Closure& closure) {
  return closed(accesses, graph.nodes().size(), closure, [&](size_t n) { return is_read(graph.nodes()[n]); });
}

Closure of_value(const Accesses& accesses, ValueId value) {
  Closure closure;
  if (value.valid()) closure.read(accesses.memory(value));
  return closure;
}

}  // namespace

std::vector<bool> needed_by_reads(const Graph& graph, ValueId value) {
  const Accesses accesses(graph);
  return needed_by_reads(graph, accesses, of_value(accesses, value));
}

bool is_apart_from_reads(const Graph& graph, ValueId value) {
  const Accesses accesses(graph);
  const std::vector<bool> of_reads = needed_by_reads(graph, accesses, {});
  const std::vector<bool> own =
      closed(accesses, graph.nodes().size(), of_value(accesses, value), [](size_t) { return false; });
  const std::vector<size_t> reads = numbers_of_reads(graph);
  const auto after = own.begin() + static_cast<std::ptrdiff_t>(reads.empty() ? 0 : reads.back());
  if (std::find(after, own.end(), true) == own.end()) return true;
  for (size_t n = 0; n < own.size(); ++n)
    if (own[n] && of_reads[n]) return false;
  return true;
}

std::optional<EarlyReads> with_early_reads(const Graph& graph, std::span<const size_t> read_at) {
  const std::vector<size_t> reads = numbers_of_reads(graph);
  const auto is_size = [&](size_t n) { return graph.nodes()[n].op == kReadSize; };
  if (reads.empty() || std::any_of(reads.begin(), reads.end(), is_size)) return std::nullopt;
  const Accesses accesses(graph, read_at);
  std::vector<size_t> order, row;  // row: reads that stand side by side
  std::vector<bool> placed(graph.nodes().size());
  const auto place = [&](size_t n) {
    if (!placed[n]) order.push_back(n);
    placed[n] = true;
  };
  const auto end_row = [&] {
    for (const size_t n : row) place(n);
    row.clear();
  };
  for (const size_t read : reads) {
    const std::vector<bool> needed = closed(accesses, read + 1, {}, [&](size_t n) { return n == read; });
    if (std::any_of(row.begin(), row.end(), [&](size_t n) { return needed[n]; })) end_row();
    for (size_t n = 0; n < read; ++n)
      if (needed[n]) place(n);
    row.push_back(read);
  }
  end_row();
  const size_t early = order.size();
  if (early == reads.back() + 1) return std::nullopt;  // nothing was passed
  for (size_t n = 0; n < graph.nodes().size(); ++n) place(n);

  EarlyReads made;
  std::unordered_multimap<uint32_t, size_t> inputs_of;
  for (size_t i = 0; i < graph.inputs().size(); ++i) inputs_of.emplace(accesses.memory(graph.inputs()[i]), i);
  std::unordered_map<size_t, size_t> known[2];
  for (size_t at = 0; at < order.size() && (at < early || order[at] < reads.back()); ++at) {
    const auto add = [&](uint32_t memory, bool writes) {
      std::vector<Apart::Access>& to = at < early ? made.apart.early : made.apart.late;
      const auto [first, last] = inputs_of.equal_range(memory);
      for (auto input = first; input != last; ++input) {
        const auto [place, is_new] = known[at < early].emplace(input->second, to.size());
        if (is_new) to.push_back({input->second, false});
        to[place->second].writes = to[place->second].writes || writes;
      }
    };
    for (const uint32_t memory : accesses[order[at]].reads) add(memory, false);
    for (const uint32_t memory : accesses[order[at]].writes) add(memory, true);
  }

  made.graph = graph;
  made.graph.truncate(0);
  for (const size_t n : order) made.graph.add_node(graph.nodes()[n]);
  return made;
}

bool Apart::holds(std::span<const at::Tensor> inputs) const {
  const auto storage = [&](const Access& access) { return inputs[access.input].storage().unsafeGetStorageImpl(); };
  std::unordered_map<const c10::StorageImpl*, c10::SmallVector<Access, 1>> by_storage;
  for (const Access& access : early) by_storage[storage(access)].push_back(access);
  return std::none_of(late.begin(), late.end(), [&](const Access& access) {
    const auto shared = by_storage.find(storage(access));
    // What both do to one input, the graph says.
    return shared != by_storage.end() &&
           std::any_of(shared->second.begin(), shared->second.end(), [&](const Access& other) {
             return other.input != access.input && (other.writes || access.writes);
           });
  });
}

}  // namespace magneto::aten
