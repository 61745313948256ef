#include "codegen/abi.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/check.h"
#include "codegen/held.h"

namespace magneto::codegen {

using namespace loop;

std::vector<TermId> terms_of(const Program& program, const Kernel& kernel) {
  std::unordered_set<TermId> seen;
  std::vector<TermId> stack;
  const auto add = [&](TermId id) { stack.push_back(id); };
  const auto ranges = [&](const std::vector<Range>& list) {
    for (const Range& r : list) {
      add(r.begin);
      add(r.end);
    }
  };
  const auto statement = [&](const Statement& s) {
    for_each_term(s, add);
    if (s.kind == Statement::Kind::kLoop) ranges(s.loop.front().ranges);
  };
  ranges(kernel.outer);
  for_each_statement(kernel.once, statement);
  for_each_statement(kernel.body, statement);
  while (!stack.empty()) {
    const TermId id = stack.back();
    stack.pop_back();
    if (!seen.insert(id).second) continue;
    for (const TermId operand : program.term(id).operands) stack.push_back(operand);
  }
  std::vector<TermId> list(seen.begin(), seen.end());
  std::sort(list.begin(), list.end());  // operands have lower ids
  return list;
}

std::vector<BufferId> arguments_of(const Program& program, const Kernel& kernel) {
  std::set<BufferId> found;
  for (const TermId id : terms_of(program, kernel)) {
    const Term& t = program.term(id);
    if (t.op == Op::kLoad || t.op == Op::kGuarded) found.insert(BufferId(t.id));
  }
  for_each_statement(kernel.body, [&](const Statement& s) {
    if (s.buffer.valid()) found.insert(s.buffer);
  });
  std::vector<BufferId> list;
  for (const BufferId id : found)
    if (program.buffer(id).role != Role::kRow) list.push_back(id);
  return list;
}

std::vector<uint32_t> symbols_of(const Program& program, const Kernel& kernel) {
  std::vector<uint32_t> found;
  for (const TermId id : terms_of(program, kernel))
    if (program.term(id).op == Op::kSize) program.size_of(program.term(id)).collect_symbols(found);
  const auto type = [&](BufferId id) {
    for (const types::Expr& stride : program.buffer(id).type.strides) stride.collect_symbols(found);
    program.buffer(id).type.offset.collect_symbols(found);
  };
  for (const BufferId id : arguments_of(program, kernel)) type(id);
  for (const BufferId id : kernel.rows) type(id);
  for (const types::Expr& offset : row_offsets(program, kernel.rows)) offset.collect_symbols(found);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

types::Expr points_of(const Program& program, const Kernel& kernel) {
  types::Expr points = 1;
  for (const Range& r : kernel.outer) {
    const auto begin = program.as_size(r.begin), end = program.as_size(r.end);
    base::check(begin && end, "codegen: the outer space of ", kernel.name, " depends on more than sizes");
    points = points * (*end - *begin);
  }
  return points;
}

static types::Expr storage_bytes(const types::TensorType& type) {
  types::Expr last = type.offset;
  for (size_t d = 0; d < type.sizes.size(); ++d) last = last + (type.sizes[d] - 1) * type.strides[d];
  return (last + 1) * static_cast<int64_t>(types::item_size(type.dtype));
}

std::vector<types::Expr> row_offsets(const Program& program, const std::vector<BufferId>& rows) {
  std::vector<types::Expr> offsets;
  types::Expr at = 0;
  for (const BufferId row : rows) {
    offsets.push_back(at);
    at = at + 64 * types::Expr::ceil_div(storage_bytes(program.buffer(row).type), 64);
  }
  return offsets;
}

types::Expr scratch_bytes(const Program& program, const std::vector<BufferId>& rows) {
  if (rows.empty()) return 0;
  const types::Expr last = 64 * types::Expr::ceil_div(storage_bytes(program.buffer(rows.back()).type), 64);
  return row_offsets(program, rows).back() + last;
}

std::vector<BufferId> shared_rows(const Program& program, const Kernel& kernel) {
  std::vector<BufferId> rows;
  if (kernel.rows.empty()) return rows;
  const Held held = held_of(program, kernel);
  for (const BufferId row : kernel.rows)
    if (!held.rows.count(row)) rows.push_back(row);
  return rows;
}

Grid grid_of(const Program& program, const Kernel& kernel) {
  constexpr int kWarp = 32, kBlock = 128;
  constexpr int64_t kShared = 24 << 10;  // bytes that leave room for several blocks
  constexpr int64_t kFew = 1024;         // points that are better spread over the whole device
  const types::Expr points = points_of(program, kernel), bytes = scratch_bytes(program, shared_rows(program, kernel));
  Grid grid;
  bool lanes = false;  // their threads meet as a block
  for_each_statement(kernel.body, [&](const Statement& s) {
    lanes |= s.kind == Statement::Kind::kLoop && s.loop.front().kind == Loop::Kind::kLanes;
  });
  const bool narrow = kernel.threads == kWarp || (kernel.threads == 1 && kernel.rows.empty());
  if (narrow && !lanes && bytes.value_or(kShared) * kBlock / kernel.threads <= kShared && points.value_or(kFew) >= kFew)
    grid.points = kBlock / kernel.threads;
  grid.threads = kernel.threads * grid.points;
  grid.blocks = types::Expr::ceil_div(points, grid.points);
  grid.shared = bytes * grid.points;
  return grid;
}

}  // namespace magneto::codegen
