// Steps are walked in order. A buffer takes its place at its first step and leaves it behind its last one.
//
// Sizes that are numbers take the smallest gap that holds them; gaps beside one another become one. Sizes that are
// expressions cannot be compared, so each has slots of its own: a slot is taken again by a buffer of the equal size.
// The slots lie after the numbers.
#include "schedule/memory.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

Expr bytes_of(const types::TensorType& type) {
  const auto item = static_cast<int64_t>(types::item_size(type.dtype));
  if (types::is_contiguous(type)) return (types::numel(type.sizes) + type.offset) * item;
  Expr last = type.offset;
  for (size_t d = 0; d < type.sizes.size(); ++d) last = last + (type.sizes[d] - 1) * type.strides[d];
  return Expr::max((last + 1) * item, 0);
}

/// Bytes with gaps between what is taken.
class Numbers {
 public:
  int64_t take(int64_t bytes) {
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
      if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) best = gap;
    if (best == gaps_.end()) {
      // the last gap may reach the end: then only the rest is new
      if (!gaps_.empty() && std::prev(gaps_.end())->first + std::prev(gaps_.end())->second == end_) {
        const int64_t at = std::prev(gaps_.end())->first;
        gaps_.erase(std::prev(gaps_.end()));
        end_ = at + bytes;
        return at;
      }
      end_ += bytes;
      return end_ - bytes;
    }
    const auto [at, size] = *best;
    gaps_.erase(best);
    if (size > bytes) gaps_[at + bytes] = size - bytes;
    return at;
  }
  void give(int64_t at, int64_t bytes) {
    auto next = gaps_.lower_bound(at);
    if (next != gaps_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == at)
      std::prev(next)->second += bytes;
    else
      gaps_[at] = bytes;
  }
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> gaps_;
  int64_t end_ = 0;
};

/// The buffers of each step, in order.
std::vector<std::vector<BufferId>> steps_of(const Program& program) {
  std::vector<std::vector<BufferId>> steps;
  const auto read = [&](TermId root) {
    for_each_load(program, root, [&](const Term& t) { steps.back().push_back(program.storage(BufferId(t.id))); });
  };
  const std::function<void(const Statement&)> statement = [&](const Statement& s) {
    for_each_term(s, read);
    if (s.buffer.valid()) steps.back().push_back(program.storage(s.buffer));
    for (const Loop& l : s.loop) {
      for (const Range& r : l.ranges) {
        read(r.begin);
        read(r.end);
      }
      for (const Statement& inner : l.body) statement(inner);
    }
  };
  in_order(
      program,
      [&](const Equation& e) {
        steps.emplace_back();
        for_each_root(e, read);
        for (const BufferId id : {e.target, e.positions, e.base})
          if (id.valid()) steps.back().push_back(id);
        for (const auto* list : {&e.reads, &e.writes})
          steps.back().insert(steps.back().end(), list->begin(), list->end());
      },
      [&](const Kernel& k) {
        steps.emplace_back();
        for (const Statement& s : k.once) statement(s);
        for (const Statement& s : k.body) statement(s);
      });
  return steps;
}

}  // namespace

Arena plan_memory(const Program& program, const Memory& how) {
  Arena arena;
  arena.used.resize(program.buffers());
  arena.made.resize(program.buffers());
  arena.alone.resize(program.buffers());
  arena.at.resize(program.buffers());
  if (how.calls_make)
    for (const Equation& e : program.equations)
      for (const BufferId id : e.writes) arena.made[id.index()] = true;
  for (size_t b = 0; b < program.buffers(); ++b) arena.size.push_back(bytes_of(program.buffer(BufferId(b)).type));
  const std::vector<std::vector<BufferId>> steps = steps_of(program);
  std::vector<size_t> last(program.buffers());
  for (size_t n = 0; n < steps.size(); ++n)
    for (const BufferId id : steps[n]) last[id.index()] = n;

  Numbers numbers;
  std::vector<Expr> slots;  // sizes
  std::vector<size_t> slot_of(program.buffers(), SIZE_MAX);
  std::unordered_map<Expr, std::vector<size_t>> free_slots;
  const auto rounded = [&](size_t b) { return 64 * Expr::ceil_div(arena.size[b], 64); };
  for (size_t n = 0; n < steps.size(); ++n) {
    for (const BufferId id : steps[n]) {
      const size_t b = id.index();
      if (program.buffer(id).role != Role::kTemp || arena.used[b]) continue;
      arena.used[b] = true;
      if (arena.made[b]) continue;
      const Expr bytes = rounded(b);
      arena.apart = arena.apart + bytes;
      arena.alone[b] =
          how.alone < INT64_MAX && bytes.value_or(INT64_MAX) >= how.alone && program.buffer(id).type.offset == Expr(0);
      if (arena.alone[b]) continue;
      if (const auto number = bytes.constant()) {
        arena.at[b] = numbers.take(*number);
        continue;
      }
      std::vector<size_t>& free = free_slots[bytes];
      if (free.empty()) {
        free.push_back(slots.size());
        slots.push_back(bytes);
      }
      slot_of[b] = free.back();
      free.pop_back();
    }
    std::vector<BufferId> ending = steps[n];
    std::sort(ending.begin(), ending.end());
    ending.erase(std::unique(ending.begin(), ending.end()), ending.end());
    for (const BufferId id : ending) {
      const size_t b = id.index();
      if (!arena.used[b] || arena.made[b] || arena.alone[b] || last[b] != n) continue;
      if (const auto number = rounded(b).constant()) {
        if (*number > 0) numbers.give(arena.at[b].value_or(0), *number);
      } else {
        free_slots[rounded(b)].push_back(slot_of[b]);
      }
    }
  }
  std::vector<Expr> begins;
  arena.bytes = numbers.end();
  for (const Expr& slot : slots) {
    begins.push_back(arena.bytes);
    arena.bytes = arena.bytes + slot;
  }
  for (size_t b = 0; b < program.buffers(); ++b)
    if (slot_of[b] != SIZE_MAX) arena.at[b] = begins[slot_of[b]];
  return arena;
}

}  // namespace magneto::schedule
