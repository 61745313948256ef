#include "codegen/held.h"

#include <algorithm>

#include "codegen/abi.h"
#include "loop/uses.h"

namespace magneto::codegen {

using namespace loop;

namespace {

constexpr size_t kMostText = 600;  ///< terms times elements: text costs compile time

/// The length of a phase that needs no loop.
std::optional<int64_t> length_of(const Program& program, const Kernel& kernel, const Loop& l) {
  if (l.kind != Loop::Kind::kPhase || l.ranges.size() != 1) return std::nullopt;
  const auto length = extent_of(program, l.ranges[0]);
  if (!length || *length < 1 || *length > int64_t{Held::kMost} * kernel.threads) return std::nullopt;
  if (const auto begin = program.as_size(l.ranges[0].begin); !begin || !(*begin == types::Expr(0))) return std::nullopt;
  std::vector<TermId> roots;
  for (const Statement& s : l.body) {
    const bool in_order = s.kind == Statement::Kind::kScan || s.kind == Statement::Kind::kUpdate;
    if (in_order || s.kind == Statement::Kind::kLoop) return std::nullopt;
    for_each_term(s, [&](TermId id) { roots.push_back(id); });
  }
  size_t terms = 0;
  for_each_part(program, std::move(roots), [&](TermId) { ++terms; });
  const int64_t each = (*length + kernel.threads - 1) / kernel.threads;
  if (terms * static_cast<size_t>(each) > kMostText) return std::nullopt;
  return length;
}

/// Rows that a statement touches otherwise than element by element along `axis`, and how often it stores to rows.
class RowUses {
 public:
  RowUses(const Program& program, const Kernel& kernel)
      : program_(program), rows_(kernel.rows.begin(), kernel.rows.end()) {}

  void statement(const Statement& s, std::optional<std::pair<AxisId, int64_t>> along) {
    for_each_term(s, [&](TermId id) { term(id, along); });
    if (!s.buffer.valid() || !rows_.count(s.buffer)) return;
    place(s.buffer, s.index, along);
    if (s.kind != Statement::Kind::kStore || ++stores_[s.buffer] > 1) no_.insert(s.buffer);
  }
  std::set<BufferId> held() const {
    std::set<BufferId> made;
    std::set_difference(rows_.begin(), rows_.end(), no_.begin(), no_.end(), std::inserter(made, made.end()));
    return made;
  }

 private:
  void term(TermId root, std::optional<std::pair<AxisId, int64_t>> along) {
    for_each_part(program_, root, [&](TermId id) {
      const Term& t = program_.term(id);
      if (t.op == Op::kLoad && rows_.count(BufferId(t.id))) place(BufferId(t.id), t.operands, along);
      if (t.op == Op::kGuarded) no_.insert(BufferId(t.id));
    });
  }
  void place(BufferId row, const std::vector<TermId>& index, std::optional<std::pair<AxisId, int64_t>> along) {
    const types::TensorType& type = program_.buffer(row).type;
    const bool fits = along && index.size() == 1 && program_.term(index[0]).op == Op::kAxis &&
                      AxisId(program_.term(index[0]).id) == along->first &&
                      type.sizes[0] == types::Expr(along->second) && !program_.buffer(row).of.valid();
    if (!fits) no_.insert(row);
  }

  const Program& program_;
  const std::set<BufferId> rows_;
  std::set<BufferId> no_;
  std::map<BufferId, int> stores_;
};

}  // namespace

Held held_of(const Program& program, const Kernel& kernel) {
  Held held;
  if (kernel.threads < 32) return held;
  RowUses rows(program, kernel);
  for (const Statement& s : kernel.body) {
    const Loop* l = s.kind == Statement::Kind::kLoop ? &s.loop.front() : nullptr;
    const auto length = l ? length_of(program, kernel, *l) : std::nullopt;
    if (!length) {
      for_each_statement({s}, [&](const Statement& inner) { rows.statement(inner, std::nullopt); });
      continue;
    }
    held.phases[l] = *length;
    for (const Statement& inner : l->body) rows.statement(inner, std::make_pair(l->ranges[0].axis, *length));
  }
  held.rows = rows.held();
  return held;
}

}  // namespace magneto::codegen
