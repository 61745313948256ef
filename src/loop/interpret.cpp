// A term is evaluated by walking the list of its parts, each after its operands; the lists are made once for each root.
// So a term that is used twice is computed once for each point, and the cost of a point is the number of its terms.
#include "loop/interpret.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "loop/semantics.h"
#include "loop/text.h"

namespace magneto::loop {

int64_t storage_size(const types::TensorType& type, const std::vector<int64_t>& symbols) {
  int64_t last = type.offset.evaluate(symbols);
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    const int64_t size = type.sizes[d].evaluate(symbols);
    if (size == 0) return 0;
    last += (size - 1) * type.strides[d].evaluate(symbols);
  }
  return last + 1;
}

namespace {

struct Place {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  Dtype dtype = Dtype::kF32;
  size_t item = 0;
  std::vector<char> own;
};

class Interpreter {
 public:
  Interpreter(const Program& program, const std::vector<int64_t>& symbols, std::vector<void*> buffers,
              const Interpretation& how, bool makes_temporaries = true)
      : program_(program),
        makes_temporaries_(makes_temporaries),
        symbols_(symbols),
        memory_(std::move(buffers)),
        how_(how),
        axes_(program.axes()),
        locals_(program.locals()),
        folds_(program.locals()),
        values_(program.terms()),
        seen_(program.terms()) {
    memory_.resize(program.buffers());
    places_.resize(program.buffers());
    for (size_t b = 0; b < program.buffers(); ++b) place(BufferId(b));
  }

  bool run(const Kernel& k) {
    kernel(k);
    return !fault_;
  }
  bool run() {
    in_order(
        program_, [&](const Equation& e) { equation(e); }, [&](const Kernel& k) { kernel(k); });
    return !fault_;
  }

 private:
  void place(BufferId id) {
    const types::TensorType& type = program_.buffer(id).type;
    Place& p = places_[id.index()];
    for (const types::Expr& size : type.sizes) p.sizes.push_back(size.evaluate(symbols_));
    for (const types::Expr& stride : type.strides) p.strides.push_back(stride.evaluate(symbols_));
    p.offset = type.offset.evaluate(symbols_);
    p.dtype = type.dtype;
    p.item = types::item_size(type.dtype);
    if (program_.buffer(id).of.valid()) memory_[id.index()] = memory_[program_.buffer(id).of.index()];
    if (memory_[id.index()] || (!makes_temporaries_ && program_.buffer(id).role != Role::kRow)) return;
    p.own.resize(static_cast<size_t>(storage_size(type, symbols_)) * p.item);
    memory_[id.index()] = p.own.data();
  }

  char* at(BufferId id, const int64_t* index) const {
    const Place& p = places_[id.index()];
    int64_t offset = p.offset;
    for (size_t d = 0; d < p.sizes.size(); ++d) {
      base::check(index[d] >= 0 && index[d] < p.sizes[d], "interpret: index ", index[d], " of ",
                  program_.buffer(id).name, " is outside 0 .. ", p.sizes[d], " in dimension ", d);
      offset += index[d] * p.strides[d];
    }
    return static_cast<char*>(memory_[id.index()]) + offset * static_cast<int64_t>(p.item);
  }

  // ---- terms -------------------------------------------------------------------------------------------------------

  const std::vector<TermId>& parts(TermId root) {
    auto [found, is_new] = parts_.try_emplace(root);
    if (!is_new) return found->second;
    std::vector<TermId> list;
    const auto turn = static_cast<uint32_t>(parts_.size());  // no clearing: each root has a number of its own
    std::vector<std::pair<TermId, size_t>> stack = {{root, 0}};
    seen_[root.index()] = turn;
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const Term& t = program_.term(id);
      if (next == 0 && t.op == Op::kReduce) next = 1;  // the body has a list of its own
      if (next < t.operands.size()) {
        const TermId operand = t.operands[next++];
        if (seen_[operand.index()] == turn) continue;
        seen_[operand.index()] = turn;
        stack.emplace_back(operand, 0);
      } else {
        list.push_back(id);
        stack.pop_back();
      }
    }
    return parts_[root] = std::move(list);
  }

  Number evaluate(TermId root) {
    const std::vector<TermId>& list = parts(root);
    left_ -= static_cast<int64_t>(list.size());
    if (left_ < 0) throw TooLong(base::concat("interpret: more than ", how_.most, " terms"));
    for (const TermId id : list) values_[id.index()] = rounded(program_.term(id).dtype, one(id));
    return values_[root.index()];
  }

  Number rounded(Dtype dtype, Number value) const {
    if (how_.round_each && types::is_floating(dtype)) value.real = round_to(dtype, value.real);
    return value;
  }

  int64_t whole(TermId root) { return evaluate(root).whole; }

  Number one(TermId id) {
    const Term& t = program_.term(id);
    const auto operand = [&](size_t k) { return values_[t.operands[k].index()]; };
    const auto load = [&](size_t rank) {
      int64_t index[32] = {};
      base::check(rank < 32, "interpret: rank ", rank);
      for (size_t d = 0; d < rank; ++d) index[d] = operand(d).whole;
      return read(t.dtype, at(BufferId(t.id), index));
    };
    switch (t.op) {
      case Op::kConstant:
        return program_.number(t);
      case Op::kSize:
        return Number::of_int(program_.size_of(t).evaluate(symbols_));
      case Op::kAxis:
        return Number::of_int(axes_[t.id]);
      case Op::kLocal:
        return locals_[t.id];
      case Op::kLoad:
        return load(t.operands.size());
      case Op::kGuarded: {
        const size_t rank = t.operands.size() - 2;
        return operand(rank).whole ? load(rank) : operand(rank + 1);
      }
      case Op::kReduce: {
        Folded sum = identity(t.fold, program_.term(t.operands[0]).dtype);
        int64_t count = 0;
        walk(program_.ranges_of(t), 0, [&] {
          sum = combine(t.fold, program_.term(t.operands[0]).dtype, sum, {evaluate(t.operands[0]), count++});
        });
        return result(t.fold, sum);
      }
      case Op::kCast:
        return convert(program_.term(t.operands[0]).dtype, t.dtype, operand(0));
      case Op::kBits:
        return reinterpret_bits(program_.term(t.operands[0]).dtype, t.dtype, operand(0));
      default: {
        std::array<Number, 3> operands;
        for (size_t k = 0; k < t.operands.size(); ++k) operands[k] = operand(k);
        return apply(t.op, program_.term(t.operands[t.op == Op::kWhere ? 1 : 0]).dtype, operands, fault_);
      }
    }
  }

  // ---- spaces ------------------------------------------------------------------------------------------------------

  template <class Body>
  void walk(const std::vector<Range>& ranges, size_t depth, const Body& body) {
    if (depth == ranges.size()) return body();
    const Range& range = ranges[depth];
    const int64_t begin = whole(range.begin), end = whole(range.end);
    for (int64_t value = begin; value < end; ++value) {
      axes_[range.axis.index()] = value;
      walk(ranges, depth + 1, body);
    }
  }

  template <class Body>
  void walk_sizes(const Equation& e, const Body& body) {
    const Place& p = places_[e.target.index()];
    std::vector<int64_t> index(p.sizes.size(), 0);
    if (std::find(p.sizes.begin(), p.sizes.end(), 0) != p.sizes.end()) return;
    while (true) {
      for (size_t d = 0; d < index.size(); ++d) axes_[e.axes[d].index()] = index[d];
      body(index);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == p.sizes[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }

  // ---- equations ---------------------------------------------------------------------------------------------------

  void equation(const Equation& e) {
    switch (e.kind) {
      case Equation::Kind::kMap:
        return walk_sizes(e, [&](const std::vector<int64_t>& index) { put(e.target, index, evaluate(e.value)); });
      case Equation::Kind::kScatter:
        return scatter(e);
      case Equation::Kind::kScan:
        return along(e, [&](const std::vector<std::vector<int64_t>>& line) {
          const Dtype element = program_.term(e.value).dtype;
          Folded sum = identity(*e.fold, element);
          for (const auto& index : line) {
            sum = combine(*e.fold, element, sum, {evaluate_at(e, index), axes_[e.along.index()]});
            put(e.target, index, result(*e.fold, sum));
          }
        });
      case Equation::Kind::kSort:
        return along(e, [&](const std::vector<std::vector<int64_t>>& line) { sort(e, line); });
      case Equation::Kind::kExtern:
        base::check(static_cast<bool>(how_.call_extern), "interpret: nobody knows how to call ", e.callee);
        return how_.call_extern(e, memory_);
    }
  }

  void put(BufferId id, const std::vector<int64_t>& index, Number value) {
    write(places_[id.index()].dtype, at(id, index.data()), value);
  }
  Number get(BufferId id, const std::vector<int64_t>& index) {
    return read(places_[id.index()].dtype, at(id, index.data()));
  }

  Number evaluate_at(const Equation& e, const std::vector<int64_t>& index) {
    for (size_t d = 0; d < index.size(); ++d) axes_[e.axes[d].index()] = index[d];
    return evaluate(e.value);
  }

  /// Calls `body` with the indices of each line along the axis of a scan or sort.
  template <class Body>
  void along(const Equation& e, const Body& body) {
    const auto found = std::find(e.axes.begin(), e.axes.end(), e.along);
    const auto d = static_cast<size_t>(found - e.axes.begin());
    const int64_t extent = places_[e.target.index()].sizes[d];
    std::vector<std::vector<int64_t>> line(static_cast<size_t>(extent));
    walk_sizes(e, [&](const std::vector<int64_t>& index) {
      if (index[d] != 0) return;
      for (int64_t k = 0; k < extent; ++k) {
        line[static_cast<size_t>(k)] = index;
        line[static_cast<size_t>(k)][d] = k;
      }
      body(line);
    });
  }

  void sort(const Equation& e, const std::vector<std::vector<int64_t>>& line) {
    const bool real = types::is_floating(program_.term(e.value).dtype);
    std::vector<std::pair<Number, int64_t>> items;
    for (size_t k = 0; k < line.size(); ++k) items.emplace_back(evaluate_at(e, line[k]), static_cast<int64_t>(k));
    const auto less = [&](const Number& a, const Number& b) {  // NaN is the greatest
      if (!real) return a.whole < b.whole;
      return a.real < b.real || (a.real == a.real && b.real != b.real);
    };
    std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
      return e.descending ? less(b.first, a.first) : less(a.first, b.first);
    });
    for (size_t k = 0; k < line.size(); ++k) {
      put(e.target, line[k], items[k].first);
      if (e.positions.valid()) put(e.positions, line[k], Number::of_int(items[k].second));
    }
  }

  void update(BufferId id, const std::vector<TermId>& terms, const std::optional<Fold>& fold, Number value) {
    std::vector<int64_t> index;
    for (const TermId term : terms) index.push_back(whole(term));
    const Dtype dtype = places_[id.index()].dtype;
    if (fold) value = combine(*fold, dtype, {get(id, index), 0}, {value, 0}).value;
    put(id, index, value);
  }

  void scatter(const Equation& e) {
    Equation fill = e;  // every element first: the base, or zero
    fill.axes.clear();
    for (size_t d = 0; d < places_[e.target.index()].sizes.size(); ++d) fill.axes.push_back(AxisId(0));
    walk_sizes(fill, [&](const std::vector<int64_t>& index) {
      put(e.target, index, e.base.valid() ? get(e.base, index) : Number{});
    });
    walk(e.over, 0, [&] { update(e.target, e.index, e.fold, evaluate(e.value)); });
  }

  // ---- kernels -----------------------------------------------------------------------------------------------------

  void kernel(const Kernel& k) {
    for (const Statement& s : k.once) statement(s);
    walk(k.outer, 0, [&] {
      for (const Statement& s : k.body) statement(s);
    });
  }

  void statement(const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::kLet:
        locals_[s.local.index()] = evaluate(s.value);
        return;
      case Statement::Kind::kFold:
      case Statement::Kind::kScan: {
        const Dtype element = program_.term(s.value).dtype;
        const Number value = evaluate(s.value);
        const int64_t position = s.position.valid() ? whole(s.position) : 0;
        Folded& folded = folds_[s.local.index()];
        folded = combine(*s.fold, element, folded, {value, position});
        locals_[s.local.index()] = rounded(program_.local_of(s.local).dtype, result(*s.fold, folded));
        return;
      }
      case Statement::Kind::kStore:
        return update(s.buffer, s.index, std::nullopt, evaluate(s.value));
      case Statement::Kind::kUpdate:
        return update(s.buffer, s.index, s.fold, evaluate(s.value));
      case Statement::Kind::kLoop:
        return loop(s.loop.front());
    }
  }

  void start_folds(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      if (s.kind != Statement::Kind::kFold && s.kind != Statement::Kind::kScan) continue;
      folds_[s.local.index()] = identity(*s.fold, program_.term(s.value).dtype);
      locals_[s.local.index()] = result(*s.fold, folds_[s.local.index()]);
    }
  }

  void loop(const Loop& l) {
    if (l.kind == Loop::Kind::kPhase) start_folds(l.body);
    if (l.tail == Loop::Tail::kNone) {
      const Range& last = l.ranges.back();
      const int64_t extent = whole(last.end) - whole(last.begin), step = l.vector * l.unroll;
      base::check(extent % step == 0, "interpret: ", print(program_, last), " has no tail, but ", step,
                  " does not divide its extent ", extent);
    }
    walk(l.ranges, 0, [&] {
      for (const Statement& s : l.body) statement(s);
    });
  }

  const Program& program_;
  const bool makes_temporaries_;
  const std::vector<int64_t>& symbols_;
  std::vector<void*> memory_;
  const Interpretation& how_;
  std::vector<Place> places_;
  std::vector<int64_t> axes_;
  std::vector<Number> locals_;
  std::vector<Folded> folds_;
  std::vector<Number> values_;
  std::unordered_map<TermId, std::vector<TermId>> parts_;
  std::vector<uint32_t> seen_;
  bool fault_ = false;
  int64_t left_ = how_.most;
};

}  // namespace

bool interpret(const Program& program, const std::vector<int64_t>& symbols, std::vector<void*> buffers,
               const Interpretation& how) {
  return Interpreter(program, symbols, std::move(buffers), how).run();
}

bool interpret(const Program& program, const Kernel& kernel, const std::vector<int64_t>& symbols,
               std::vector<void*> buffers, const Interpretation& how) {
  return Interpreter(program, symbols, std::move(buffers), how, false).run(kernel);
}

}  // namespace magneto::loop
