#include "ops/body.h"

#include <algorithm>
#include <complex>

#include "base/check.h"
#include "base/text.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

Dtype computed_in(Dtype dtype) { return loop::is_half(dtype) ? Dtype::kF32 : dtype; }

void Body::promote(std::initializer_list<size_t> arguments) {
  const auto found = operands(call, arguments);
  const auto common = found ? common_dtype(call, *found) : std::nullopt;
  if (!common || types::is_complex(*common)) {
    declined_ = true;
    return;
  }
  compute_in(*common);
}

void Body::compute_in(Dtype common) {
  dtype = computed_in(common);
  half_ = loop::is_half(common) ? std::optional(common) : std::nullopt;
}

void Body::promote_to_float(std::initializer_list<size_t> arguments) {
  promote(arguments);
  if (!types::is_floating(dtype)) compute_in(call.default_dtype);
}

const TensorType& Body::type_of(size_t argument) const {
  const TensorType* found = tensor(call, argument);
  base::check(found, "ops: argument ", argument, " is no tensor");
  return *found;
}

Index Body::broadcast(const TensorType& from, const Index& to) {
  Index place;
  const size_t shift = to.size() - from.sizes.size();
  for (size_t d = 0; d < from.sizes.size(); ++d) {
    const Expr& own = from.sizes[d];
    const Expr& wanted = type.sizes.size() == to.size() ? type.sizes[d + shift] : own;
    if (own == Expr(1))
      place.push_back(whole(0));
    else if (own == wanted || known(equal(call, own, wanted)))
      place.push_back(to[d + shift]);
    else if (known(equal(call, own, 1)))
      place.push_back(whole(0));
    else
      place.push_back(decline());
  }
  return place;
}

Element Body::x(size_t argument) { return x(argument, index); }

Element Body::x(size_t argument, const Index& to) { return rounded(argument, operand(argument, to)); }

Element Body::exact(size_t argument, bool kept_on_cpu) {
  const TensorType* from = tensor(call, argument);
  const auto is_one = [](const Expr& size) { return size == Expr(1); };
  const bool is_number = !from || (ops::on_cpu(*from) && std::all_of(from->sizes.begin(), from->sizes.end(), is_one));
  const bool is_kept = is_number && (kept_on_cpu || !on_cpu());
  const Element value = operand(argument, index);
  return is_kept ? value : rounded(argument, value);
}

Element Body::as_half(Element value) const {
  return half_ && dtype == computed_in(*half_) ? cast(dtype, cast(*half_, value)) : value;
}

Element Body::rounded(size_t argument, Element value) const {
  const TensorType* from = tensor(call, argument);
  return from && half_ == from->dtype ? value : as_half(value);
}

Element Body::operand(size_t argument, const Index& to) {
  if (declined_) return number(0);
  if (!tensor(call, argument)) return scalar(argument);
  const TensorType& from = type_of(argument);
  if (from.sizes.size() > to.size()) return decline();
  return cast(dtype, at(argument, broadcast(from, to)));
}

Element Body::at(size_t argument, const Index& place) {
  return at(std::get<graph::ValueId>(call.args[argument]), place);
}

Element Body::at(graph::ValueId value, const Index& place) {
  if (declined_) return number(0, computed_in(call.type(value).dtype));
  const Element raw = load_(value, place);
  return cast(computed_in(raw.dtype()), raw);
}

Element Body::at_if(graph::ValueId value, const Index& place, Element condition, double otherwise) {
  return at_if(value, place, condition, number(otherwise, call.type(value).dtype));
}

Element Body::at_if(graph::ValueId value, const Index& place, Element condition, Element otherwise) {
  if (declined_) return number(0, computed_in(call.type(value).dtype));
  const Element raw = load_if_(value, place, condition, otherwise);
  return cast(computed_in(raw.dtype()), raw);
}

Element Body::scalar(size_t argument) {
  const graph::Arg& arg = call.args[argument];
  if (const auto* value = std::get_if<double>(&arg)) return number(*value);
  if (const auto* value = std::get_if<bool>(&arg)) return number(*value ? 1 : 0);
  if (const auto* value = std::get_if<graph::Real>(&arg))
    return cast(dtype, {program_, program_->bits(Dtype::kF64, program_->size(Expr::symbol(value->symbol)))});
  if (const auto* value = std::get_if<Expr>(&arg)) {
    if (const auto constant = value->constant(); constant && !types::is_floating(dtype))
      return {program_, program_->constant_int(*constant, dtype)};
    return cast(dtype, size(*value));
  }
  return decline();
}

Element Body::number(double value) const { return number(value, dtype); }
Element Body::number(double value, Dtype of) const {
  if (types::is_floating(of)) return {program_, program_->constant(value, of)};
  if (of == Dtype::kBool) return {program_, program_->boolean(value != 0)};
  return {program_, program_->constant_int(static_cast<int64_t>(value), of)};
}
Element Body::size(const Expr& size) const { return {program_, program_->size(size)}; }

Index Body::open(const Sizes& extents, std::vector<loop::Range>& ranges) {
  Index opened;
  for (const Expr& extent : extents) {
    if (extent == Expr(1)) {
      opened.push_back(whole(0));
      continue;
    }
    const loop::AxisId axis = program_->axis(opened_ == 0 ? "r" : base::concat("r", opened_));
    ++opened_;
    ranges.push_back({axis, program_->size(0), program_->size(extent)});
    opened.emplace_back(program_, program_->axis_value(axis));
  }
  return opened;
}

Element Body::fold(loop::Fold how, const Sizes& extents, const std::function<Element(const Index&)>& element) {
  std::vector<loop::Range> ranges;
  const Index opened = open(extents, ranges);
  const Element body = element(opened);
  if (declined_ || ranges.empty()) {
    if (loop::gives_position(how)) return whole(0);
    const bool is_sum = how == loop::Fold::kSum && types::is_floating(body.dtype());
    return is_sum ? body + 0 : body;  // a sum begins with zero: that of -0 alone is 0
  }
  return {program_, program_->reduce(how, ranges, body.term())};
}

// Dimensions are walked from the last one on both sides, in groups that hold equally many elements: [2, 3, 4] and
// [6, 4] are the groups (2, 3 | 6) and (4 | 4). Within a group the position is counted, then taken apart. Where symbols
// hide whether a group ends, it goes on.
Index reshaped(const Body& b, const Sizes& from, const Index& index, const Sizes& to) {
  Index made(to.size(), b.whole(0));
  size_t i = from.size(), o = to.size();
  const auto smaller = [](const Expr& a, const Expr& c) -> std::optional<bool> {
    if (a.is_constant() && c.is_constant()) return a.value_or(0) < c.value_or(0);
    if (a == Expr(1) || Expr::mod(c, a) == Expr(0)) return true;
    if (c == Expr(1) || Expr::mod(a, c) == Expr(0)) return false;
    return std::nullopt;
  };
  while (i > 0 || o > 0) {
    const size_t last_i = i, last_o = o;
    Expr count_i = i > 0 ? from[--i] : Expr(1), count_o = o > 0 ? to[--o] : Expr(1);
    while (count_i != count_o && (i > 0 || o > 0)) {
      const auto less = smaller(count_i, count_o);
      if (!less) {
        i = o = 0;
      } else if (o == 0 || (*less && i > 0)) {
        count_i = count_i * from[--i];
      } else {
        count_o = count_o * to[--o];
      }
    }
    Element position = b.whole(0);
    for (size_t d = i; d < last_i; ++d)
      if (from[d] != Expr(1)) position = position * b.size(from[d]) + index[d];
    std::vector<size_t> open;  // dimensions that need a part of the position
    for (size_t d = o; d < last_o; ++d)
      if (to[d] != Expr(1)) open.push_back(d);
    for (size_t k = open.size(); k-- > 0;) {
      const Element extent = b.size(to[open[k]]);
      made[open[k]] = k == 0 ? position : position % extent;
      position = k == 0 ? position : floor_div(position, extent);
    }
  }
  return made;
}

}  // namespace magneto::ops
