#include "schedule/stay.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "loop/uses.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

class Stay {
 public:
  Stay(Program& program, Kernel& kernel, Uses& uses) : program_(program), kernel_(kernel), uses_(uses) {}

  /// Whether every loop of the kernel is a phase along the same axis, longer than what registers hold.
  bool applies(const Shape& shape) {
    for (Statement& s : kernel_.body) {
      if (s.buffer.valid()) stored_.insert(program_.storage(s.buffer));
      if (s.kind != Statement::Kind::kLoop) continue;
      Loop& l = s.loop.front();
      if (l.kind != Loop::Kind::kPhase || l.ranges.size() != 1) return false;
      if (!phases_.empty() && !(l.ranges == phases_.front()->ranges)) return false;
      phases_.push_back(&l);
      for (const Statement& inner : l.body)
        if (inner.buffer.valid()) stored_.insert(program_.storage(inner.buffer));
    }
    if (phases_.size() < 2) return false;
    const auto length = extent_of(program_, phases_.front()->ranges[0]);
    return !length || *length > int64_t{shape.in_registers} * kernel_.threads;
  }

  void run() {
    for (const BufferId row : kernel_.rows)
      if (const size_t filled = phase_that_fills(row); filled != SIZE_MAX && filled > 0) lend(row, filled);
  }

 private:
  /// The only phase that stores to a row, element by element; none reads it before.
  size_t phase_that_fills(BufferId row) const {
    size_t found = SIZE_MAX;
    for (size_t k = 0; k < phases_.size(); ++k)
      for (const Statement& s : phases_[k]->body) {
        if (s.buffer != row) continue;
        if (found != SIZE_MAX || s.kind != Statement::Kind::kStore || s.index != place()) return SIZE_MAX;
        found = k;
      }
    return found;
  }

  /// Gives a row to the first element that the phases up to the one that fills it read more than once.
  void lend(BufferId row, size_t filled) {
    std::set<TermId> seen;
    for (size_t k = 0; k <= filled; ++k)
      for (const TermId id : elements(*phases_[k], program_.buffer(row).type.dtype))
        if (!seen.insert(id).second) return keep(id, row, filled);
  }

  /// What a phase reads of inputs along its axis, as it is or in another type, in the order of the arena.
  std::set<TermId> elements(const Loop& l, Dtype dtype) const {
    std::set<TermId> found;
    for (const Statement& s : l.body)
      for_each_term(s, [&](TermId root) {
        for_each_part(program_, root, [&](TermId id) {
          const Term& t = program_.term(id);
          if (t.dtype == dtype && is_element(t.op == Op::kCast ? program_.term(t.operands[0]) : t)) found.insert(id);
        });
      });
    return found;
  }

  bool is_element(const Term& t) const {
    if (t.op != Op::kLoad || program_.buffer(BufferId(t.id)).role == Role::kRow) return false;
    if (stored_.count(program_.storage(BufferId(t.id)))) return false;
    const auto plain = [&](TermId id) { return !uses_.of(id).loads && uses_.of(id).locals.empty(); };
    return std::all_of(t.operands.begin(), t.operands.end(), plain) &&
           std::any_of(t.operands.begin(), t.operands.end(), [&](TermId id) { return uses_.depends(id, axis()); });
  }

  void keep(TermId element, BufferId row, size_t filled) {
    bool kept = false;
    for (size_t k = 0; k <= filled; ++k) {
      Loop& l = *phases_[k];
      if (!elements(l, program_.buffer(row).type.dtype).count(element)) continue;
      Statement let;
      let.kind = Statement::Kind::kLet;
      let.value = kept ? program_.load(row, place()) : element;
      let.local =
          program_.add_local(base::concat(program_.buffer(row).name, "_is_", ++names_), program_.term(element).dtype);
      Rewrite rewrite(
          program_, [&](TermId id) { return id == element ? std::optional(program_.local(let.local)) : std::nullopt; });
      for (Statement& s : l.body) {
        for (TermId& id : s.index) id = rewrite(id);
        if (s.value.valid()) s.value = rewrite(s.value);
        if (s.position.valid()) s.position = rewrite(s.position);
      }
      std::vector<Statement> first = {let};
      if (!std::exchange(kept, true)) {
        Statement store;
        store.kind = Statement::Kind::kStore;
        store.buffer = row;
        store.index = place();
        store.value = program_.local(let.local);
        first.push_back(std::move(store));
      }
      l.body.insert(l.body.begin(), first.begin(), first.end());
      uses_.extend(program_);
    }
  }

  AxisId axis() const { return phases_.front()->ranges[0].axis; }
  std::vector<TermId> place() const { return {program_.axis_value(axis())}; }

  Program& program_;
  Kernel& kernel_;
  Uses& uses_;
  std::vector<Loop*> phases_;
  std::set<BufferId> stored_;
  int names_ = 0;
};

}  // namespace

void stay(Program& program, const Shape& shape) {
  if (!shape.on_gpu()) return;
  Uses uses(program);
  for (Kernel& kernel : program.kernels) {
    if (kernel.rows.empty()) continue;
    if (Stay one(program, kernel, uses); one.applies(shape)) one.run();
  }
}

}  // namespace magneto::schedule
