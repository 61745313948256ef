// y[i0, i1] = x[i1, i0] reads a new cache line for every element. So a tile of both is kept: filled along the rows of
// x, as they lie, then read along the rows of y; both trips through memory use whole lines, and to gather from a tile
// is cheaper than to scatter into it. A row of the tile is one element longer than it must be, so that a column of it
// does not lie in one bank or cache set.
#include <algorithm>

#include "schedule/terms_internal.h"
#include "schedule/turn_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

constexpr int64_t kTile = 32;
constexpr int64_t kShort = 8;  ///< an axis that is not worth a tile

Range cut(Program& program, AxisId axis, TermId size, const char* name, std::vector<Range>& outer) {
  const AxisId tile = program.axis(name);
  const Expr extent = *program.as_size(size);
  const TermId zero = program.constant_int(0, Dtype::kI64), width = program.constant_int(kTile, Dtype::kI64);
  outer.push_back({tile, zero, program.size(Expr::ceil_div(extent, kTile))});
  const TermId begin = program.binary(Op::kMul, program.axis_value(tile), width);
  TermId end = program.binary(Op::kAdd, begin, width);
  if (!(Expr::mod(extent, kTile) == Expr(0))) end = program.binary(Op::kMin, end, size);
  return {axis, begin, end};
}

}  // namespace

std::optional<Turn> turn(Program& program, const Uses& uses, const std::vector<TermId>& sizes,
                         std::vector<Walked>& values, const Shape& shape) {
  const size_t rank = sizes.size();
  if (rank < 2) return std::nullopt;
  const auto is_short = [&](size_t k) { return program.as_size(sizes[k])->value_or(kShort) < kShort; };
  const AxisId last = canonical_axis(program, rank - 1);
  std::vector<TermId> turned;
  size_t along = SIZE_MAX;
  const auto look = [&](TermId id) {
    const Term t = program.term(id);
    if (t.op != Op::kLoad || uses.of(id).may_fault) return;
    if (std::any_of(values.begin(), values.end(), [&](const Walked& w) { return w.target == BufferId(t.id); })) return;
    const auto stride = [&](AxisId axis) { return stride_along(program, uses, BufferId(t.id), t.operands, axis); };
    const auto step = stride(last);
    if (!step || *step == Expr(0) || is_one(*step)) return;
    for (size_t k = 0; k + 1 < rank; ++k) {
      const auto other = stride(canonical_axis(program, k));
      if (!other || !is_one(*other) || is_short(k) || (along != SIZE_MAX && along != k)) continue;
      along = k;
      turned.push_back(id);
      return;
    }
  };
  for (const Walked& w : values) for_each_part(program, w.value, look);
  if (turned.empty() || is_short(rank - 1)) return std::nullopt;
  std::sort(turned.begin(), turned.end());
  turned.erase(std::unique(turned.begin(), turned.end()), turned.end());

  Turn made;
  const TermId zero = program.constant_int(0, Dtype::kI64);
  for (size_t k = 0; k + 1 < rank; ++k)
    if (k != along) made.outer.push_back({canonical_axis(program, k), zero, sizes[k]});
  const Range row = cut(program, canonical_axis(program, along), sizes[along], "ta", made.outer);
  const Range column = cut(program, last, sizes[rank - 1], "tb", made.outer);
  made.inner = {row, column};
  const auto inside = [&](const Range& r) { return program.binary(Op::kSub, program.axis_value(r.axis), r.begin); };
  const std::vector<TermId> place = {inside(column), inside(row)};

  Statement fill;
  fill.kind = Statement::Kind::kLoop;
  fill.loop.emplace_back();
  Loop& loop = fill.loop.front();
  loop.ranges = {column, row};
  loop.vector = shape.vector;
  std::unordered_map<TermId, TermId> tile_of;
  for (const TermId id : turned) {
    const Buffer from = program.buffer(BufferId(program.term(id).id));
    types::TensorType type;
    type.dtype = from.type.dtype;
    type.device = from.type.device;
    type.sizes = {kTile, kTile};
    type.strides = {kTile + 1, 1};
    const BufferId tile = program.add_buffer(fresh_name(program, from.name + "_tile"), type, Role::kRow);
    made.rows.push_back(tile);
    Statement store;
    store.kind = Statement::Kind::kStore;
    store.buffer = tile;
    store.index = place;
    store.value = id;
    loop.body.push_back(std::move(store));
    tile_of[id] = program.load(tile, place);
  }
  made.fill.push_back(std::move(fill));
  Rewrite rewrite(program, [&](TermId id) -> std::optional<TermId> {
    const auto found = tile_of.find(id);
    return found == tile_of.end() ? std::nullopt : std::optional(found->second);
  });
  for (Walked& w : values) w.value = rewrite(w.value);
  return made;
}

}  // namespace magneto::schedule
