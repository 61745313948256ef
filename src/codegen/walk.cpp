// A kernel as operations of a target.
//
// A loop with vector W and unroll U is written up to three times: W * U elements a step, then W, then one. In the first
// two, every statement is written for each copy (U of them) with values of W lanes; a term that does not depend on the
// vector axis is a scalar and is spread over the lanes where it meets one that does. Folds have vector accumulators,
// joined and folded across their lanes behind the loops.
//
// A term is written once in each scope, copy and form (scalar or vector), in the outermost scope where all it depends
// on is known; what reads memory or may fault stays where it stands.
#include "codegen/walk.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "codegen/abi.h"
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
      : program_(program), kernel_(kernel), target_(target), uses_(uses), scopes_(1) {
    std::set<BufferId> loaded;
    for (const TermId id : terms_of(program, kernel)) {
      const Term& t = program.term(id);
      for (const TermId operand : t.operands) ++readers_[operand];
      if (t.op == Op::kLoad || t.op == Op::kGuarded) loaded.insert(BufferId(t.id));
    }
    for_each_statement(kernel.body,
                       [&](const Statement& s) { rereads_ |= s.buffer.valid() && loaded.count(s.buffer); });
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
      Value value = compute(t, copy, vector);
      if (leaf && !vector) return value;
      return readers_[id] > 1 || at < depth() ? target_.keep(value, hint(t)) : value;
    });
    return known[key] = made;
  }

  static std::string_view hint(const Term& t) { return t.op == Op::kLoad || t.op == Op::kGuarded ? "x" : "t"; }

  Value compute(const Term& t, int copy, bool vector) {
    const auto operand = [&](size_t k) { return emit(t.operands[k], copy, vector); };
    switch (t.op) {
      case Op::kSize:
        return target_.size(program_.size_of(t));
      case Op::kAxis: {
        const Value& base = axes_.at(AxisId(t.id)).value;
        if (AxisId(t.id) != lane_axis_) return base;
        const int64_t ahead = copy * target_.thread_step(lanes_);
        Value first = ahead ? target_.binary(Op::kAdd, base, whole(ahead)) : base;
        return vector ? target_.steps(first, lanes_) : first;
      }
      case Op::kLocal: {
        const LocalState& local = locals_.at(LocalId(t.id));
        const Value& value = local.copies[local.varying ? static_cast<size_t>(copy) : 0];
        return value.type.lanes > 1 && !vector ? target_.lane(value, 0) : value;
      }
      case Op::kLoad:
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
      case Op::kCast:
        return target_.cast(t.dtype, operand(0));
      case Op::kBits:
        return target_.bits(t.dtype, operand(0));
      case Op::kWhere:
        return target_.where(operand(0), operand(1), operand(2));
      case Op::kFma:
        return target_.fma(operand(0), operand(1), operand(2));
      default:
        return traits(t.op).operands == 1 ? target_.unary(t.op, operand(0))
                                          : target_.binary(t.op, operand(0), operand(1));
    }
  }

  Value whole(int64_t value) { return target_.constant({Dtype::kI64, 1}, Number::of_int(value)); }

  // ---- memory
  // ----------------------------------------------------------------------------------------------------------

  Access access(BufferId id, const std::vector<TermId>& index, int copy, bool vector) {
    Access made;
    made.buffer = id;
    made.type = {program_.buffer(id).type.dtype, vector ? lanes_ : 1};
    const bool varies = vector && std::any_of(index.begin(), index.end(), [&](TermId i) { return varying(i); });
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
        const bool varies =
            varying(s.value) || std::any_of(s.index.begin(), s.index.end(), [&](TermId id) { return varying(id); });
        for (int copy = 0; copy < (varies ? copies_ : 1); ++copy) {
          const Access place = access(s.buffer, s.index, copy, true);
          const Value value = emit(s.value, copy, place.type.lanes > 1);
          if (s.kind == Statement::Kind::kStore)
            target_.store(place, value, !in_phase_ && !lane_axis_.valid());
          else if (place.type.lanes > 1)  // no two lanes meet
            target_.store(place, folded(*s.fold, value, target_.load(place)), false);
          else
            target_.update(place, *s.fold, value, s.atomic, !in_phase_ && !lane_axis_.valid());
        }
        return;
      }
      case Statement::Kind::kLoop:
        return s.loop.front().kind == Loop::Kind::kPhase ? phase(s.loop.front()) : lanes(s.loop.front());
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
    const Value value = emit(s.value, copy, true);
    const Value position = s.position.valid() ? emit(s.position, copy, true) : Value{};
    join(*s.fold, into, value, position);
    if (s.kind != Statement::Kind::kScan) return;
    LocalState& local = locals_[s.local];
    if (copy == 0) local = {depth(), lane_axis_.valid(), {}};
    local.copies.push_back(target_.keep(gives_position(*s.fold) ? into.position : into.value,
                                        program_.local_of(s.local).name + "_so_far"));
  }

  static std::vector<const Statement*> folds_of(const Loop& l) {
    std::vector<const Statement*> list;
    for (const Statement& s : l.body)
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
  // -----------------------------------------------------------------------------------------------------------

  /// Whether two steps along the last axis may update one place: then they are written one after the other.
  bool updates(const Loop& l) const {
    return std::any_of(l.body.begin(), l.body.end(), [&](const Statement& s) {
      if (s.kind != Statement::Kind::kUpdate) return false;
      if (s.atomic || !target_.vectors() || is_half(program_.buffer(s.buffer).type.dtype)) return true;
      const bool by_value =
          std::any_of(s.index.begin(), s.index.end(), [&](TermId id) { return !uses_.of(id).locals.empty(); });
      const auto stride = stride_along(program_, uses_, s.buffer, s.index, l.ranges.back().axis);
      return by_value || !stride || !(*stride == types::Expr(1));
    });
  }

  Value limit(const Value& end, int64_t step) {
    return step == 1 ? end : target_.keep(target_.binary(Op::kSub, end, whole(step - 1)), "end");
  }

  /// Scalar loops over all axes of a phase but the last.
  void outer_axes(const Loop& l, size_t k, const std::function<std::vector<Value*>()>& variables,
                  const std::function<void()>& body) {
    if (k + 1 == l.ranges.size()) return body();
    const Range& r = l.ranges[k];
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    target_.loop(axis, end, 1, variables(), [&] {
      scopes_.emplace_back();
      writing_ = depth();
      axes_[r.axis] = {depth(), axis};
      outer_axes(l, k + 1, variables, body);
      scopes_.pop_back();
      writing_ = depth();
    });
  }

  struct Step {
    int lanes, copies;
  };

  /// The versions of a loop that are needed: all vectors of a step, one vector, one element.
  std::vector<Step> steps_of(const Loop& l) const {
    int vector = target_.vectors() ? l.vector : 1, unroll = l.unroll;
    if (updates(l)) vector = unroll = 1;
    std::vector<Step> list;
    const Range& r = l.ranges.back();
    const auto begin = program_.as_size(r.begin), end = program_.as_size(r.end);
    const types::Expr extent = begin && end ? *end - *begin : types::Expr::symbol(0);
    const bool fixed = begin && end && extent.is_constant() && target_.vectors();
    int64_t rest = fixed ? std::max<int64_t>(extent.value_or(0), 0) : INT64_MAX;
    const bool whole = l.tail == Loop::Tail::kNone && target_.vectors() && !updates(l);
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
    const std::vector<const Statement*> folds = folds_of(l);
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
    outer_axes(l, 0, variables, [&] {
      if (in_lanes)
        serial(l.ranges.back(), l.body, all);
      else
        inner(l, steps, all, single);
    });
    in_phase_ = was_in_phase;
    for (const Statement* s : folds) finish(*s, in_lanes, all, single);
    if (!in_lanes) target_.end_phase(rereads_);
  }

  /// One element after the other, all lanes at once.
  void serial(const Range& r, const std::vector<Statement>& body, Accumulators& all) {
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), emit(r.begin, 0, false));
    loop_body(r, axis, end, 1, carried(all, SIZE_MAX), body, all);
  }

  void loop_body(const Range& r, Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& variables,
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

  void inner(const Loop& l, const std::vector<Step>& steps, Accumulators& all, Accumulators& single) {
    const Range& r = l.ranges.back();
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), target_.first_of_thread(emit(r.begin, 0, false)));
    for (const Step& step : steps) {
      lanes_ = step.lanes;
      copies_ = step.copies;
      const bool one = step.lanes * step.copies == 1;
      if (!one) lane_axis_ = r.axis;
      const int64_t ahead = target_.thread_step(step.lanes) * step.copies;
      const Value stop = limit(end, ahead - target_.thread_step(step.lanes) + step.lanes);
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
      for (const Accumulator& a : all[s.local]) local.copies.push_back(target_.keep(result(a), name));
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
    if (gives_position(*s.fold))
      target_.shared_position(*s.fold, total.value, total.position);
    else
      total.value = target_.shared(*s.fold, total.value);
    local.copies.push_back(target_.keep(result(total), name));
  }

  void lanes(const Loop& l) {
    const Range& r = l.ranges.back();
    const Value end = target_.keep(emit(r.end, 0, false), "end");
    Value axis = target_.variable(program_.axis_name(r.axis), target_.first_of_thread(emit(r.begin, 0, false)));
    for (const Step& step : steps_of(l)) {
      lanes_ = step.lanes;
      copies_ = step.copies;
      lane_axis_ = r.axis;
      const int64_t ahead = target_.thread_step(step.lanes) * step.copies;
      const Value stop = limit(end, ahead - target_.thread_step(step.lanes) + step.lanes);
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

  const Program& program_;
  const Kernel& kernel_;
  Target& target_;
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
};

}  // namespace

void walk(const Program& program, const Uses& uses, const Kernel& kernel, Target& target, Value point,
          const Value& limit, bool one_point) {
  Walker(program, uses, kernel, target).run(std::move(point), limit, one_point);
}

}  // namespace magneto::codegen
