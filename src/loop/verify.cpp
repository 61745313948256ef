// Types are checked for the whole arena in one sweep. Names are checked at the roots: each term knows its free axes and
// values (uses.h), which must be bound where the term stands.
#include "loop/verify.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/text.h"
#include "loop/text.h"
#include "loop/uses.h"

namespace magneto::loop {

namespace {

using base::concat;

/// Where something stands. The text is written only where something is wrong.
struct Where {
  const Program* program = nullptr;
  const Equation* equation = nullptr;
  const Kernel* kernel = nullptr;
  TermId term{};
  std::string text() const {
    if (equation) return print(*program, *equation);
    return kernel ? concat("kernel ", kernel->name) : print(*program, term);
  }
};

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program),
        uses_(program),
        bound_(program.axes()),
        known_(program.locals()),
        written_(program.buffers()),
        seen_(program.terms()) {}

  std::vector<std::string> run() {
    for (size_t b = 0; b < program_.buffers(); ++b) buffer(BufferId(b));
    if (!broken_.empty()) return std::move(broken_);
    for (size_t t = 0; t < program_.terms(); ++t) type(TermId(t));
    if (!program_.equations.empty() && program_.equations.front().joined)
      say("the first equation is joined to nothing");
    in_order(
        program_, [&](const Equation& e) { equation(e); }, [&](const Kernel& k) { kernel(k); });
    if (!program_.equations.empty() || !program_.kernels.empty())
      for (size_t b = 0; b < program_.buffers(); ++b)
        if (program_.buffer(BufferId(b)).role == Role::kOut && !written_[program_.storage(BufferId(b)).index()])
          say("output ", program_.buffer(BufferId(b)).name, " is never written");
    return std::move(broken_);
  }

 private:
  template <class... Pieces>
  void say(const Pieces&... pieces) {
    broken_.push_back(concat(written(pieces)...));
  }
  template <class Piece>
  static const Piece& written(const Piece& piece) {
    return piece;
  }
  static std::string written(const Where& where) { return where.text(); }
  std::string text(TermId id) const { return print(program_, id); }
  std::string name(BufferId id) const { return program_.buffer(id).name; }
  Dtype dtype(TermId id) const { return program_.term(id).dtype; }

  void buffer(BufferId id) {
    const Buffer& b = program_.buffer(id);
    if (b.type.sizes.size() != b.type.strides.size())
      say(b.name, " has ", b.type.sizes.size(), " sizes and ", b.type.strides.size(), " strides");
    written_[id.index()] = b.role == Role::kIn;
  }

  // ---- terms
  // ---------------------------------------------------------------------------------------------------------

  void indices(TermId id, const Term& t, size_t rank) {
    const size_t expected = program_.buffer(BufferId(t.id)).type.sizes.size();
    if (rank != expected) say(text(id), " has ", rank, " indices; ", name(BufferId(t.id)), " has ", expected, " sizes");
    for (size_t d = 0; d < rank; ++d)
      if (dtype(t.operands[d]) != Dtype::kI64) say("index ", text(t.operands[d]), " is no i64");
  }

  void type(TermId id) {
    const Term& t = program_.term(id);
    const OpTraits& op = traits(t.op);
    if (!is_known(t.dtype)) say(text(id), " is ", types::name(t.dtype), ", which loops do not compute with");
    if (t.op == Op::kLoad) return indices(id, t, t.operands.size());
    if (t.op == Op::kGuarded) {
      const size_t rank = t.operands.size() - 2;
      indices(id, t, rank);
      if (dtype(t.operands[rank]) != Dtype::kBool) say("the condition of ", text(id), " is no bool");
      if (dtype(t.operands[rank + 1]) != t.dtype)
        say(text(id), " is ", types::name(t.dtype), " or ", types::name(dtype(t.operands[rank + 1])));
      return;
    }
    if (t.op == Op::kBits && types::item_size(t.dtype) != types::item_size(dtype(t.operands[0])))
      say(text(id), " changes the number of bits");
    if (t.op == Op::kReduce) return reduction(id, t);
    if (op.operands == 0) return;
    const size_t first = t.op == Op::kWhere ? 1 : 0;
    if (first && dtype(t.operands[0]) != Dtype::kBool) say("the condition of ", text(id), " is no bool");
    for (size_t k = first; k < t.operands.size(); ++k) {
      const Dtype given = dtype(t.operands[k]);
      if (given != dtype(t.operands[first])) {
        say(text(id), " mixes ", types::name(dtype(t.operands[first])), " and ", types::name(given));
        return;
      }
    }
    const Dtype given = dtype(t.operands[first]);
    if (!takes(op.takes, given))
      say(op.name, " does not take ", types::name(given), is_half(given) ? ": cast to f32 first, in " : ", in ",
          text(id));
  }

  void fold(Fold fold, Dtype element, const Where& where) {
    const bool logic = fold == Fold::kAny || fold == Fold::kAll;
    if (logic ? element != Dtype::kBool : !takes(Takes::kNumber, element))
      say(loop::name(fold), " does not fold ", types::name(element), ", in ", where);
  }

  void reduction(TermId id, const Term& t) {
    fold(t.fold, dtype(t.operands[0]), {.program = &program_, .term = id});
    for (size_t k = 1; k < t.operands.size(); ++k)
      if (dtype(t.operands[k]) != Dtype::kI64) say("the range of ", text(id), " is no i64");
    if (std::set<AxisId>(t.axes.begin(), t.axes.end()).size() != t.axes.size()) say(text(id), " binds an axis twice");
  }

  // ---- names
  // ---------------------------------------------------------------------------------------------------------

  void bind(AxisId axis, const Where& where) {
    if (bound_[axis.index()]) say("axis ", program_.axis_name(axis), " is bound twice in ", where);
    bound_[axis.index()] = true;
  }
  void bind(const std::vector<Range>& ranges, const Where& where) {
    for (const Range& r : ranges) {  // a range may depend on those before it
      root(r.begin, where);
      root(r.end, where);
      if (dtype(r.begin) != Dtype::kI64 || dtype(r.end) != Dtype::kI64) say("the range of ", where, " is no i64");
      bind(r.axis, where);
    }
  }
  void release(const std::vector<Range>& ranges) {
    for (const Range& r : ranges) bound_[r.axis.index()] = false;
  }

  /// Checks the names of a term that stands here, and calls `visit` with every load in it that was not seen this turn.
  template <class Visit>
  void root(TermId id, const Where& where, const Visit& visit) {
    if (!id.valid()) return say("a term is missing in ", where);
    for (const AxisId axis : uses_.of(id).axes)
      if (!bound_[axis.index()]) say("axis ", program_.axis_name(axis), " is not bound in ", where);
    for (const LocalId local : uses_.of(id).locals)
      if (!known_[local.index()]) say(program_.local_of(local).name, " is not known yet in ", where);
    std::vector<TermId> stack = {id};
    while (!stack.empty()) {
      const TermId at = stack.back();
      stack.pop_back();
      if (seen_[at.index()] == turn_) continue;
      seen_[at.index()] = turn_;
      const Term& t = program_.term(at);
      if (t.op == Op::kLoad || t.op == Op::kGuarded) visit(t);
      if (t.op == Op::kReduce)
        for (const AxisId axis : t.axes)
          if (bound_[axis.index()]) say("axis ", program_.axis_name(axis), " is bound twice in ", where);
      for (const TermId operand : t.operands)
        if (uses_.of(operand).loads || uses_.of(operand).reduces) stack.push_back(operand);
    }
  }
  void root(TermId id, const Where& where) {
    root(id, where, [&](const Term& load) { read(BufferId(load.id), where); });
  }

  void read(BufferId id, const Where& where) {
    if (!written_[program_.storage(id).index()]) say(name(id), " is read before it is written, in ", where);
  }

  // ---- equations
  // -----------------------------------------------------------------------------------------------------

  void write(BufferId id, const Where& where) {
    const Role role = program_.buffer(id).role;
    if (role == Role::kIn) say("input ", name(id), " is written by ", where);
    if (role == Role::kRow) say("row ", name(id), " is written by an equation, ", where);
    if (role != Role::kIn && written_[id.index()]) say(name(id), " is written twice, by ", where);
    written_[id.index()] = true;
  }

  void equation(const Equation& e) {
    const Where where{.program = &program_, .equation = &e};
    ++turn_;
    if (e.kind == Equation::Kind::kExtern) {
      for (const BufferId id : e.reads) read(id, where);
      for (const BufferId id : e.writes) write(id, where);
      return;
    }
    const types::TensorType& target = program_.buffer(e.target).type;
    if (e.kind == Equation::Kind::kScatter) {
      bind(e.over, where);
      if (e.over.empty()) say(where, " has no axis");
      if (e.index.size() != target.sizes.size()) say(where, " has ", e.index.size(), " indices");
      for (const TermId id : e.index) {
        root(id, where);
        if (dtype(id) != Dtype::kI64) say("index ", text(id), " is no i64");
      }
      if (e.base.valid()) {
        read(e.base, where);
        if (program_.buffer(e.base).type.dtype != target.dtype || program_.buffer(e.base).type.sizes != target.sizes)
          say(where, ": ", name(e.base), " is not of the type of ", name(e.target));
      }
    } else {
      if (e.axes.size() != target.sizes.size()) say(where, " has ", e.axes.size(), " axes");
      for (const AxisId axis : e.axes) bind(axis, where);
    }
    if (e.kind == Equation::Kind::kScan || e.kind == Equation::Kind::kSort)
      if (std::find(e.axes.begin(), e.axes.end(), e.along) == e.axes.end())
        say(where, " runs along no axis of its own");
    if (e.kind == Equation::Kind::kScan && !e.fold) say(where, " has no fold");
    root(e.value, where);
    if (e.fold) fold(*e.fold, dtype(e.value), where);
    const Dtype given = e.fold ? result_of(*e.fold, dtype(e.value)) : dtype(e.value);
    // A scan may add up in a wider type than the one that it keeps.
    const bool narrows = e.kind == Equation::Kind::kScan && types::is_floating(given) &&
                         types::is_floating(target.dtype) && types::item_size(given) > types::item_size(target.dtype);
    if (given != target.dtype && !narrows)
      say(where, " gives ", types::name(given), " to ", name(e.target), ", which holds ", types::name(target.dtype));
    if (e.positions.valid()) {
      if (program_.buffer(e.positions).type.dtype != Dtype::kI64) say(where, ": positions are i64");
      write(e.positions, where);
    }
    release(e.over);
    for (const AxisId axis : e.axes) bound_[axis.index()] = false;
    write(e.target, where);
  }

  // ---- kernels
  // -------------------------------------------------------------------------------------------------------

  struct Here {  ///< where in a kernel a statement stands
    bool in_phase = false, in_lanes = false, in_each = false, in_once = false, vectorised = false;
    AxisId last_axis{};  ///< of the innermost loop
  };

  void kernel(const Kernel& k) {
    where_ = {.program = &program_, .kernel = &k};
    kernel_ = &k;
    ++turn_;
    stored_.clear();
    stored_here_.clear();
    places_.clear();
    std::fill(known_.begin(), known_.end(), false);
    for (const BufferId row : k.rows)
      if (program_.buffer(row).role != Role::kRow) say(name(row), " is no row, in ", where_);
    for (const Statement& s : k.once) {
      if (s.kind != Statement::Kind::kLet) say("only lets hold for all points, in ", where_);
      statement(s, {.in_once = true});
    }
    collect_places(k.body);
    for (const Range& r : k.outer)
      if (!program_.as_size(r.begin) || !program_.as_size(r.end))
        say("the outer space of ", where_, " depends on more than sizes: ", print(program_, r));
    if (!names_.insert(k.name).second) say("two kernels are called ", k.name);
    bind(k.outer, where_);
    block(k.body, {});
    release(k.outer);
    for (const BufferId id : stored_) written_[program_.storage(id).index()] = true;
    for (const BufferId row : k.rows) written_[row.index()] = false;
  }

  void collect_places(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      if (s.kind == Statement::Kind::kStore) places_.insert({s.buffer, s.index});
      if (s.kind == Statement::Kind::kStore || s.kind == Statement::Kind::kUpdate) stored_.insert(s.buffer);
      if (s.kind == Statement::Kind::kLoop) collect_places(s.loop.front().body);
    }
  }

  void block(const std::vector<Statement>& body, const Here& here) {
    for (const Statement& s : body) statement(s, here);
  }

  void kernel_load(const Term& load) {
    const BufferId id(load.id);
    if (program_.buffer(id).role == Role::kRow) {
      if (filling_.count(id)) say("row ", name(id), " is read in the phase that fills it, in ", where_);
      return read(id, where_);
    }
    for (const BufferId other : stored_)
      if (other != id && program_.storage(other) == program_.storage(id))
        say(name(id), " is stored to through another view, in ", where_);
    if (!stored_.count(id)) return read(id, where_);
    if (stored_here_.count(id)) say(name(id), " is read after a store to it, in ", where_);
    const size_t rank = program_.buffer(id).type.sizes.size();
    const std::vector<TermId> index(load.operands.begin(), load.operands.begin() + static_cast<long>(rank));
    if (!places_.count({id, index})) say(name(id), " is stored to and read at another place, in ", where_);
  }

  /// Whether an index may differ from step to step: it depends on the axis, or on a value, which may.
  bool moves(TermId id, const Here& here) const {
    return uses_.depends(id, here.last_axis) || !uses_.of(id).locals.empty();
  }

  void define(LocalId local) {
    if (known_[local.index()]) say(program_.local_of(local).name, " is named twice in ", where_);
    known_[local.index()] = true;
  }

  void statement(const Statement& s, const Here& here) {
    using Kind = Statement::Kind;
    ++turn_;
    for_each_term(s, [&](TermId id) {
      root(id, where_, [&](const Term& load) { kernel_load(load); });
      if (uses_.of(id).reduces) say("a reduction stands as a term in ", where_, "; kernels fold in phases");
    });
    switch (s.kind) {
      case Kind::kLet:
        return define(s.local);
      case Kind::kFold:
      case Kind::kScan:
        if (!here.in_phase) say("fold ", program_.local_of(s.local).name, " stands in no phase, in ", where_);
        fold(*s.fold, dtype(s.value), where_);
        if (gives_position(*s.fold) != s.position.valid())
          say(loop::name(*s.fold), s.position.valid() ? " has a position in " : " has no position in ", where_);
        if (s.kind == Kind::kScan) {
          if (here.vectorised) say("a scan stands in a phase that is vectorised or unrolled, in ", where_);
          if (kernel_->threads > 1 && !here.in_lanes) say("a scan is shared by threads in ", where_);
          define(s.local);
        }
        return;
      case Kind::kStore:
      case Kind::kUpdate:
        return store(s, here);
      case Kind::kLoop:
        return loop(s.loop.front(), here);
    }
  }

  void store(const Statement& s, const Here& here) {
    if (s.kind == Statement::Kind::kStore && !s.overwrites && here.last_axis.valid() &&
        std::none_of(s.index.begin(), s.index.end(), [&](TermId id) { return moves(id, here); }))
      say("all steps along ", program_.axis_name(here.last_axis), " store to the same place of ", name(s.buffer),
          ", in ", where_);
    stored_here_.insert(s.buffer);
    const Buffer& b = program_.buffer(s.buffer);
    if (s.index.size() != b.type.sizes.size())
      say("store to ", b.name, " has ", s.index.size(), " indices, in ", where_);
    for (const TermId id : s.index)
      if (dtype(id) != Dtype::kI64) say("index ", text(id), " is no i64");
    if (dtype(s.value) != b.type.dtype)
      say(where_, " stores ", types::name(dtype(s.value)), " to ", b.name, ", which holds ", types::name(b.type.dtype));
    if (s.kind == Statement::Kind::kUpdate) {
      if (!s.fold) say("an update of ", b.name, " folds nothing, in ", where_);
      if (s.fold) fold(*s.fold, dtype(s.value), where_);
      if (s.fold && (gives_position(*s.fold) || *s.fold == Fold::kAny || *s.fold == Fold::kAll))
        say("memory is not updated by ", loop::name(*s.fold), ", in ", where_);
    }
    if (b.role == Role::kRow && std::find(kernel_->rows.begin(), kernel_->rows.end(), s.buffer) == kernel_->rows.end())
      say("row ", b.name, " belongs to another kernel than ", where_);
  }

  /// A value of an element ends with its phase, a fold begins; all values end with their lanes or their row.
  void forget(const std::vector<Statement>& body, bool folds_stay) {
    for (const Statement& s : body) {
      const bool fold = s.kind == Statement::Kind::kFold || s.kind == Statement::Kind::kScan;
      if (s.local.valid()) known_[s.local.index()] = fold && folds_stay;
      if (s.kind == Statement::Kind::kLoop) forget(s.loop.front().body, folds_stay);
    }
  }

  void loop(const Loop& l, const Here& here) {
    const bool lanes = l.kind == Loop::Kind::kLanes, each = l.kind == Loop::Kind::kEach, is_phase = !lanes && !each;
    if (l.ranges.empty() || (lanes && l.ranges.size() != 1))
      return say("a loop has ", l.ranges.size(), " axes in ", where_);
    if (here.in_phase || (!is_phase && (here.in_lanes || here.in_each)))
      say(lanes  ? "lanes"
          : each ? "each"
                 : "phase",
          " ", print(program_, l.ranges.front()), " stands in another loop, in ", where_);
    if (!std::has_single_bit(static_cast<unsigned>(l.vector)) || l.vector > 64)
      say("vector ", l.vector, " is no power of two up to 64, in ", where_);
    if (l.accumulators < 1 || l.accumulators > l.unroll)
      say(l.accumulators, " accumulators and unroll ", l.unroll, " in ", where_);
    const bool vectorised = l.vector > 1 || l.unroll > 1;
    if (here.in_lanes && vectorised) say("a phase in lanes is vectorised in ", where_);
    if (each && vectorised) say("rows that are walked one after the other are vectorised in ", where_);
    bind(l.ranges, where_);
    Here inside = here;
    inside.in_phase |= is_phase;
    inside.in_each |= each;
    inside.last_axis = l.ranges.back().axis;
    inside.in_lanes |= lanes;
    inside.vectorised |= is_phase && vectorised;
    std::set<BufferId> filled;
    if (is_phase) {
      for (const Statement& s : l.body)
        if (s.kind == Statement::Kind::kStore && program_.buffer(s.buffer).role == Role::kRow) filled.insert(s.buffer);
      filling_ = filled;
    }
    stored_here_.clear();
    block(l.body, inside);
    release(l.ranges);
    forget(l.body, is_phase);
    stored_here_.clear();
    if (is_phase) filling_.clear();
    for (const BufferId row : filled) written_[row.index()] = true;
  }

  const Program& program_;
  Uses uses_;
  std::vector<bool> bound_, known_, written_;
  std::vector<uint32_t> seen_;
  uint32_t turn_ = 0;
  Where where_;
  const Kernel* kernel_ = nullptr;
  std::set<std::string> names_;
  std::set<BufferId> stored_, stored_here_, filling_;
  std::set<std::pair<BufferId, std::vector<TermId>>> places_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return Verifier(program).run(); }

}  // namespace magneto::loop
