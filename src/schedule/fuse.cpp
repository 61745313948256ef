// Before:  e[i0, i1] = exp(x[i0, i1] - m[i0])   s[i0] = sum(i1 < n, e[i0, i1])   y[i0, i1] = e[i0, i1] / s[i0]
// After:   the same, the second and third `with` the first: one kernel, e never leaves it.
//
// 1. Each equation is a group with a space (space_internal.h). Candidates are pairs of groups: a producer and its
//    reader, and two readers of the same buffer that follow one another (the last flat one, the last with rows). A
//    candidate saves the bytes of the buffer.
//    Rows and parts of columns over the same rows join, too: then a point walks a block of rows.
// 2. Candidates are tried from the largest saving down. Two groups join when a space holds both, when what one reads of
//    the other is read in place, and when no third group stands between them on a path: it would have to run in the
//    middle of the joined kernel. A join moves the first group to the place of the second: it must not hold more
//    memory while calls run in between than it saves.
// 3. Paths are found with order numbers. Groups always stand in an order in which producers come first; a path from a
//    to b only leads through groups that stand between them. The search sees that window alone, and a join moves the
//    groups of the window that depend on a after the joined one. A window has a bounded length, so the whole costs
//    n log n for the sort and a constant for each candidate.
#include "schedule/fuse.h"

#include <algorithm>
#include <numeric>

#include "schedule/space_internal.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

constexpr size_t kWindow = 1024;     ///< groups between two that may join
constexpr uint32_t kMostWork = 800;  ///< terms in one kernel
constexpr size_t kMostMembers = 48;

struct Edge {
  size_t other;
  bool in_place;
};

class Fuser {
 public:
  Fuser(Program& program, const Shape& shape)
      : program_(program), shape_(shape), uses_(program), count_(program.equations.size()) {}

  void run() {
    for (size_t n = 0; n < count_; ++n) add(n);
    collect_edges();
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.saved > b.saved; });
    for (const Candidate& c : candidates_) try_join(find(c.a), find(c.b));
    join_siblings();
    write_order();
  }

 private:
  struct Candidate {
    int64_t saved;
    size_t a, b;
  };

  void add(size_t n) {
    const Equation& e = program_.equations[n];
    spaces_.push_back(space_of(program_, uses_, e));
    parent_.push_back(n);
    slot_.push_back(n);
    at_slot_.push_back(n);
    members_.push_back({n});
    size_.push_back(e.value.valid() ? weights_.of(program_, e.value).tree : 1);
    succ_.emplace_back();
  }

  size_t find(size_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

  void collect_edges() {
    std::vector<size_t> writer(program_.buffers(), SIZE_MAX);
    readers_.resize(program_.buffers());
    reads_.resize(count_);
    // of flat spaces, of those with rows, of those with columns: one that cannot join stands between two that can
    std::vector<size_t> last_reader[3] = {writer, writer, writer};
    size_t last_call = SIZE_MAX;
    for (size_t n = 0; n < count_; ++n) {
      const Equation e = program_.equations[n];
      if (e.kind == Equation::Kind::kExtern) {  // calls keep their order: they draw random numbers, or do what they do
        if (last_call != SIZE_MAX) succ_[last_call].push_back({n, false});
        last_call = n;
      }
      const std::vector<AxisId> walk = walk_of(program_, spaces_[n]);
      std::vector<std::pair<BufferId, bool>> reads;  // and whether all of it is read in place
      for (const BufferId id : e.reads) reads.emplace_back(id, false);
      if (e.base.valid()) reads.emplace_back(e.base, false);
      for_each_load(program_, e, [&](Term t) {  // a copy: an axis may become a term
        reads.emplace_back(BufferId(t.id), reads_in_place(program_, t, walk));
      });
      std::sort(reads.begin(), reads.end());
      for (size_t k = 0; k < reads.size(); ++k) {
        if (k > 0 && reads[k].first == reads[k - 1].first) continue;  // false sorts first: the worst of all loads
        const auto [id, in_place] = reads[k];
        note_read(id, n);
        const int64_t bytes = estimated_bytes(program_, id);
        if (const size_t producer = writer[id.index()]; producer != SIZE_MAX) {
          succ_[producer].push_back({n, in_place});
          if (in_place) candidates_.push_back({bytes, producer, n});
        }
        for (std::vector<size_t>& last : last_reader)
          if (last[id.index()] != SIZE_MAX && core_of(program_, id).size() > 0)
            candidates_.push_back({bytes, last[id.index()], n});
        last_reader[spaces_[n].inner.empty() ? 0 : spaces_[n].columns ? 2 : 1][id.index()] = n;
      }
      for (const BufferId id : e.writes) writer[id.index()] = n;
      if (e.target.valid()) writer[e.target.index()] = n;
      if (e.positions.valid()) writer[e.positions.index()] = n;
    }
  }

  void try_join(size_t a, size_t b) {
    if (a == b) return;
    if (slot_[a] > slot_[b]) std::swap(a, b);
    if (slot_[b] - slot_[a] > kWindow || size_[a] + size_[b] > kMostWork) return;
    if (members_[a].size() + members_[b].size() > kMostMembers) return;
    const auto space = join(program_, shape_, spaces_[a], spaces_[b]);
    if (!space) return;
    for (const Edge& edge : succ_[a])
      if (find(edge.other) == b && !edge.in_place) return;
    std::vector<size_t> dependent;
    if (!depends_through(a, b, dependent) || holds_memory(a, b, dependent)) return;
    reorder(a, b, dependent);
    spaces_[b] = *space;
    size_[b] += size_[a];
    const auto append = [](auto& into, auto& from) {
      if (into.size() < from.size()) std::swap(into, from);
      into.insert(into.end(), from.begin(), from.end());
      from = {};
    };
    append(succ_[b], succ_[a]);
    append(members_[b], members_[a]);
    parent_[a] = b;
  }

  /// Reductions of what one kernel stores share no bytes, but they are small (second stages) and a launch is saved.
  void join_siblings() {
    for (size_t n = 0; n < count_; ++n) {
      size_t last = SIZE_MAX;
      const std::vector<Edge> readers = find(n) == n ? succ_[n] : std::vector<Edge>();
      for (const Edge& edge : readers) {
        const size_t next = find(edge.other);
        if (!spaces_[next].columns || next == n) continue;
        if (last != SIZE_MAX) try_join(find(last), next);
        last = next;
      }
    }
  }

  /// Collects what depends on a in the window up to b; false when b depends on any of it.
  bool depends_through(size_t a, size_t b, std::vector<size_t>& dependent) {
    ++turn_;
    seen_.resize(count_);
    std::vector<size_t> stack = {a};
    while (!stack.empty()) {
      const size_t at = stack.back();
      stack.pop_back();
      for (const Edge& edge : succ_[at]) {
        const size_t next = find(edge.other);
        if (next == a || next == at) continue;
        if (next == b) {
          if (at != a) return false;
          continue;
        }
        if (slot_[next] > slot_[b] || seen_[next] == turn_) continue;
        seen_[next] = turn_;
        dependent.push_back(next);
        stack.push_back(next);
      }
    }
    return true;
  }

  void note_read(BufferId id, size_t n) {
    const BufferId memory = program_.storage(id);
    readers_[memory.index()].push_back(n);
    reads_[n].push_back(memory);
  }

  /// Whether what group a reads would wait for b while a call runs that does not wait for a, and is more than a makes.
  bool holds_memory(size_t a, size_t b, const std::vector<size_t>& dependent) {
    bool waits = false;
    for (size_t s = slot_[a] + 1; s < slot_[b] && !waits; ++s) {
      const size_t g = at_slot_[s];
      waits = g != SIZE_MAX && program_.equations[members_[g][0]].kind == Equation::Kind::kExtern &&
              std::find(dependent.begin(), dependent.end(), g) == dependent.end();
    }
    if (!waits) return false;
    int64_t held = 0;
    std::vector<BufferId> counted;
    for (const size_t n : members_[a]) {
      const BufferId target = program_.equations[n].target;
      if (target.valid() && is_read_outside(target, a)) held -= estimated_bytes(program_, target);
      for (const BufferId id : reads_[n]) {
        if (program_.buffer(id).role != Role::kTemp || std::find(counted.begin(), counted.end(), id) != counted.end())
          continue;
        counted.push_back(id);
        if (!is_made_by(id, a) && !is_read_from(id, a, slot_[b])) held += estimated_bytes(program_, id);
      }
    }
    return held >= kMuchMemory;
  }
  bool is_read_outside(BufferId id, size_t group) {
    if (program_.buffer(id).role != Role::kTemp) return true;
    const std::vector<size_t>& readers = readers_[id.index()];
    return std::any_of(readers.begin(), readers.end(), [&](size_t n) { return find(n) != group; });
  }
  bool is_made_by(BufferId id, size_t group) {
    const std::vector<size_t>& members = members_[group];
    return std::any_of(members.begin(), members.end(), [&](size_t n) { return program_.equations[n].target == id; });
  }
  /// By another group than `but`, in this place or after it.
  bool is_read_from(BufferId id, size_t but, size_t slot) {
    const std::vector<size_t>& readers = readers_[id.index()];
    return std::any_of(readers.rbegin(), readers.rend(),
                       [&](size_t n) { return find(n) != but && slot_[find(n)] >= slot; });
  }

  /// The window without a: first what does not depend on a, then b, then what does.
  void reorder(size_t a, size_t b, const std::vector<size_t>& dependent) {
    const size_t first = slot_[a], last = slot_[b];
    std::vector<size_t> before, after;
    std::vector<bool> moves(last - first + 1);
    for (const size_t g : dependent) moves[slot_[g] - first] = true;
    for (size_t s = first; s <= last; ++s) {
      const size_t g = at_slot_[s];
      if (g == SIZE_MAX || g == a || g == b) continue;
      (moves[s - first] ? after : before).push_back(g);
    }
    size_t s = first;
    const auto put = [&](size_t g) {
      at_slot_[s] = g;
      slot_[g] = s++;
    };
    at_slot_[s++] = SIZE_MAX;  // the place of a stays empty
    for (const size_t g : before) put(g);
    while (s + after.size() < last) at_slot_[s++] = SIZE_MAX;
    put(b);
    for (const size_t g : after) put(g);
  }

  void write_order() {
    std::vector<Equation> ordered;
    for (const size_t g : at_slot_) {
      if (g == SIZE_MAX) continue;
      std::sort(members_[g].begin(), members_[g].end());
      for (size_t k = 0; k < members_[g].size(); ++k) {
        ordered.push_back(program_.equations[members_[g][k]]);
        ordered.back().joined = k > 0;
      }
    }
    program_.equations = std::move(ordered);
  }

  Program& program_;
  const Shape& shape_;
  Uses uses_;
  Weights weights_;
  size_t count_;
  std::vector<Space> spaces_;
  std::vector<size_t> parent_, slot_, at_slot_;
  std::vector<std::vector<size_t>> members_;
  std::vector<uint32_t> size_;
  std::vector<std::vector<Edge>> succ_;
  std::vector<Candidate> candidates_;
  std::vector<std::vector<BufferId>> reads_;  ///< by equation: memory that it reads
  std::vector<std::vector<size_t>> readers_;  ///< by buffer: the equations
  std::vector<uint32_t> seen_;
  uint32_t turn_ = 0;
};

}  // namespace

void fuse(Program& program, const Shape& shape) { Fuser(program, shape).run(); }

}  // namespace magneto::schedule
