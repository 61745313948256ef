// s[j] = sum(i < n, x[i, j]). A few columns of all rows stay in registers, but then every step to the next row is a
// step to another page, which no prefetcher follows. So where there are many columns the accumulators of all of them
// lie in a kept row, and x is read as it lies in memory:
//
//   phase j < m { store acc[j] = 0.0 }
//   phase i < n, j < m { update acc[j] += x[i, j] }
//   phase j < m { let s = acc[j]   store y[j] = s }
#include <utility>

#include "loop/semantics.h"
#include "schedule/build_internal.h"
#include "schedule/stream_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

constexpr int kUnroll = 2;

Statement loop_over(const Program& program, const Shape& shape, int unroll, std::vector<Range> ranges) {
  Statement s;
  s.kind = Statement::Kind::kLoop;
  s.loop.emplace_back();
  s.loop.front().ranges = std::move(ranges);
  shape_loop(program, shape, unroll, s.loop.front());
  return s;
}

}  // namespace

BufferId add_sums(Program& program, Dtype dtype, const types::Expr& columns) {
  types::TensorType type;
  type.dtype = dtype;
  type.sizes = {columns};
  type.strides = {1};
  return program.add_buffer(fresh_name(program, "sums"), type, Role::kRow);
}

Statement start_sums(Program& program, BufferId sums, std::vector<TermId> place, Fold fold) {
  const Dtype dtype = program.buffer(sums).type.dtype;
  const Number start = identity(fold, dtype).value;
  Statement s;
  s.kind = Statement::Kind::kStore;
  s.buffer = sums;
  s.index = std::move(place);
  s.value = types::is_floating(dtype) ? program.constant(start.real, dtype) : program.constant_int(start.whole, dtype);
  return s;
}

Streamed stream(Program& program, const Shape& shape, Columns columns) {
  Streamed made;
  Statement first = loop_over(program, shape, shape.unroll, {columns.lane});
  Statement last = loop_over(program, shape, shape.unroll, {columns.lane});
  std::vector<Range> all = std::move(columns.rows);
  all.push_back(columns.lane);
  Statement walk = loop_over(program, shape, std::max(shape.unroll, kUnroll), std::move(all));
  const TermId column = program.axis_value(columns.lane.axis);
  const bool from_zero = program.as_size(columns.lane.begin) == types::Expr(0);
  const TermId at = from_zero ? column : program.binary(Op::kSub, column, columns.lane.begin);
  const auto width = program.as_size(columns.lane.end);
  for (Statement& s : columns.folds) {
    if (s.kind != Statement::Kind::kFold) {
      walk.loop.front().body.push_back(std::move(s));
      continue;
    }
    const BufferId row =
        add_sums(program, program.local_of(s.local).dtype, width ? *width : types::Expr(shape.streamed));
    made.kept.push_back(row);
    Statement store = start_sums(program, row, {at}, *s.fold);
    first.loop.front().body.push_back(store);
    store.kind = Statement::Kind::kUpdate;
    store.fold = s.fold;
    store.value = s.value;
    walk.loop.front().body.push_back(std::move(store));
    Statement let;
    let.local = s.local;
    let.value = program.load(row, {at});
    last.loop.front().body.push_back(std::move(let));
  }
  for (Statement& s : columns.after) last.loop.front().body.push_back(std::move(s));
  made.body = {std::move(first), std::move(walk), std::move(last)};
  return made;
}

}  // namespace magneto::schedule
