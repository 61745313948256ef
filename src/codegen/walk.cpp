// A kernel as operations of a target.
//
// A loop with vector W and unroll U is written up to three times: W * U elements a step, then W, then one. In the first
// two, every statement is written for each copy (U of them) with values of W lanes; a term that does not depend on the
// vector axis is a scalar and is spread over the lanes where it meets one that does. Folds have vector accumulators,
// joined and folded across their lanes after the loops.
//
// Where threads share a point (target.h), they share the elements of a phase, neighbours reading neighbours; values are
// scalars, and copies are what one thread computes at once. See the last part of this file.
//
// A term is written once in each scope, copy and form (scalar or vector), in the outermost scope where all it depends
// on is known; what reads memory or may fault stays where it stands.
#include "codegen/walk.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "codegen/abi.h"
#include "codegen/groups_internal.h"
#include "codegen/held.h"
#include "loop/semantics.h"
#include "loop/uses.h"

namespace magneto::codegen {

using namespace loop;

namespace {

struct Accumulator {
  Value value, position;
};

class Walker {
 public:
  Walker(const Program& program, const Uses& uses, const Kernel& kernel, Target& target)
      : program_(program), kernel_(kernel), target_(target), sharing_(target.sharing()), uses_(uses), scopes_(1) {
    std::set<BufferId> loaded;
    for (const TermId id : terms_of(program, kernel)) {
      const Term& t = program.term(id);
      for (const TermId operand : t.operands) ++readers_[operand];
      if (t.op == Op::kLoad || t.op == Op::kGuarded) loaded.insert(BufferId(t.id));
    }
    if (sharing_) held_ = held_of(program, kernel);
    for_each_statement(kernel.body, [&](const Statement& s) {
      rereads_ |= s.buffer.valid() && loaded.count(s.buffer) && !held_.rows.count(s.buffer);
    });
    const auto statement = [&](const Statement& s) { for_each_term(s, [&](TermId id) { ++readers_[id]; }); };
    for_each_statement(kernel.once, statement);
    for_each_statement(kernel.body, statement);
  }

  void run(Value point, const Value& limit, bool one_point) {
    for (const Statement& s : kernel_.once) statement(s);
    if (one_point) {
      scopes_.emplace_back();
      target_.write_at(writing_ = 1);
      outer(point);
      return block(kernel_.body);
    }
    target_.loop(point, limit, 1, {}, [&] {
      scopes_.emplace_back();
      writing_ = depth();
      outer(point);
      block(kernel_.body);
      scopes_.pop_back();
      writing_ = depth();
    });
  }

 private:
  struct Scope {
    std::map<std::pair<TermId, int>, Value> known;
  };
  struct LocalState {
    size_t depth = 0;
    bool varying = false;
    std::vector<Value> copies;
  };
  struct AxisState {
    size_t depth = 0;
    Value value;
  };

  size_t depth() const { return scopes_.size() - 1; }

  // ---- the outer space
  // -----------------------------------------------------------------------------------------------

  void outer(const Value& point) {
    Value rest = point;
    for (size_t k = kernel_.outer.size(); k-- > 0;) {
      const Range& r = kernel_.outer[k];
      const types::Expr begin = *program_.as_size(r.begin), extent = *program_.as_size(r.end) - begin;
      Value value = k == 0 ? rest : target_.binary(Op::kMod, rest, target_.size(extent));
      if (k > 0) rest = target_.keep(target_.binary(Op::kFloorDiv, rest, target_.size(extent)), "rest");
      if (!(begin == types::Expr(0))) value = target_.binary(Op::kAdd, value, target_.size(begin));
      axes_[r.axis] = {depth(), target_.keep(value, program_.axis_name(r.axis))};
    }
  }

  // ---- terms
  // -----------------------------------------------------------------------------------------------------------

  bool varying(TermId id) const {
    if (lanes_ * copies_ == 1 && !lane_axis_.valid()) return false;
    const Use& use = uses_.of(id);
    if (lane_axis_.valid() && std::binary_search(use.axes.begin(), use.axes.end(), lane_axis_)) return true;
    return std::any_of(use.locals.begin(), use.locals.end(), [&](LocalId l) {
      const auto at = locals_.find(l);
      return at != locals_.end() && at->second.varying;
    });
  }

  size_t depth_of(TermId id) const {
    const Use& use = uses_.of(id);
    if (use.loads || use.may_fault) return depth();
    size_t deepest = 0;
    for (const AxisId axis : use.axes) deepest = std::max(deepest, axes_.at(axis).depth);
    for (const LocalId local : use.locals) deepest = std::max(deepest, locals_.at(local).depth);
    return deepest;
  }

  /// Runs `write` with the text going to scope `at`.
  template <class Write>
  Value in_scope(size_t at, const Write& write) {
    if (at == depth()) return write();
    const size_t before = writing_;
    target_.write_at(writing_ = std::min(before, at));
    Value made = write();
    target_.write_at(writing_ = before);
    return made;
  }

  /// The value of a term for one copy: of all its lanes, or of the first.
  Value emit(TermId id, int copy, bool vector) {
    const Term& t = program_.term(id);
    vector = vector && lanes_ > 1;
    if (t.op == Op::kConstant) return target_.constant({t.dtype, vector ? lanes_ : 1}, program_.number(t));
    const bool varies = varying(id);
    if (!varies) copy = 0;
    const size_t at = depth_of(id);
    auto& known = scopes_[at].known;
    const auto key = std::make_pair(id, varies ? 2 + 2 * copy + vector : vector ? -lanes_ : 0);
    if (const auto found = known.find(key); found != known.end()) return found->second;
    const bool leaf = t.op == Op::kLocal || t.op == Op::kAxis || t.op == Op::kSize;
    Value made = in_scope(at, [&] {
      if (!varies && vector) return target_.keep(target_.splat(emit(id, 0, false), lanes_), "all");
      Value value = compute(id, t, copy, vector);
      if (leaf && !vector) return value;
      return readers_[id] > 1 || at < depth() ? target_.keep(value, hint(t)) : value;
    });
    return known[key] = made;
  }

  static std::string_view hint(const Term& t) { return t.op == Op::kLoad || t.op == Op::kGuarded ? "x" : "t"; }

  Value compute(TermId id, const Term& t, int copy, bool vector) {
    const auto operand = [&](size_t k) { return emit(t.operands[k], copy, vector); };
    switch (t.op) {
      case Op::kSize:
        return target_.size(program_.size_of(t));
      case Op::kAxis: {
        const Value& base = axes_.at(AxisId(t.id)).value;
        if (AxisId(t.id) != lane_axis_) return base;
        if (in_held_) return held_place(copy);
        const int64_t ahead = offset_of(copy);
        Value first = ahead ? target_.binary(Op::kAdd, base, whole(ahead)) : base;
        return vector ? target_.steps(first, lanes_) : first;
      }
      case Op::kLocal: {
        const LocalState& local = locals_.at(LocalId(t.id));
        const Value& value = local.copies[local.varying ? static_cast<size_t>(copy) : 0];
        return value.type.lanes > 1 && !vector ? target_.lane(value, 0) : value;
      }
      case Op::kLoad:
        if (held_.rows.count(BufferId(t.id))) return held_values_.at(BufferId(t.id))[static_cast<size_t>(copy)];
        if (group_ > 1 && grouped_.loads.count(id)) return from_group(id, t, copy);
        return target_.load(access(BufferId(t.id), t.operands, copy, vector));
      case Op::kGuarded: {
        const size_t rank = t.operands.size() - 2;
        const std::vector<TermId> index(t.operands.begin(), t.operands.begin() + static_cast<long>(rank));
        Access place = access(BufferId(t.id), index, copy, vector);
        if (vector && place.type.lanes == 1) {  // one place, read by those lanes whose condition holds
          place.type.lanes = lanes_;
          place.kind = Access::Kind::kGather;
          place.offset = target_.splat(place.offset, lanes_);
        }
        const bool by_lane = vector && varying(t.operands[rank]);
        const Value mask = emit(t.operands[rank], copy, by_lane), otherwise = operand(rank + 1);
        place.mask = &mask;
        place.otherwise = &otherwise;
        return target_.load(place);
      }
      default:
        break;
    }
    // one after the other: C++ leaves the order of arguments open, and the text must not
    const Value a = operand(0);
    if (t.op == Op::kCast) return target_.cast(t.dtype, a);
    if (t.op == Op::kBits) return target_.bits(t.dtype, a);
    if (traits(t.op).operands == 1) return target_.unary(t.op, a);
    const Value b = operand(1);
    if (traits(t.op).operands == 2) return target_.binary(t.op, a, b);
    const Value c = operand(2);
    return t.op == Op::kWhere ? target_.where(a, b, c) : target_.fma(a, b, c);
  }

  Value whole(int64_t value) { return target_.constant({Dtype::kI64, 1}, Number::of_int(value)); }

  // ---- memory
  // ----------------------------------------------------------------------------------------------------------

  Access access(BufferId id, const std::vector<TermId>& index, int copy, bool vector) {
    Access made;
    made.buffer = id;
    made.type = {program_.buffer(id).type.dtype, vector ? lanes_ : 1};
    const bool varies =
        vector && lanes_ > 1 && std::any_of(index.begin(), index.end(), [&](TermId i) { return varying(i); });
    if (!varies) {
      made.type.lanes = 1;
      made.offset = offset(id, index, copy, false);
      return made;
    }
    // a value that varies is not affine, whatever the axis does
    const bool affine = std::none_of(index.begin(), index.end(), [&](TermId i) {
      const auto& locals = uses_.of(i).locals;
      return std::any_of(locals.begin(), locals.end(), [&](LocalId l) { return locals_.at(l).varying; });
    });
    const auto stride = affine ? stride_along(program_, uses_, id, index, lane_axis_) : std::nullopt;
    if (!stride) {
      made.kind = Access::Kind::kGather;
    } else if (*stride == types::Expr(1)) {
      made.kind = Access::Kind::kVector;
    } else {
      made.kind = Access::Kind::kStrided;
      made.stride = target_.size(*stride);
    }
    made.offset = offset(id, index, copy, made.kind == Access::Kind::kGather);
    return made;
  }

  /// offset + index[0] * strides[0] + ..., summed up from the outermost scope inwards.
  Value offset(BufferId id, const std::vector<TermId>& index, int copy, bool vector) {
    const types::TensorType& type = program_.buffer(id).type;
    std::vector<std::pair<size_t, size_t>> order;  // scope, dimension
    for (size_t d = 0; d < index.size(); ++d) order.emplace_back(depth_of(index[d]), d);
    std::stable_sort(order.begin(), order.end());
    Value sum;
    const auto add = [&](const Value& part) { sum = sum.text.empty() ? part : target_.binary(Op::kAdd, sum, part); };
    if (!(type.offset == types::Expr(0))) add(target_.size(type.offset));
    for (size_t k = 0; k < order.size(); ++k) {
      const auto [scope, d] = order[k];
      const auto number = program_.as_size(index[d]);
      if (number && *number == types::Expr(0)) continue;
      in_scope(scope, [&] {
        const bool by_lane = vector && varying(index[d]);  // one for each lane from here on
        Value part = emit(index[d], copy, by_lane);
        const bool one = type.strides[d] == types::Expr(1);
        if (by_lane) {
          if (!one) part = target_.binary(Op::kMul, part, target_.splat(target_.size(type.strides[d]), lanes_));
          if (!sum.text.empty() && sum.type.lanes == 1) sum = target_.splat(sum, lanes_);
        } else {
          if (!one) part = target_.binary(Op::kMul, part, target_.size(type.strides[d]));
          if (!sum.text.empty() && sum.type.lanes > 1) part = target_.splat(part, lanes_);
        }
        add(part);
        if (scope < depth() && (k + 1 == order.size() || order[k + 1].first != scope)) sum = target_.keep(sum, "at");
        return sum;
      });
    }
    if (sum.text.empty()) sum = whole(0);
    if (vector && sum.type.lanes == 1) sum = target_.splat(sum, lanes_);
    return sum;
  }

  // ---- statements
  // --------------------------------------------------------------------------------------------------------

  void block(const std::vector<Statement>& body) {
    for (const Statement& s : body) statement(s);
  }

  void statement(const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::kLet: {
        LocalState& local = locals_[s.local] = {};
        local.varying = varying(s.value);
        local.depth = depth();
        const std::string& name = program_.local_of(s.local).name;
        for (int copy = 0; copy < (local.varying ? copies_ : 1); ++copy)
          local.copies.push_back(target_.keep(emit(s.value, copy, local.varying), name));
        return;
      }
      case Statement::Kind::kFold:
      case Statement::Kind::kScan:
        for (int copy = 0; copy < copies_; ++copy) fold(s, copy);
        return;
      case Statement::Kind::kStore:
      case Statement::Kind::kUpdate: {
        if (held_.rows.count(s.buffer)) return hold(s);
        if (group_ > 1 && grouped_.stores.count(&s)) return store_groups(s);
        const bool varies =
            varying(s.value) || std::any_of(s.index.begin(), s.index.end(), [&](TermId id) { return varying(id); });
        for (int copy = 0; copy < (varies ? copies_ : 1); ++copy) {
          const Access place = access(s.buffer, s.index, copy, true);
          const Value value = emit(s.value, copy, place.type.lanes > 1);
          if (const Value* guard = guard_of(copy)) sharing_->when(*guard);
          if (s.kind == Statement::Kind::kStore)
            target_.store(place, value, !in_phase_ && !lane_axis_.valid());
          else if (place.type.lanes > 1)  // no two lanes meet
            target_.store(place, folded(*s.fold, value, target_.load(place)), false);
          else
            target_.update(place, *s.fold, value, s.atomic, !in_phase_ && !lane_axis_.valid());
        }
        stored_ |= !in_phase_;
        return;
      }
      case Statement::Kind::kLoop:
        if (s.loop.front().kind == Loop::Kind::kEach) return each(s.loop.front(), 0);
        if (s.loop.front().kind == Loop::Kind::kPhase)
          return sharing_ ? shared_phase(s.loop.front()) : phase(s.loop.front());
        return sharing_ ? shared_lanes(s.loop.front()) : lanes(s.loop.front());
    }
  }

  // ---- folds
  // -----------------------------------------------------------------------------------------------------------

  Dtype element(const Statement& s) const { return program_.term(s.value).dtype; }

  Accumulator start(const Statement& s, int lanes, const std::string& suffix) {
    const Folded first = identity(*s.fold, element(s));
    const std::string name = program_.local_of(s.local).name + suffix;
    Accumulator made;
    made.value = target_.variable(name, target_.constant({element(s), lanes}, first.value));
    if (gives_position(*s.fold))
      made.position =
          target_.variable(name + "_at", target_.constant({Dtype::kI64, lanes}, Number::of_int(first.position)));
    return made;
  }

  /// What was folded so far with one value more; not argmax and argmin.
  Value folded(Fold fold, const Value& value, const Value& so_far) {
    switch (fold) {
      case Fold::kProd:
        return target_.binary(Op::kMul, so_far, value);
      case Fold::kMax:
        return target_.binary(Op::kMax, value, so_far);
      case Fold::kMin:
        return target_.binary(Op::kMin, value, so_far);
      case Fold::kAny:
        return target_.binary(Op::kOr, so_far, value);
      case Fold::kAll:
        return target_.binary(Op::kAnd, so_far, value);
      default:
        return target_.binary(Op::kAdd, so_far, value);
    }
  }

  /// Joins a fold with another, or with an element.
  void join(Fold fold, Accumulator& into, const Value& value, const Value& position) {
    if (!gives_position(fold)) return target_.assign(into.value, folded(fold, value, into.value));
    const auto either = [&](const Value& a, const Value& b) { return target_.binary(Op::kOr, a, b); };
    const auto both = [&](const Value& a, const Value& b) { return target_.binary(Op::kAnd, a, b); };
    const Value a = into.value, b = target_.keep(value, "b");
    const Value at = target_.keep(position, "at");
    Value better = target_.binary(fold == Fold::kArgmax ? Op::kGt : Op::kLt, b, a);
    Value equal = target_.binary(Op::kEq, b, a);
    if (types::is_floating(b.type.dtype)) {
      const Value nan = target_.keep(target_.binary(Op::kNe, b, b), "nan");
      better = either(better, both(nan, target_.binary(Op::kEq, a, a)));
      equal = either(equal, both(nan, target_.binary(Op::kNe, a, a)));
    }
    const Value earlier = target_.binary(Op::kLt, at, into.position);
    const Value take = target_.keep(either(better, both(equal, earlier)), "take");
    target_.assign(into.value, target_.where(take, b, a));
    target_.assign(into.position, target_.where(take, at, into.position));
  }

  void fold(const Statement& s, int copy) {
    std::vector<Accumulator>& list = (*accumulators_)[s.local];
    Accumulator& into = list[static_cast<size_t>(copy) % list.size()];
    Value value = emit(s.value, copy, true);
    Value position = s.position.valid() ? emit(s.position, copy, true) : Value{};
    if (const Value* inside = inside_of(copy)) {
      const Folded none = identity(*s.fold, element(s));
      value = target_.where(*inside, value, target_.constant({element(s), 1}, none.value));
      if (gives_position(*s.fold)) position = target_.where(*inside, position, whole(none.position));
    }
    join(*s.fold, into, value, position);
    if (s.kind != Statement::Kind::kScan) return;
    LocalState& local = locals_[s.local];
    if (copy == 0) local = {depth(), lane_axis_.valid(), {}};
    local.copies.push_back(target_.keep(gives_position(*s.fold) ? into.position : into.value,
                                        program_.local_of(s.local).name + "_so_far"));
  }

  static std::vector<const Statement*> folds_of(const std::vector<Statement>& body) {
    std::vector<const Statement*> list;
    for (const Statement& s : body)
      if (s.kind == Statement::Kind::kFold || s.kind == Statement::Kind::kScan) list.push_back(&s);
    return list;
  }

  using Accumulators = std::map<LocalId, std::vector<Accumulator>>;

  static std::vector<Value*> carried(Accumulators& all, size_t first) {
    std::vector<Value*> list;
    for (auto& [local, accumulators] : all)
      for (size_t k = 0; k < std::min(first, accumulators.size()); ++k) {
        list.push_back(&accumulators[k].value);
        if (!accumulators[k].position.text.empty()) list.push_back(&accumulators[k].position);
      }
    return list;
  }

  // ---- loops
  // ---------------------------------------------------------------------------------------------------------

  /// Whether two steps along the last axis may update one place: then they are written one after the other.
  bool updates(const Loop& l) const {
    return std::any_of(l.body.begin(), l.body.end(), [&](const Statement& s) {
      if (s.kind != Statement::Kind::kUpdate) return false;
      if (s.atomic || sharing_ || is_half(program_.buffer(s.buffer).type.dtype)) return true;
      const bool by_value =
          std::any_of(s.index.begin(), s.index.end(), [&](TermId id) { return !uses_.of(id).locals.empty(); });
      const auto stride = stride_along(program_, uses_, s.buffer, s.index, l.ranges.back().axis);
      return by_value || !stride || !(*stride == types::Expr(1));
    });
  }

  Value limit(const Value& end, int64_t step) {
    return step == 1 ? end : target_.keep(target_.binary(Op::kSub, end, whole(step - 1)), "end");
  }

  /// Scalar loops over all axes of a phase but the last. Rows of threads share the axis `spread`, if any.
  void outer_axes(const Loop& l, size_t k, size_t spread, const std::function<std::vector<Value*>()>& variables,
                  const std::function<void()>& body) {
    if (k + 1 == l.ranges.size()) return body();
    const Range& r = l.ranges[k];
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value first = emit(r.begin, 0, false);
    if (k == spread) first = target_.binary(Op::kAdd, first, sharing_->thread_across(along_));
    Value axis = target_.variable(program_.axis_name(r.axis), first);
    if (k == spread && k + 2 == l.ranges.size() && most_of(l.ranges.back()).value_or(INT64_MAX) <= along_)
      sharing_->unroll_next(4);  // what one step loads is not waited for by the next
    target_.loop(axis, end, k == spread ? across_ : 1, variables(), [&] {
      scopes_.emplace_back();
      writing_ = depth();
      axes_[r.axis] = {depth(), axis};
      outer_axes(l, k + 1, spread, variables, body);
      scopes_.pop_back();
      writing_ = depth();
    });
  }

  struct Step {
    int lanes, copies;
  };

  /// The versions of a loop that are needed: all vectors of a step, one vector, one element.
  std::vector<Step> steps_of(const Loop& l) const {
    int vector = l.vector, unroll = l.unroll;
    if (updates(l)) vector = unroll = 1;
    std::vector<Step> list;
    const Range& r = l.ranges.back();
    const auto begin = program_.as_size(r.begin), end = program_.as_size(r.end);
    const types::Expr extent = begin && end ? *end - *begin : types::Expr::symbol(0);
    const bool fixed = begin && end && extent.is_constant();
    int64_t rest = fixed ? std::max<int64_t>(extent.value_or(0), 0) : INT64_MAX;
    const bool whole = l.tail == Loop::Tail::kNone && !updates(l);
    const auto add = [&](int lanes, int copies) {
      if (!list.empty() && list.back().lanes == lanes && list.back().copies == copies) return;
      if (fixed && rest < lanes * copies) return;
      list.push_back({lanes, copies});
      if (fixed) rest %= lanes * copies;
    };
    add(vector, unroll);
    if (!whole) {
      add(vector, 1);
      add(1, 1);
    }
    return list;
  }

  void phase(const Loop& l) {
    const bool in_lanes = lane_axis_.valid();
    const std::vector<const Statement*> folds = folds_of(l.body);
    const std::vector<Step> steps = steps_of(l);
    const bool vectorised =
        !in_lanes && std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.lanes * s.copies > 1; });
    Accumulators all;     // of the steps with more than one element; in lanes, of all
    Accumulators single;  // of the steps with one
    for (const Statement* s : folds) {
      if (in_lanes) {
        for (int k = 0; k < copies_; ++k)
          all[s->local].push_back(start(*s, lanes_, copies_ > 1 ? base::concat("_", k) : ""));
      } else {
        single[s->local].push_back(start(*s, 1, ""));
        const int lanes = steps.empty() ? 1 : steps.front().lanes;
        const int count = steps.empty() ? 1 : std::min(l.accumulators, steps.front().copies);
        if (vectorised)
          for (int k = 0; k < count; ++k) all[s->local].push_back(start(*s, lanes, base::concat("_", k)));
      }
    }
    const auto variables = [&] {
      std::vector<Value*> list = carried(all, SIZE_MAX), more = carried(single, SIZE_MAX);
      list.insert(list.end(), more.begin(), more.end());
      return list;
    };
    const bool was_in_phase = in_phase_;
    in_phase_ = true;
    outer_axes(l, 0, SIZE_MAX, variables, [&] {
      if (in_lanes)
        serial(l.ranges.back(), l.body, all);
      else
        inner(l, steps, all, single);
    });
    in_phase_ = was_in_phase;
    for (const Statement* s : folds) finish(*s, in_lanes, all, single);
  }

  /// One element after the other, all lanes at once.
  void serial(const Range& r, const std::vector<Statement>& body, Accumulators& all) {
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    loop_body(r, axis, end, 1, carried(all, SIZE_MAX), body, all);
  }

  void loop_body(const Range& r, Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& variables,
                 const std::vector<Statement>& body, Accumulators& accumulators) {
    if (in_blocks(r, step, body)) return blocks(r, axis, limit, step, variables, body, accumulators);
    one_loop(r, axis, limit, step, variables, body, accumulators);
  }

  void one_loop(const Range& r, Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& variables,
                const std::vector<Statement>& body, Accumulators& accumulators) {
    target_.loop(axis, limit, step, variables, [&] {
      scopes_.emplace_back();
      writing_ = depth();
      axes_[r.axis] = {depth(), axis};
      Accumulators* const before = accumulators_;
      accumulators_ = &accumulators;
      block(body);
      accumulators_ = before;
      scopes_.pop_back();
      writing_ = depth();
    });
  }

  // The rounding errors of a sum grow with the number of terms that are added one after the other. On a CPU a long sum
  // of floats is made of the sums of its blocks:
  //
  //     for (b = begin; b < end; b += kBlock * step) {
  //       sum_b = 0;
  //       for (; j < min(end, b + kBlock * step); j += step) sum_b += ...;
  //       sum += sum_b;
  //     }
  static constexpr int64_t kBlock = 128;

  bool in_blocks(const Range& r, int64_t step, const std::vector<Statement>& body) const {
    if (sharing_ || most_of(r).value_or(INT64_MAX) <= 2 * kBlock * step) return false;
    bool sums = false;
    for (const Statement* s : folds_of(body)) {
      if (s->kind == Statement::Kind::kScan || gives_position(*s->fold)) return false;
      sums = sums || (*s->fold == Fold::kSum && element(*s) == Dtype::kF32);
    }
    return sums;
  }

  void blocks(const Range& r, Value& axis, const Value& limit, int64_t step, std::vector<Value*> variables,
              const std::vector<Statement>& body, Accumulators& accumulators) {
    const std::vector<const Statement*> folds = folds_of(body);
    variables.push_back(&axis);
    Value first = target_.variable("block", axis);
    target_.loop(first, limit, step * kBlock, variables, [&] {
      scopes_.emplace_back();
      writing_ = depth();
      Accumulators own;
      for (const Statement* s : folds)
        for (Accumulator& total : accumulators[s->local])
          if (std::find(variables.begin(), variables.end(), &total.value) != variables.end())
            own[s->local].push_back(start(*s, total.value.type.lanes, "_block"));
      const Value past = target_.binary(Op::kAdd, first, whole(step * kBlock));
      const Value end = target_.keep(target_.binary(Op::kMin, limit, past), "end");
      one_loop(r, axis, end, step, carried(own, SIZE_MAX), body, own);
      for (const Statement* s : folds)
        for (size_t k = 0; k < own[s->local].size(); ++k)
          join(*s->fold, accumulators[s->local][k], own[s->local][k].value, {});
      scopes_.pop_back();
      writing_ = depth();
    });
  }

  void inner(const Loop& l, const std::vector<Step>& steps, Accumulators& all, Accumulators& single) {
    const Range& r = l.ranges.back();
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    for (const Step& step : steps) {
      lanes_ = step.lanes;
      copies_ = step.copies;
      const bool one = step.lanes * step.copies == 1;
      if (!one) lane_axis_ = r.axis;
      const int64_t ahead = int64_t{step.lanes} * step.copies;
      const Value stop = limit(end, ahead);
      Accumulators& used = one ? single : all;
      loop_body(r, axis, stop, ahead, carried(used, static_cast<size_t>(step.copies)), l.body, used);
      lanes_ = copies_ = 1;
      lane_axis_ = {};
    }
  }

  void finish(const Statement& s, bool in_lanes, Accumulators& all, Accumulators& single) {
    const auto result = [&](const Accumulator& a) { return gives_position(*s.fold) ? a.position : a.value; };
    const std::string& name = program_.local_of(s.local).name;
    LocalState& local = locals_[s.local] = {};
    local.depth = depth();
    if (in_lanes) {
      local.varying = true;
      for (Accumulator& a : all[s.local]) {
        if (sharing_ && across_ > 1) share(s, a, along_);
        local.copies.push_back(target_.keep(result(a), name));
      }
      return;
    }
    Accumulator& total = single[s.local].front();
    if (const auto found = all.find(s.local); found != all.end()) {
      std::vector<Accumulator>& list = found->second;
      for (size_t k = 1; k < list.size(); ++k) join(*s.fold, list[0], list[k].value, list[k].position);
      const int lanes = list[0].value.type.lanes;
      if (lanes == 1) {
        join(*s.fold, total, list[0].value, list[0].position);
      } else if (!gives_position(*s.fold)) {
        join(*s.fold, total, target_.horizontal(*s.fold, list[0].value), {});
      } else {
        for (int k = 0; k < lanes; ++k)
          join(*s.fold, total, target_.lane(list[0].value, k), target_.lane(list[0].position, k));
      }
    }
    if (sharing_ && sharing_->threads() > 1) share(s, total, 1);
    local.copies.push_back(target_.keep(result(total), name));
  }

  /// One row after the other. Threads that share a point walk them together.
  void each(const Loop& l, size_t k) {
    const Range& r = l.ranges[k];
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    target_.loop(axis, end, 1, {}, [&] {
      scopes_.emplace_back();
      writing_ = depth();
      axes_[r.axis] = {depth(), axis};
      if (k + 1 < l.ranges.size())
        each(l, k + 1);
      else
        block(l.body);
      // the next row stores to what this one has read
      if (sharing_ && rereads_ && k + 1 == l.ranges.size()) sharing_->meet();
      scopes_.pop_back();
      writing_ = depth();
    });
  }

  void lanes(const Loop& l) {
    const Range& r = l.ranges.back();
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    for (const Step& step : steps_of(l)) {
      lanes_ = step.lanes;
      copies_ = step.copies;
      lane_axis_ = r.axis;
      const int64_t ahead = int64_t{step.lanes} * step.copies;
      const Value stop = limit(end, ahead);
      target_.loop(axis, stop, ahead, {}, [&] {
        scopes_.emplace_back();
        writing_ = depth();
        axes_[r.axis] = {depth(), axis};
        block(l.body);
        scopes_.pop_back();
        writing_ = depth();
      });
      lanes_ = copies_ = 1;
      lane_axis_ = {};
    }
  }

  // ---- threads
  // ---------------------------------------------------------------------------------------------------------
  //
  // The threads of a point share the last axis of a phase: element k is of thread k mod `along`, so that neighbours
  // read neighbours. A phase of few elements has no loop (held.h). Where a phase has more axes and the last one is
  // short, rows of threads share another one. A phase is written up to three times: *groups* of neighbouring elements,
  // read and written at once where all memory that is walked element by element is aligned (which may be known only
  // when the kernel runs); *copies*, elements `along` apart; and one element.
  //
  //     const i64 whole = aligned ? n & -4 : 0;
  //     for (j = begin + thread * 4; j < begin + whole; j += threads * 4) { x = load of 4; ...; store of 4 }
  //     for (j = begin + whole + thread; j < end; j += threads) { ... }
  //
  // *Lanes* have a column for each of the first `along` threads; the rows of the phases inside are shared by rows of
  // threads, and folds are joined across them. All threads stay together, since they meet: those after the last column
  // compute it once more and store nothing.

  struct Way {
    int copies, group;
  };
  int64_t offset_of(int copy) const {
    if (!sharing_) return int64_t{copy} * lanes_;
    return int64_t{copy / group_} * along_ * group_ + copy % group_;
  }

  std::optional<int64_t> extent_of(const Range& r) const { return loop::extent_of(program_, r); }
  std::optional<int64_t> most_of(const Range& r) const { return loop::most_of(program_, r); }

  void share(const Statement& s, Accumulator& a, int along) {
    if (gives_position(*s.fold))
      sharing_->shared_position(*s.fold, a.value, a.position, along);
    else
      a.value = sharing_->shared(*s.fold, a.value, along);
  }

  static int power_of_two(int64_t at_least, int most) {
    int made = 1;
    while (made < at_least && made * 2 <= most) made *= 2;
    return made;
  }

  /// Decides how threads share a phase; the axis that rows of them share, or SIZE_MAX.
  size_t spread(const Loop& l) {
    const int threads = sharing_->threads();
    along_ = threads;
    across_ = 1;
    if (l.ranges.size() == 1) return SIZE_MAX;
    along_ = power_of_two(most_of(l.ranges.back()).value_or(32), threads);
    across_ = threads / along_;
    size_t longest = 0;
    const auto length = [&](size_t k) { return most_of(l.ranges[k]).value_or(256); };
    for (size_t k = 1; k + 1 < l.ranges.size(); ++k)
      if (length(k) > length(longest)) longest = k;
    return across_ > 1 ? longest : SIZE_MAX;
  }

  std::vector<Way> ways_of(const Loop& l, const Grouped& grouped) const {
    const bool in_order =
        std::any_of(l.body.begin(), l.body.end(), [](const Statement& s) { return s.kind == Statement::Kind::kScan; });
    if (in_order || updates(l)) return {{1, 1}};
    size_t item = 16;
    for (const auto& [buffer, index] : grouped.places)
      item = std::min(item, types::item_size(program_.buffer(buffer).type.dtype));
    // text costs compile time: a long body is not written many times
    const int most = std::clamp<int>(kMostTerms / static_cast<int>(grouped.terms + 1), 1, kMostCopies);
    const auto largest = [](int64_t a, int b) { return power_of_two(a / 2 + 1, b); };  // power of two up to both
    const int group = largest(l.vector, std::min(most, static_cast<int>(16 / item)));
    const auto extent = extent_of(l.ranges.back());
    const bool groups = group > 1 && l.ranges.size() == 1 && extent.value_or(0) % group == 0;
    const bool only_groups = groups && is_multiple(program_, l.ranges.back(), group);
    std::vector<Way> list;
    if (groups && l.unroll > 1 && 2 * group <= most) list.push_back({std::min(most / group, l.unroll) * group, group});
    if (groups) list.push_back({group, group});
    const auto longest = most_of(l.ranges.back());
    // where few blocks walk long rows, each thread must have much under way
    const bool is_long = longest && *longest >= int64_t{2 * kMostCopies} * along_ && along_ >= kManyThreads;
    int copies = largest(int64_t{l.vector} * l.unroll * (is_long ? 2 : 1),
                         std::min(most, is_long ? kMostCopies : kMostCopies / 2));
    while (copies > 1 && longest && int64_t{copies - 1} * along_ >= *longest) copies /= 2;
    if (only_groups && are_aligned(program_, grouped.places, l.ranges.back(), group)) return list;
    if (copies > 1 && !only_groups) list.push_back({copies, 1});
    list.push_back({1, 1});
    return list;
  }
  static constexpr int kMostTerms = 400;
  static constexpr int kMostCopies = 8;
  static constexpr int kManyThreads = 512;

  Value from_group(TermId id, const Term& t, int copy) {
    const int number = copy / group_;
    auto& known = scopes_[depth()].known;
    const auto key = std::make_pair(id, -1000 - number);
    auto found = known.find(key);
    if (found == known.end()) {
      const Value loaded = sharing_->load_group(access(BufferId(t.id), t.operands, number * group_, false), group_);
      found = known.emplace(key, loaded).first;
    }
    return sharing_->of_group(found->second, copy % group_);
  }

  void store_groups(const Statement& s) {
    for (int first = 0; first < copies_; first += group_) {
      std::vector<Value> values;
      for (int k = 0; k < group_; ++k) values.push_back(emit(s.value, first + k, false));
      const Access place = access(s.buffer, s.index, first, false);
      if (const Value* guard = guard_of(first)) sharing_->when(*guard);
      sharing_->store_group(place, values);
    }
  }

  void shared_phase(const Loop& l) {
    const bool in_lanes = lane_axis_.valid();
    const std::vector<const Statement*> folds = folds_of(l.body);
    if (rereads_ && std::exchange(stored_, false)) sharing_->meet();
    if (in_lanes) return shared_rows(l, folds);
    if (const auto held = held_.phases.find(&l); held != held_.phases.end()) return held_phase(l, held->second, folds);
    const size_t axis = spread(l);
    Grouped grouped = grouped_of(program_, uses_, l);
    const std::vector<Way> ways = ways_of(l, grouped);
    Accumulators all, single;  // of ways with more than one copy, and of the last one
    for (const Statement* s : folds) {
      single[s->local].push_back(start(*s, 1, ""));
      const int count = ways.front().copies > 1 ? std::min(ways.front().copies, 4) : 0;
      for (int k = 0; k < count; ++k) all[s->local].push_back(start(*s, 1, base::concat("_", k)));
    }
    in_phase_ = true;
    outer_axes(
        l, 0, axis, [] { return std::vector<Value*>(); }, [&] { shared_inner(l, ways, grouped, all, single); });
    in_phase_ = false;
    for (const Statement* s : folds) finish(*s, false, all, single);
    if (rereads_) sharing_->meet();
  }

  void shared_inner(const Loop& l, const std::vector<Way>& ways, const Grouped& grouped, Accumulators& all,
                    Accumulators& single) {
    const Range& r = l.ranges.back();
    const Value begin = target_.keep(emit(r.begin, 0, false), "begin"),
                end = target_.keep(emit(r.end, 0, false), "end");
    const Value thread = sharing_->thread_along(along_);
    const auto plus = [&](const Value& a, const Value& b) { return target_.binary(Op::kAdd, a, b); };
    Value from = begin, axis;
    int group = 0;  // of the way before
    for (const Way& way : ways) {
      if (way.group > 1 && group == 0) {
        from = target_.keep(plus(begin, whole_groups(l, grouped, way.group, begin, end)), "from");
        axis = target_.variable(program_.axis_name(r.axis),
                                plus(begin, target_.binary(Op::kMul, thread, whole(way.group))));
      } else if (way.group == 1 && group != 1) {
        axis = target_.variable(program_.axis_name(r.axis), plus(from, thread));
      }
      group = way.group;
      copies_ = way.copies;
      group_ = way.group;
      grouped_ = way.group > 1 ? grouped : Grouped();
      if (way.copies > 1) lane_axis_ = r.axis;
      const Value stop = limit(way.group > 1 ? from : end, int64_t{way.copies - way.group} * along_ + 1);
      Accumulators& used = way.copies > 1 ? all : single;
      const auto longest = most_of(r);
      if (longest && *longest <= int64_t{way.copies} * along_) sharing_->unroll_next(0);
      loop_body(r, axis, stop, int64_t{way.copies} * along_, {}, l.body, used);
      copies_ = group_ = 1;
      lane_axis_ = {};
    }
  }

  /// The number of elements that are walked in groups: all but a few, or none.
  Value whole_groups(const Loop& l, const Grouped& grouped, int group, const Value& begin, const Value& end) {
    const AxisId axis = l.ranges.back().axis;
    const auto known = scopes_.back().known;  // what is written for the first element holds for no other
    axes_[axis] = {depth(), begin};
    std::vector<Access> places;
    for (const auto& [buffer, index] : grouped.places) places.push_back(access(buffer, index, 0, false));
    scopes_.back().known = known;
    Value all;
    if (const auto extent = extent_of(l.ranges.back())) {
      all = whole(*extent / group * group);
    } else {
      const Value count = target_.binary(Op::kMax, target_.binary(Op::kSub, end, begin), whole(0));
      all = target_.binary(Op::kAnd, count, whole(-group));
    }
    if (are_aligned(program_, grouped.places, l.ranges.back(), group)) return all;
    return target_.where(sharing_->aligned(places, group), all, whole(0));
  }

  // A phase without a loop: `group_` elements side by side, several times, `along_` groups apart. Threads after the
  // last element compute that one once more; they neither fold nor store it.

  /// Of all phases of one length, since one thread must have the same elements in all of them.
  int held_group(int64_t length) {
    int group = Held::kMost;
    for (const auto& [l, own] : held_.phases) {
      if (own != length) continue;
      const Grouped grouped = grouped_of(program_, uses_, *l);
      size_t item = 2;
      for (const Grouped::Place& place : grouped.places)
        item = std::max(item, types::item_size(program_.buffer(place.buffer).type.dtype));
      group = std::min({group, l->vector, static_cast<int>(16 / item)});
      group = power_of_two(group / 2 + 1, group);
      while (group > 1 && (length % group != 0 || !are_aligned(program_, grouped.places, l->ranges[0], group)))
        group /= 2;
    }
    return group;
  }

  void held_phase(const Loop& l, int64_t length, const std::vector<const Statement*>& folds) {
    along_ = sharing_->threads();
    across_ = 1;
    const AxisId axis = l.ranges[0].axis;
    if (mine_.length != length || mine_.axis != axis) {
      forget(axis);
      take_places(axis, length);
    }
    in_held_ = true;
    group_ = mine_.group;
    copies_ = static_cast<int>(mine_.places.size()) * group_;
    grouped_ = group_ > 1 ? grouped_of(program_, uses_, l) : Grouped();
    lane_axis_ = axis;
    axes_[axis] = {depth(), mine_.places.front()};
    Accumulators all, single;
    for (const Statement* s : folds) {
      single[s->local].push_back(start(*s, 1, ""));
      for (int k = 0; k < std::min(copies_, 4); ++k) all[s->local].push_back(start(*s, 1, base::concat("_", k)));
    }
    in_phase_ = true;
    Accumulators* const before = std::exchange(accumulators_, &all);
    block(l.body);
    accumulators_ = before;
    in_phase_ = in_held_ = false;
    copies_ = group_ = 1;
    lane_axis_ = {};
    grouped_ = {};
    for (const Statement* s : folds) finish(*s, false, all, single);
    if (!rereads_) return;
    forget({});
    sharing_->meet();
  }

  /// A phase in lanes: rows of threads share its first axis, unless its order matters.
  void shared_rows(const Loop& l, const std::vector<const Statement*>& folds) {
    const bool in_order =
        std::any_of(folds.begin(), folds.end(), [](const Statement* s) { return s->kind == Statement::Kind::kScan; });
    Accumulators all;
    for (const Statement* s : folds) all[s->local].push_back(start(*s, 1, ""));
    const int rows = std::exchange(across_, in_order ? 1 : across_);
    const std::optional<Value> guard = guard_;
    if (!in_order) guard_ = inside_;
    in_phase_ = true;
    const size_t spread = across_ > 1 ? 0 : SIZE_MAX;
    outer_axes(
        l, 0, spread, [] { return std::vector<Value*>(); },
        [&] {
          const Range& r = l.ranges.back();
          const bool spreads = spread + 1 == l.ranges.size();
          const Value end = target_.keep(emit(r.end, 0, false), "end");
          Value first = emit(r.begin, 0, false);
          if (spreads) first = target_.binary(Op::kAdd, first, sharing_->thread_across(along_));
          Value axis = target_.variable(program_.axis_name(r.axis), first);
          sharing_->unroll_next(kMostCopies);  // a column has one load for each row: several must be under way
          loop_body(r, axis, end, spreads ? across_ : 1, {}, l.body, all);
        });
    in_phase_ = false;
    guard_ = guard;
    for (const Statement* s : folds) finish(*s, true, all, all);
    across_ = rows;
    if (rereads_) sharing_->meet();
  }

  void shared_lanes(const Loop& l) {
    const Range& r = l.ranges.back();
    const int threads = sharing_->threads();
    const int along = power_of_two((int64_t{l.vector} * l.unroll) / 2 + 1, threads);
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value base = target_.variable("base", emit(r.begin, 0, false));
    target_.loop(base, end, along, {}, [&] {
      scopes_.emplace_back();
      writing_ = depth();
      const Value place = target_.keep(target_.binary(Op::kAdd, base, sharing_->thread_along(along)), "place");
      inside_ = target_.keep(target_.binary(Op::kLt, place, end), "inside");
      const Value last = target_.binary(Op::kSub, end, whole(1));
      lane_axis_ = r.axis;
      axes_[r.axis] = {depth(), target_.keep(target_.binary(Op::kMin, place, last), program_.axis_name(r.axis))};
      along_ = along;
      across_ = threads / along;
      guard_ = inside_;
      if (across_ > 1) {
        const Value top = target_.binary(Op::kEq, sharing_->thread_across(along), whole(0));
        guard_ = target_.keep(target_.binary(Op::kAnd, inside_, top), "stores");
      }
      block(l.body);
      scopes_.pop_back();
      writing_ = depth();
    });
    lane_axis_ = {};
    guard_.reset();
  }

  /// What this thread has of the phases of this length.
  void take_places(AxisId axis, int64_t length) {
    mine_ = {axis, length, held_group(length), {}, {}};
    const int64_t step = int64_t{along_} * mine_.group;
    const Value first = target_.binary(Op::kMul, sharing_->thread_along(along_), whole(mine_.group));
    for (int64_t from = 0; from < length; from += step) {
      Value place = target_.keep(from ? target_.binary(Op::kAdd, first, whole(from)) : first, "place");
      std::optional<Value> inside;
      if (from + step > length) {
        inside = target_.keep(target_.binary(Op::kLt, place, whole(length)), "inside");
        place = target_.keep(target_.binary(Op::kMin, place, whole(length - mine_.group)), "place");
      }
      mine_.places.push_back(place);
      mine_.insides.push_back(inside);
    }
  }
  Value held_place(int copy) {
    const Value& first = mine_.places[static_cast<size_t>(copy / group_)];
    return copy % group_ ? target_.binary(Op::kAdd, first, whole(copy % group_)) : first;
  }
  /// Whether this copy of a phase without a loop is one of its elements; null: it is.
  const Value* inside_of(int copy) const {
    if (!in_held_) return nullptr;
    const std::optional<Value>& inside = mine_.insides[static_cast<size_t>(copy / group_)];
    return inside ? &*inside : nullptr;
  }
  const Value* guard_of(int copy) const {
    if (!sharing_) return nullptr;
    return guard_ ? &*guard_ : inside_of(copy);
  }
  void hold(const Statement& s) {
    std::vector<Value>& values = held_values_[s.buffer];
    values.clear();
    for (int copy = 0; copy < copies_; ++copy)
      values.push_back(target_.keep(emit(s.value, copy, false), program_.buffer(s.buffer).name));
  }
  /// What is known in this scope and depends on an axis, or, without one, on memory.
  void forget(AxisId axis) {
    std::erase_if(scopes_.back().known, [&](const auto& known) {
      return axis.valid() ? uses_.depends(known.first.first, axis) : uses_.of(known.first.first).loads;
    });
  }

  const Program& program_;
  const Kernel& kernel_;
  Target& target_;
  Sharing* const sharing_;
  const Uses& uses_;
  std::unordered_map<TermId, int> readers_;
  bool rereads_ = false;  ///< reads memory that it stores to, rows included
  std::vector<Scope> scopes_;
  size_t writing_ = 0;
  std::map<AxisId, AxisState> axes_;
  std::map<LocalId, LocalState> locals_;
  Accumulators* accumulators_ = nullptr;
  AxisId lane_axis_;
  int lanes_ = 1, copies_ = 1;
  bool in_phase_ = false;
  // where threads share a point
  int along_ = 1, across_ = 1, group_ = 1;
  Grouped grouped_;
  Value inside_;                ///< of lanes: this thread has a column
  std::optional<Value> guard_;  ///< of lanes: this thread stores
  bool stored_ = false;         ///< outside of phases, since all threads met
  /// The phase without a loop that was last, and the elements of this thread: the first of each group.
  struct Mine {
    AxisId axis;
    int64_t length = 0;
    int group = 1;
    std::vector<Value> places;
    std::vector<std::optional<Value>> insides;  ///< whether it is there; none: it is
  };
  Held held_;
  Mine mine_;
  bool in_held_ = false;
  std::map<BufferId, std::vector<Value>> held_values_;  ///< of rows in registers
};

}  // namespace

void walk(const Program& program, const Uses& uses, const Kernel& kernel, Target& target, Value point,
          const Value& limit, bool one_point) {
  Walker(program, uses, kernel, target).run(std::move(point), limit, one_point);
}

}  // namespace magneto::codegen
