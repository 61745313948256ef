// Before:  a = mm(...)   b = mm(...)   s[i, j] = r[i, j] + a[i, j]   y[i, j] = s[i, j] + b[i, j]
// After:   a = mm(...)   s[i, j] = r[i, j] + a[i, j]   b = mm(...)   y[i, j] = s[i, j] + b[i, j]
//
// A matrix product's backward makes both of its gradients, then they are added to what was there: r, a and b are alive
// at once. Eager adds in place. Here b waits until r and a have become one.
#include "schedule/sink.h"

#include <algorithm>

#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

constexpr size_t kWindow = 16;  ///< equations that a call may be moved past

class Sinker {
 public:
  explicit Sinker(Program& program)
      : program_(program), last_read_(program.buffers()), reads_(program.equations.size()) {
    for (size_t n = 0; n < program.equations.size(); ++n) {
      const Equation& e = program.equations[n];
      reads_[n] = e.reads;
      if (e.base.valid()) reads_[n].push_back(e.base);
      for_each_load(program, e, [&](const Term& t) { reads_[n].push_back(BufferId(t.id)); });
      for (BufferId& id : reads_[n]) id = program.storage(id);
      std::sort(reads_[n].begin(), reads_[n].end());
      reads_[n].erase(std::unique(reads_[n].begin(), reads_[n].end()), reads_[n].end());
      for (const BufferId id : reads_[n]) last_read_[id.index()] = n;
    }
  }

  void run() {
    for (size_t n = program_.equations.size(); n-- > 0;)  // the last ones first: those before them may follow
      if (const size_t to = place_for(n); to > n) move(n, to);
  }

 private:
  /// Where the call stands best: itself, or the last equation that it moves past.
  size_t place_for(size_t n) const {
    const Equation& call = program_.equations[n];
    if (call.kind != Equation::Kind::kExtern || call.stays || !only_temporaries(call)) return n;
    size_t to = n;
    for (size_t k = n + 1; k < program_.equations.size() && k <= n + kWindow; ++k) {
      const Equation& e = program_.equations[k];
      if (e.stays || !only_temporaries(e) || reads_any(k, call.writes) || ends_any(k, reads_[n])) break;
      if (saved_by(k) >= kMuchMemory) to = k;
    }
    return to;
  }

  /// Whether it writes no memory that somebody else knows: an output may lie where an input is.
  bool only_temporaries(const Equation& e) const {
    const auto is_temporary = [&](BufferId id) {
      return !id.valid() || program_.buffer(program_.storage(id)).role == Role::kTemp;
    };
    return is_temporary(e.target) && is_temporary(e.positions) &&
           std::all_of(e.writes.begin(), e.writes.end(), is_temporary);
  }
  bool reads_any(size_t n, const std::vector<BufferId>& of) const {
    return std::any_of(of.begin(), of.end(), [&](BufferId id) {
      return std::binary_search(reads_[n].begin(), reads_[n].end(), program_.storage(id));
    });
  }
  /// Whether one of them would be alive for longer: its last reader is here, or before.
  bool ends_any(size_t n, const std::vector<BufferId>& of) const {
    return std::any_of(of.begin(), of.end(), [&](BufferId id) { return last_read_[id.index()] <= n; });
  }
  /// The memory that nobody needs after it, less what it makes.
  int64_t saved_by(size_t n) const {
    if (program_.equations[n].kind != Equation::Kind::kMap) return 0;
    int64_t saved = -estimated_bytes(program_, program_.equations[n].target);
    for (const BufferId id : reads_[n])
      if (last_read_[id.index()] == n && program_.buffer(id).role == Role::kTemp)
        saved += estimated_bytes(program_, id);
    return saved;
  }

  void move(size_t from, size_t to) {
    const auto rotate = [&](auto& list) {
      const auto at = [&](size_t n) { return list.begin() + static_cast<std::ptrdiff_t>(n); };
      std::rotate(at(from), at(from + 1), at(to + 1));
    };
    for (size_t n = from + 1; n <= to; ++n)
      for (const BufferId id : reads_[n])
        if (last_read_[id.index()] == n) --last_read_[id.index()];
    rotate(program_.equations);
    rotate(reads_);
  }

  Program& program_;
  std::vector<size_t> last_read_;             ///< by memory: the last equation that reads it
  std::vector<std::vector<BufferId>> reads_;  ///< by equation: memory, sorted
};

}  // namespace

void sink_calls(Program& program) { Sinker(program).run(); }

}  // namespace magneto::schedule
