// A kernel of a group.
//
//   e[i0, i1] = exp(x[i0, i1] - m[i0])         level 0          kernel k_y(i0 < n) {
//   with s[i0] = sum(i1 < 8, e[i0, i1])        known at 1         row e_row: f32[8]
//   with y[i0, i1] = e[i0, i1] / s[i0]         level 1            phase i1 < 8 { let e = ...; store e_row[i1] = e; sum
//   s = e }
//                                                                 phase i1 < 8 { store y[i0, i1] = e_row[i1] / s }
//                                                               }
//
// 1. *Levels.* A fold is known after its phase. The level of an element is the number of phases that must be over
//    before it can be computed: one more than that of the folds it reads.
// 2. *Kept rows.* An element that a later phase reads is computed again there, unless it is dear: then it is kept in a
//    row, or read back where it is stored anyway.
// 3. *Levels are written one after the other*: values of the row, then the phases. A phase writes what must be stored
//    and what must be folded; other elements are written as values where these need them.
// 4. *Hoisting.* What reads memory and does not change along the row becomes a value of the row, before the phase.
// 5. *Blocks.* Where sums of columns are made of the same rows, a point is a block of rows that are walked one after
//    the other (`each`), and the sums lie in kept rows (stream_internal.h): phases add to them while the row is in the
//    cache.
#include "schedule/build_internal.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "schedule/merge_internal.h"
#include "schedule/stream_internal.h"
#include "schedule/turn_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

std::vector<TermId> place_of(Program& program, const Equation& e) {
  std::vector<TermId> index;
  const types::Sizes sizes = program.buffer(e.target).type.sizes;
  for (size_t d = 0; d < e.axes.size(); ++d)
    index.push_back(is_one(sizes[d]) ? program.constant_int(0, Dtype::kI64) : program.axis_value(e.axes[d]));
  return index;
}

void shape_loop(const Program& program, const Shape& shape, int unroll, Loop& loop) {
  const Range& r = loop.ranges.back();
  const auto begin = program.as_size(r.begin), end = program.as_size(r.end);
  loop.vector = shape.vector;
  loop.unroll = unroll;
  if (begin && end) {
    if (const auto extent = (*end - *begin).constant()) {
      while (loop.vector > 1 && loop.vector > *extent) loop.vector /= 2;
      while (loop.unroll > 1 && loop.vector * loop.unroll > *extent) loop.unroll /= 2;
      if (*extent > 0 && *extent % (loop.vector * loop.unroll) == 0 && loop.vector * loop.unroll > 1)
        loop.tail = Loop::Tail::kNone;
    }
  }
  loop.accumulators = loop.unroll;
}

namespace {

constexpr uint32_t kMostWork = 1000;  ///< of one step of a phase, where that is several vectors

struct Member {
  const Equation* e = nullptr;
  TermId value;
  BufferId into;              ///< where it is stored: the target, or a flat view of it
  std::vector<TermId> place;  ///< and at which index
  bool element = false;
  bool column = false;  ///< a part of a column reduction, of which `value` is what one element adds
  BufferId sums;        ///< of a column: where
  size_t level = 0;     ///< of an element: its phase; of a value of the row: the first phase that can read it
  uint64_t used = 0;    ///< levels at which the element is needed
  bool kept = false;
  BufferId row;
  TermId local;  ///< of a value of the row
};

struct Phase {
  size_t level = 0;
  std::vector<Range> ranges;
  std::vector<Statement> body;
  std::unordered_map<size_t, TermId> values;  ///< of elements, by member
  std::unique_ptr<Rewrite> rewrite;
};

class Builder {
 public:
  Builder(Workshop& shop, const std::vector<const Equation*>& members, const Space& space)
      : shop_(shop), program_(shop.program), space_(space) {
    if (space_.columns) space_.blocks.reset();  // they might have been rows
    for (const Equation* e : members) {
      member_of_[e->target] = members_.size();
      Member m;
      m.e = e;
      m.value = e->value;
      m.into = e->target;
      m.place = place_of(program_, *e);
      members_.push_back(std::move(m));
    }
  }

  Kernel run() {
    kernel_.name = base::concat("k_", program_.buffer(members_.back().e->target).name);
    if (space_.blocks)
      walk_blocks();
    else if (space_.inner.empty())
      merge();
    else if (!space_.columns)
      merge_inner();
    if (!space_.inner.empty() || !turn_around()) lay_out();
    find_levels();
    decide_rows();
    write_levels();
    assemble();
    return std::move(kernel_);
  }

 private:
  const Term& term(TermId id) const { return program_.term(id); }
  size_t member(const Term& t) const {
    if (!is_load(t)) return SIZE_MAX;
    const auto found = member_of_.find(BufferId(t.id));
    return found == member_of_.end() ? SIZE_MAX : found->second;
  }

  // ---- spaces ------------------------------------------------------------------------------------------------------

  void lay_out() {
    const TermId zero = program_.constant_int(0, Dtype::kI64);
    std::vector<Range> outer;
    for (size_t k = 0; k < space_.outer.size(); ++k)
      outer.push_back({canonical_axis(program_, k), zero, space_.outer[k]});
    inner_ = space_.inner;
    rank_ = outer.size();
    if (space_.blocks) {
      const Blocks& blocks = *space_.blocks;
      each_.assign(outer.begin() + static_cast<long>(blocks.cut), outer.end());
      outer.resize(blocks.cut);
      outer.push_back({block_, zero, blocks.parts});
      Range& cut = each_.front();
      cut.begin = program_.binary(Op::kMul, program_.axis_value(block_), blocks.width);
      cut.end = program_.binary(Op::kMin, program_.binary(Op::kAdd, cut.begin, blocks.width), cut.end);
    } else if (inner_.empty() && !outer.empty()) {
      inner_ = {outer.back()};
      outer.pop_back();
      rank_ = outer.size();
      if (is_few(outer) || shop_.shape.on_gpu()) cut(outer);
    } else if (space_.columns) {
      lane_ = outer.back();
      outer.pop_back();
      streams_ = can_stream();
      const int64_t width = streams_ ? shop_.shape.streamed : int64_t{shop_.shape.vector} * shop_.shape.columns;
      if (!streams_ || program_.as_size(lane_->end)->value_or(width + 1) > width) cut_range(*lane_, width, "c", outer);
    }
    kernel_.outer = std::move(outer);
  }

  /// Whether a column reduction may walk whole rows (stream_internal.h): its folds read no value of a column, and what
  /// is no fold comes after them.
  bool can_stream() {
    const Shape& shape = shop_.shape;
    const int64_t side_by_side = int64_t{shape.vector} * shape.columns;
    if (shape.threads > 1 || program_.as_size(lane_->end)->value_or(side_by_side + 1) <= side_by_side) return false;
    return std::all_of(members_.begin(), members_.end(), [&](const Member& m) {
      bool reads_member = false, fits = true;
      for_each_part(program_, m.value, [&](TermId id) {
        const Term& t = term(id);
        reads_member |= member(t) != SIZE_MAX;
        if (t.op != Op::kReduce) return;
        fits &= t.fold == Fold::kSum || t.fold == Fold::kProd || t.fold == Fold::kMax || t.fold == Fold::kMin;
        for_each_part(program_, t.operands[0], [&](TermId part) { fits &= member(term(part)) == SIZE_MAX; });
      });
      return fits && (reads_member || shop_.uses.of(m.value).reduces);
    });
  }

  std::vector<Walked> walked() const {
    std::vector<Walked> list;
    for (const Member& m : members_) list.push_back({m.e->target, m.value, m.into, m.place, stored(m)});
    return list;
  }
  void take(const std::vector<Walked>& walked) {
    rewritten_ = true;
    for (size_t k = 0; k < members_.size(); ++k) {
      members_[k].value = walked[k].value;
      members_[k].into = walked[k].into;
      members_[k].place = walked[k].place;
    }
    shop_.uses.extend(program_);
  }

  /// Blocks of a GPU are cut to fit anyway, so there one long axis is always better than two.
  int64_t long_enough() const { return shop_.shape.on_gpu() ? INT64_MAX : 512; }

  /// Axes that lie one after the other in all memory that is used become one (merge_internal.h).
  void merge() {
    std::vector<Walked> list = walked();
    const auto sizes = merge_axes(program_, shop_.uses, space_.outer, list, long_enough());
    if (!sizes) return;
    space_.outer = *sizes;
    take(list);
  }

  /// The same for the axes of a row.
  void merge_inner() {
    const size_t rank = space_.outer.size();
    size_t apart = rank;
    std::vector<TermId> sizes = space_.outer;
    for (size_t k = 0; k < space_.inner.size(); ++k) {
      const Range& r = space_.inner[k];
      const bool whole = program_.as_size(r.begin) == Expr(0) && program_.as_size(r.end);
      if (r.axis != canonical_axis(program_, rank + k)) return;
      if (!whole) apart = rank + k + 1;
      sizes.push_back(whole ? r.end : program_.constant_int(1, Dtype::kI64));
    }
    if (apart + 1 >= sizes.size()) return;
    std::vector<Walked> list = walked();
    const auto merged = merge_axes(program_, shop_.uses, sizes, list, long_enough(), apart);
    if (!merged) return;
    space_.inner.resize(merged->size() - rank);
    space_.inner.back().end = merged->back();
    for (size_t k = 0; k < members_.size(); ++k) {  // an element has all axes of the space
      Member& m = members_[k];
      m.element = core_of(program_, m.e->target).size() == sizes.size() && !shop_.uses.of(m.value).reduces;
      m.value = list[k].value;
      m.into = list[k].into;
      m.place = list[k].place;
    }
    inner_merged_ = true;
    shop_.uses.extend(program_);
  }

  /// What is read across the direction of the stores goes through tiles (turn_internal.h).
  bool turn_around() {
    std::vector<Walked> list = walked();
    auto made = turn(program_, shop_.uses, space_.outer, list, shop_.shape);
    if (!made) return false;
    take(list);
    kernel_.outer = std::move(made->outer);
    inner_ = std::move(made->inner);
    kernel_.rows = std::move(made->rows);
    fill_ = std::move(made->fill);
    return true;
  }

  bool is_few(const std::vector<Range>& outer) const {
    Expr points = 1;
    for (const Range& r : outer) points = points * *program_.as_size(r.end);
    return points.is_constant() && points.value_or(0) < shop_.shape.few_points;
  }

  /// The one long axis is walked in blocks, each a point of the outer space.
  void cut(std::vector<Range>& outer) {
    const Expr size = *program_.as_size(inner_.back().end);
    if (size.is_constant() && size.value_or(0) <= shop_.shape.block) return;
    cut_range(inner_.back(), shop_.shape.block, "b", outer);
  }

  void cut_range(Range& range, int64_t width, const char* name, std::vector<Range>& outer) {
    const Expr size = *program_.as_size(range.end);
    const AxisId axis = program_.axis(name);
    outer.push_back({axis, range.begin, program_.size(Expr::ceil_div(size, width))});
    range.begin = program_.binary(Op::kMul, program_.axis_value(axis), program_.constant_int(width, Dtype::kI64));
    range.end = program_.binary(Op::kAdd, range.begin, program_.constant_int(width, Dtype::kI64));
    if (!(Expr::mod(size, width) == Expr(0))) range.end = program_.binary(Op::kMin, range.end, program_.size(size));
  }

  /// Parts of columns are written with the axes of rows.
  void walk_blocks() {
    const Blocks& blocks = *space_.blocks;
    const size_t rank = blocks.rows.size(), reduced = rank - blocks.cut;
    block_ = program_.axis("b");
    std::unordered_map<TermId, TermId> names;
    const auto rename = [&](size_t from, AxisId to) {
      names[program_.axis_value(canonical_axis(program_, from))] = program_.axis_value(to);
    };
    rename(blocks.cut, block_);
    rename(blocks.cut + 1, canonical_axis(program_, rank));
    for (size_t k = 0; k < reduced; ++k) rename(blocks.cut + 2 + k, canonical_axis(program_, blocks.cut + k));
    Rewrite rewrite(program_, [&](TermId id) -> std::optional<TermId> {
      const auto found = names.find(id);
      return found == names.end() ? std::nullopt : std::optional(found->second);
    });
    for (Member& m : members_) {
      const Space own = space_of(program_, shop_.uses, *m.e);
      if (!own.columns) continue;
      const Term t = term(m.value);
      m.column = true;
      m.value = rewrite(t.operands[0]);
      for (TermId& id : m.place) id = rewrite(id);
    }
    shop_.uses.extend(program_);
  }

  // ---- levels ------------------------------------------------------------------------------------------------------

  size_t level_of(TermId root) {
    size_t level = 0;
    std::vector<TermId> stack = {root};
    std::set<TermId> seen;
    while (!stack.empty()) {
      const TermId id = stack.back();
      stack.pop_back();
      if (!seen.insert(id).second) continue;
      const Term& t = term(id);
      if (t.op == Op::kReduce) {
        level = std::max(level, fold_level(id) + 1);
        continue;
      }
      if (const size_t m = member(t); m != SIZE_MAX) level = std::max(level, members_[m].level);
      for (const TermId operand : t.operands) stack.push_back(operand);
    }
    return level;
  }

  size_t fold_level(TermId reduce) {
    if (const auto found = fold_levels_.find(reduce); found != fold_levels_.end()) return found->second;
    const TermId body = term(reduce).operands[0];
    base::check(!shop_.uses.of(body).reduces, "tile: a reduction stands inside another; simplify takes them apart");
    folds_.push_back(reduce);
    return fold_levels_[reduce] = level_of(body);
  }

  void find_levels() {
    for (Member& m : members_) {
      const size_t rank = core_of(program_, m.e->target).size();
      if (!inner_merged_ && !m.column)
        m.element = !inner_.empty() && (rewritten_ || rank == rank_ + inner_.size()) && !shop_.uses.of(m.value).reduces;
      m.level = level_of(m.value);
      last_ = std::max(last_, m.level);
    }
  }

  // ---- kept rows ---------------------------------------------------------------------------------------------------

  void decide_rows() {
    for (const TermId fold : folds_) use(term(fold).operands[0], uint64_t{1} << fold_levels_[fold]);
    for (const Member& m : members_)
      if (m.column) use(m.value, uint64_t{1} << m.level);
    std::vector<uint32_t> work(members_.size());
    for (size_t k = 0; k < members_.size(); ++k) {
      work[k] = shop_.weights.of(program_, members_[k].value).work;
      for_each_part(program_, members_[k].value, [&](TermId id) {
        if (const size_t m = member(term(id)); m != SIZE_MAX && members_[m].element)
          work[k] = std::min(work[k] + work[m], 1u << 20);
      });
    }
    for (size_t k = members_.size(); k-- > 0;) {
      Member& m = members_[k];
      if (!m.element) continue;
      const uint64_t own = uint64_t{1} << m.level;
      if (stored(m)) m.used |= own;
      m.kept = work[k] >= kDear && m.used > 2 * own - 1 && !lane_ && (stored(m) || has_room(m));
      use(m.value, m.kept ? own : m.used);
      if (m.kept && !stored(m)) keep(m);
    }
  }

  bool stored(const Member& m) const { return shop_.stored[m.e->target.index()]; }

  void use(TermId root, uint64_t levels) {
    for_each_part(program_, root, [&](TermId id) {
      if (const size_t m = member(term(id)); m != SIZE_MAX) members_[m].used |= levels;
    });
  }

  /// Whether its row may be kept beside those that are.
  bool has_room(const Member& m) {
    if (shop_.shape.row_bytes == INT64_MAX) return true;
    Expr bytes = static_cast<int64_t>(types::item_size(program_.buffer(m.e->target).type.dtype));
    for (const Range& r : space_.inner) bytes = bytes * *program_.as_size(r.end);
    if (!bytes.is_constant() || kept_bytes_ + bytes.value_or(0) > shop_.shape.row_bytes) return false;
    kept_bytes_ += bytes.value_or(0);
    return true;
  }

  void keep(Member& m) {
    types::TensorType type;
    type.dtype = program_.buffer(m.e->target).type.dtype;
    type.device = program_.buffer(m.e->target).type.device;
    for (const Range& r : space_.inner) type.sizes.push_back(*program_.as_size(r.end));
    type.strides = types::contiguous_strides(type.sizes);
    m.row = program_.add_buffer(program_.buffer(m.e->target).name + "_row", type, Role::kRow);
    kernel_.rows.push_back(m.row);
  }

  // ---- writing -----------------------------------------------------------------------------------------------------

  void write_levels() {
    row_.resize(last_ + 2);
    row_rewrite_ = std::make_unique<Rewrite>(program_, [this](TermId id) { return row_value(id); });
    for (level_ = 0; level_ <= last_; ++level_) {
      for (Member& m : members_)
        if (!m.element && !m.column && m.level == level_) write_row(m);
      for (size_t k = 0; k < members_.size(); ++k)
        if (members_[k].element && members_[k].level == level_ && (stored(members_[k]) || members_[k].kept))
          write_element(k);
      for (const TermId fold : folds_)
        if (fold_levels_[fold] == level_) write_fold(fold);
      for (Member& m : members_)
        if (m.column && m.level == level_) write_column(m);
    }
  }

  void write_column(Member& m) {
    Phase& phase = phase_of(level_, inner_);
    m.sums = add_sums(program_, program_.buffer(m.e->target).type.dtype, *program_.as_size(inner_.back().end));
    kernel_.rows.push_back(m.sums);
    Statement s = store(m.sums, row_place(), (*phase.rewrite)(m.value));
    s.kind = Statement::Kind::kUpdate;
    s.fold = term(m.e->value).fold;
    phase.body.push_back(std::move(s));
  }

  void write_row(Member& m) {
    TermId value = (*row_rewrite_)(m.value);
    if (term(value).op != Op::kLocal) value = let(row_[level_], name_of(m), value);
    m.local = value;
    if (stored(m)) row_[level_].push_back(store(m.into, m.place, value));
  }

  void write_element(size_t k) {
    Phase& phase = phase_of(level_, inner_);
    const TermId value = element(phase, k);
    const Member& m = members_[k];
    if (m.row.valid()) phase.body.push_back(store(m.row, row_place(), value));
    if (stored(m)) phase.body.push_back(store(m.into, m.place, value));
  }

  void write_fold(TermId reduce) {
    const Term t = term(reduce);
    const std::vector<Range> ranges = program_.ranges_of(t);
    Phase& phase = phase_of(level_, ranges);
    Statement s;
    s.kind = Statement::Kind::kFold;
    s.fold = t.fold;
    s.value = (*phase.rewrite)(t.operands[0]);
    if (gives_position(t.fold)) {  // the number of the element, counted from the begin of each axis
      for (const Range& r : ranges) {
        TermId at = program_.axis_value(r.axis);
        if (!(program_.as_size(r.begin) == Expr(0))) at = program_.binary(Op::kSub, at, r.begin);
        if (s.position.valid())
          at = program_.binary(Op::kAdd,
                               program_.binary(Op::kMul, s.position, program_.binary(Op::kSub, r.end, r.begin)), at);
        s.position = at;
      }
    }
    std::string name(loop::name(t.fold));
    for (const Member& m : members_)
      if (m.value == reduce) name = name_of(m);
    s.local = program_.add_local(fresh(name), t.dtype);
    fold_values_[reduce] = program_.local(s.local);
    phase.body.push_back(std::move(s));
  }

  static Statement store(BufferId buffer, std::vector<TermId> index, TermId value) {
    Statement s;
    s.kind = Statement::Kind::kStore;
    s.buffer = buffer;
    s.index = std::move(index);
    s.value = value;
    return s;
  }

  TermId let(std::vector<Statement>& into, const std::string& name, TermId value) {
    Statement s;
    s.kind = Statement::Kind::kLet;
    s.local = program_.add_local(fresh(name), term(value).dtype);
    s.value = value;
    into.push_back(s);
    return program_.local(s.local);
  }

  std::string name_of(const Member& m) const { return program_.buffer(m.e->target).name; }

  /// A name of this kernel that looks like no axis, size or word of the language.
  std::string fresh(std::string base) {
    if (base.find_first_not_of("0123456789", 1) == std::string::npos || base == "true" || base == "false")
      base = "v" + base;
    const int count = names_[base]++;
    return count == 0 ? base : fresh(base::concat(base, "_", count));
  }

  Phase& phase_of(size_t level, const std::vector<Range>& given) {
    const std::vector<Range>& ranges = given == space_.inner ? inner_ : given;
    for (auto& phase : phases_)
      if (phase->level == level && phase->ranges == ranges) return *phase;
    phases_.push_back(std::make_unique<Phase>());
    Phase& phase = *phases_.back();
    phase.level = level;
    phase.ranges = ranges;
    phase.rewrite = std::make_unique<Rewrite>(program_, [this, &phase](TermId id) { return in_phase(phase, id); });
    return phase;
  }

  std::vector<TermId> row_place() {
    std::vector<TermId> index;
    for (const Range& r : space_.inner) index.push_back(program_.axis_value(r.axis));
    return index;
  }

  /// An element of the group in a phase: read back, or computed there.
  TermId element(Phase& phase, size_t k) {
    if (const auto known = phase.values.find(k); known != phase.values.end()) return known->second;
    const Member& m = members_[k];
    TermId value;
    if (m.kept && m.level < phase.level) {
      value = m.row.valid() ? program_.load(m.row, row_place()) : program_.load(m.into, m.place);
    } else {
      value = (*phase.rewrite)(m.value);
      if (!term(value).operands.empty()) value = let(phase.body, name_of(m), value);
    }
    return phase.values[k] = value;
  }

  /// A guarded load of a value that is known here.
  TermId where(const Term& t, TermId value, Rewrite& rewrite) {
    if (t.op == Op::kLoad) return value;
    const size_t rank = t.operands.size() - 2;
    return program_.where(rewrite(t.operands[rank]), value, rewrite(t.operands[rank + 1]));
  }

  std::optional<TermId> in_phase(Phase& phase, TermId id) {
    if (hoists(phase, id)) return hoist(id);
    const Term t = term(id);
    const size_t m = member(t);
    if (m == SIZE_MAX) return std::nullopt;
    return where(t, members_[m].element ? element(phase, m) : members_[m].local, *phase.rewrite);
  }

  std::optional<TermId> row_value(TermId id) {
    const Term t = term(id);
    if (t.op == Op::kReduce) return fold_values_.at(id);
    const size_t m = member(t);
    if (m == SIZE_MAX) return std::nullopt;
    return where(t, members_[m].local, *row_rewrite_);
  }

  // ---- hoisting ----------------------------------------------------------------------------------------------------

  /// A row may be empty where its points are not: then only what is known to lie in its buffer is read before it.
  bool lies_inside(TermId root) {
    bool inside = true;
    for_each_part(program_, root, [&](TermId id) {
      const Term& t = term(id);
      if (!is_load(t) || member(t) != SIZE_MAX) return;
      const types::Sizes& sizes = program_.buffer(BufferId(t.id)).type.sizes;
      for (size_t d = 0; d < sizes.size(); ++d) {
        const Term& at = term(t.operands[d]);
        const bool zero = is_one(sizes[d]) && at.op == Op::kConstant && program_.number(at).whole == 0;
        bool whole = false;
        for (size_t k = 0; k < rank_ && at.op == Op::kAxis; ++k)
          whole |= AxisId(at.id) == canonical_axis(program_, k) && space_.outer[k] == program_.size(sizes[d]);
        inside &= zero || whole;
      }
    });
    return inside;
  }

  bool hoists(const Phase& phase, TermId id) {
    const Use& use = shop_.uses.of(id);
    if (!use.loads || use.may_fault) return false;
    if (streams_ && shop_.uses.depends(id, lane_->axis)) return false;
    bool some = true;
    for (const Range& r : phase.ranges) {
      if (shop_.uses.depends(id, r.axis)) return false;
      const auto begin = program_.as_size(r.begin), end = program_.as_size(r.end);
      some &= begin && end && (*end - *begin).lower_bound().value_or(0) > 0;
    }
    return some || lies_inside(id);
  }

  TermId hoist(TermId id) {
    const TermId value = (*row_rewrite_)(id);
    if (term(value).operands.empty() && !is_load(term(value))) return value;
    if (const auto known = hoisted_.find(value); known != hoisted_.end()) return known->second;
    shop_.uses.extend(program_);
    const Use& use = shop_.uses.of(value);
    const bool once = use.axes.empty() && use.locals.empty() && lies_inside(id);
    return hoisted_[value] = let(once ? kernel_.once : row_[level_], "h", value);
  }

  // ---- the whole ---------------------------------------------------------------------------------------------------

  /// Vectors in one step of a phase. Where a step is little work, a fold would wait for the fold of the step before;
  /// the operations that exp and its like are made of wait for one another. Text costs compile time.
  int unroll_of(const Phase& phase) {
    const Shape& shape = shop_.shape;
    if (shape.on_gpu()) return shape.unroll;
    bool folds = false, has_functions = false;
    uint32_t work = 0;
    for (const Statement& s : phase.body) {
      folds |= s.kind == Statement::Kind::kFold;
      work += shop_.weights.of(program_, s.value).work;
      if (shape.chains > 1)
        for_each_part(program_, s.value, [&](TermId id) { has_functions |= is_function(term(id).op); });
    }
    if (work < kDear) return folds ? std::max(shape.unroll, shape.accumulators) : shape.unroll;
    int chains = has_functions ? shape.chains : 1;
    while (chains > 1 && static_cast<uint32_t>(chains) * work > kMostWork) chains /= 2;
    return std::max(shape.unroll, chains);
  }

  /// As many threads as the phase keeps busy, 16 bytes for each at a time where all its elements are small.
  void share_phase(Loop& l) {
    const Shape& shape = shop_.shape;
    int64_t elements = 1;
    for (const Range& r : l.ranges) {
      const auto begin = program_.as_size(r.begin), end = program_.as_size(r.end);
      elements *= begin && end ? std::max<int64_t>((*end - *begin).value_or(kUnknown), 1) : kUnknown;
    }
    if (!lane_ && l.ranges.size() == 1) {
      size_t item = 0;
      const auto look = [&](BufferId id) { item = std::max(item, types::item_size(program_.buffer(id).type.dtype)); };
      for (const Statement& s : l.body) {
        if (s.buffer.valid()) look(s.buffer);
        for_each_term(
            s, [&](TermId root) { for_each_load(program_, root, [&](const Term& t) { look(BufferId(t.id)); }); });
      }
      if (item <= 2 && l.vector == shape.vector && elements % (2 * l.vector) == 0) l.vector *= 2;
    }
    const bool flat = folds_.empty();
    const int64_t each = lane_ ? 8 : flat ? l.vector : 2 * l.vector;  // elements of one thread, or rows of a column
    const int width = lane_ ? shape.vector * shape.columns : 1, most = flat ? shape.flat_threads : shape.threads;
    int threads = 32;
    while (threads < most && threads * each < elements * width) threads *= 2;
    kernel_.threads = std::max(kernel_.threads, threads);
  }
  static constexpr int64_t kUnknown = 1024;

  void assemble() {
    if (streams_) return assemble_stream();
    if (shop_.shape.on_gpu()) kernel_.threads = fill_.empty() ? 32 : shop_.shape.flat_threads;
    std::vector<Statement> body = std::move(fill_);
    for (size_t level = 0; level < row_.size(); ++level) {
      for (Statement& s : row_[level]) body.push_back(std::move(s));
      for (auto& phase : phases_) {
        if (phase->level != level) continue;
        Statement s;
        s.kind = Statement::Kind::kLoop;
        s.loop.emplace_back();
        Loop& l = s.loop.front();
        l.ranges = phase->ranges;
        if (!lane_) shape_loop(program_, shop_.shape, unroll_of(*phase), l);
        l.body = std::move(phase->body);
        if (shop_.shape.on_gpu()) share_phase(l);
        body.push_back(std::move(s));
      }
    }
    if (space_.blocks) return assemble_blocks(std::move(body));
    if (!lane_) {
      kernel_.body = std::move(body);
      return;
    }
    Statement s;
    s.kind = Statement::Kind::kLoop;
    s.loop.emplace_back();
    Loop& l = s.loop.front();
    l.kind = Loop::Kind::kLanes;
    l.ranges = {*lane_};
    l.vector = shop_.shape.vector;
    l.unroll = l.accumulators = shop_.shape.columns;
    l.body = std::move(body);
    kernel_.body.push_back(std::move(s));
  }

  void assemble_blocks(std::vector<Statement> body) {
    Statement first, each, last;
    for (Statement* s : {&first, &each, &last}) {
      s->kind = Statement::Kind::kLoop;
      s->loop.emplace_back();
      s->loop.front().ranges = s == &each ? each_ : inner_;
      if (s != &each) shape_loop(program_, shop_.shape, shop_.shape.unroll, s->loop.front());
    }
    each.loop.front().kind = Loop::Kind::kEach;
    each.loop.front().body = std::move(body);
    for (const Member& m : members_) {
      if (!m.column) continue;
      first.loop.front().body.push_back(start_sums(program_, m.sums, row_place(), term(m.e->value).fold));
      last.loop.front().body.push_back(store(m.into, m.place, program_.load(m.sums, row_place())));
    }
    kernel_.body = {std::move(first), std::move(each), std::move(last)};
  }

  void assemble_stream() {
    base::check(phases_.size() == 1 && last_ == 1, "tile: a column reduction of more than one phase is not streamed");
    Streamed made =
        stream(program_, shop_.shape, {*lane_, phases_[0]->ranges, std::move(phases_[0]->body), std::move(row_[1])});
    kernel_.rows = std::move(made.kept);
    kernel_.body = std::move(row_[0]);
    for (Statement& s : made.body) kernel_.body.push_back(std::move(s));
  }

  Workshop& shop_;
  Program& program_;
  Space space_;
  std::vector<Range> inner_;
  std::optional<Range> lane_;
  AxisId block_;             ///< of rows that are walked in blocks
  std::vector<Range> each_;  ///< and the rows of one
  bool streams_ = false;
  bool rewritten_ = false, inner_merged_ = false;
  std::vector<Statement> fill_;
  size_t rank_ = 0, last_ = 0, level_ = 0;
  int64_t kept_bytes_ = 0;
  std::vector<Member> members_;
  std::unordered_map<BufferId, size_t> member_of_;
  std::vector<TermId> folds_;
  std::unordered_map<TermId, size_t> fold_levels_;
  std::unordered_map<TermId, TermId> fold_values_, hoisted_;
  std::unique_ptr<Rewrite> row_rewrite_;
  std::vector<std::unique_ptr<Phase>> phases_;
  std::vector<std::vector<Statement>> row_;
  std::map<std::string, int> names_;
  Kernel kernel_;
};

}  // namespace

Kernel build(Workshop& shop, const std::vector<const Equation*>& members, const Space& space) {
  return Builder(shop, members, space).run();
}

}  // namespace magneto::schedule
