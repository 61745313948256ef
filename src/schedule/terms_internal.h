// schedule/terms_internal.h: what the passes do to terms: rebuild them with other operands, weigh them, visit them.
#pragma once
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "loop/program.h"
#include "loop/uses.h"

namespace magneto::schedule {

/// The same operation on other operands. Integer arithmetic is folded where the result does not depend on values.
loop::TermId rebuild(loop::Program& program, const loop::Term& term, const std::vector<loop::TermId>& operands);

/// Rewrites terms from the leaves up, each once. `replace` sees a term before its operands are visited and may give
/// another one in its place; what it gives is taken as it is.
class Rewrite {
 public:
  using Replace = std::function<std::optional<loop::TermId>(loop::TermId)>;
  Rewrite(loop::Program& program, Replace replace) : program_(program), replace_(std::move(replace)) {}
  loop::TermId operator()(loop::TermId id);

 private:
  loop::Program& program_;
  Replace replace_;
  std::unordered_map<loop::TermId, loop::TermId> done_;
};

/// The terms that an equation is made of.
template <class Visit>
void for_each_root(const loop::Equation& e, const Visit& visit) {
  for (const loop::Range& r : e.over) {
    visit(r.begin);
    visit(r.end);
  }
  for (const loop::TermId id : e.index) visit(id);
  if (e.value.valid()) visit(e.value);
}

inline bool is_load(const loop::Term& t) { return t.op == loop::Op::kLoad || t.op == loop::Op::kGuarded; }
/// The loads of a term.
template <class Visit>
void for_each_load(const loop::Program& program, loop::TermId root, const Visit& visit) {
  loop::for_each_part(program, root, [&](loop::TermId id) {
    if (const loop::Term& t = program.term(id); is_load(t)) visit(t);
  });
}
/// The loads of an equation. What it reads as a whole (`reads`, `base`) is not among them.
template <class Visit>
void for_each_load(const loop::Program& program, const loop::Equation& e, const Visit& visit) {
  for_each_root(e, [&](loop::TermId root) { for_each_load(program, root, visit); });
}

/// The terms that an equation is made of, to be changed.
template <class Change>
void change_roots(loop::Equation& e, const Change& change) {
  for (loop::Range& r : e.over) {
    r.begin = change(r.begin);
    r.end = change(r.end);
  }
  for (loop::TermId& id : e.index) id = change(id);
  if (e.value.valid()) e.value = change(e.value);
}

/// What it costs to compute a term: kept for the whole arena, extended as terms are made.
struct Weight {
  uint32_t tree = 1;  ///< nodes of its text, every use counted; saturates
  uint32_t work = 0;  ///< operations on elements, in additions; indices not counted; saturates
};
class Weights {
 public:
  const Weight& of(const loop::Program& program, loop::TermId id);

 private:
  std::vector<Weight> weights_;
};
inline constexpr uint32_t kDear = 8;  ///< work from which on a value is worth a trip through memory

/// What a buffer takes; an estimate where sizes are symbols.
int64_t estimated_bytes(const loop::Program& program, loop::BufferId id);
/// Bytes for which a value is rather stored than that what it is made of waits for its reader while calls run.
inline constexpr int64_t kMuchMemory = 1 << 20;

/// Axis number k of a canonical space: i0, i1, ...
loop::AxisId canonical_axis(loop::Program& program, size_t k);

/// Made of many operations by the printers: exp, tanh, pow ...
inline bool is_function(loop::Op op) { return op >= loop::Op::kExp || op == loop::Op::kPow || op == loop::Op::kAtan2; }
inline bool is_one(const types::Expr& size) { return size == types::Expr(1); }
/// The dimensions of a buffer that are not of size one: its core.
std::vector<size_t> core_of(const loop::Program& program, loop::BufferId id);
/// Whether a load reads its buffer at the given axes, as many as it needs: the element of the point at which it stands.
bool reads_in_place(loop::Program& program, const loop::Term& load, const std::vector<loop::AxisId>& axes);
/// A name for a buffer that no buffer has yet.
std::string fresh_name(const loop::Program& program, const std::string& base);

}  // namespace magneto::schedule
