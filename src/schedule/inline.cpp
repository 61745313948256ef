// Before:  t[i0, i1] = f32(x[i0, i1])       y[i0, i1] = t[i1, i0] * 2.0
// After:   y[i0, i1] = f32(x[i1, i0]) * 2.0
//
// The axes of the producer are replaced by the indices of the load. A load under a condition (padding, concatenation)
// hands the condition down to the loads of the producer. Equations are visited in order, so a producer has already
// taken in its own producers: the whole is one sweep, and what is put into a reader is bounded in size.
//
// Bytes decide between storing and computing again: with n readers and L streams of input, stored: L + 1 + n trips
// through memory, inlined: n * L. Where calls run between producer and reader, memory decides, too: of a + b the sum
// can wait for its reader in half of the memory that a and b take.
#include "schedule/inline.h"

#include <algorithm>

#include "schedule/dead.h"
#include "schedule/terms_internal.h"
#include "schedule/tile.h"

namespace magneto::schedule {

using namespace loop;

namespace {

constexpr uint32_t kMostTree = 160;  ///< of one equation; text and compile time grow with it

constexpr uint32_t kAgain = 2;       ///< work that may be done again for each element that reads it
constexpr uint32_t kAgainOnGpu = 8;  ///< the same, where it saves a launch: a GPU waits for memory anyway

class Inliner {
 public:
  Inliner(Program& program, const Shape& shape)
      : program_(program),
        most_again_(shape.on_gpu() ? kAgainOnGpu : kAgain),
        uses_(program),
        equation_of_(program.buffers(), SIZE_MAX),
        readers_(program.buffers()),
        sites_(program.buffers()),
        streams_(program.buffers(), SIZE_MAX),
        last_read_(program.buffers()) {}

  void run() {
    for (size_t n = 0; n < program_.equations.size(); ++n) count(program_.equations[n], n);
    for (size_t n = 0; n < program_.equations.size(); ++n) {
      Equation& e = program_.equations[n];
      if (e.kind == Equation::Kind::kExtern) continue;
      now_ = n;
      const Equation before = e;
      take_in(e, false);
      if (e.value.valid() && weights_.of(program_, e.value).tree > kMostTree) {
        e = before;
        take_in(e, true);
      }
      for_each_load(program_, e, [&](const Term& t) { note_read(BufferId(t.id), n); });
    }
    drop_dead(program_);
  }

 private:
  void count(const Equation& e, size_t n) {
    if (e.target.valid()) equation_of_[e.target.index()] = n;
    const auto fix = [&](BufferId id) {
      if (id.valid()) readers_[id.index()] += 1000;  // must be in memory anyway
    };
    for (const BufferId id : e.reads) fix(id);
    fix(e.base);
    calls_.push_back((calls_.empty() ? 0 : calls_.back()) + (e.kind == Equation::Kind::kExtern));
    for (const BufferId id : e.reads) note_read(id, n);
    if (e.base.valid()) note_read(e.base, n);
    std::vector<BufferId> read;
    for_each_load(program_, e, [&](const Term& t) {
      ++sites_[t.id];
      read.push_back(BufferId(t.id));
      note_read(BufferId(t.id), n);
    });
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (const BufferId id : read) ++readers_[id.index()];
  }

  void note_read(BufferId id, size_t n) {
    size_t& last = last_read_[program_.storage(id).index()];
    last = std::max(last, n);
  }

  /// Whether what the producer reads would wait for the reader while a call runs, and is more than the producer makes.
  bool holds_memory(const Equation& producer, size_t n) {
    if (calls_[n] == calls_[now_]) return false;
    int64_t held = -estimated_bytes(program_, producer.target);
    std::vector<BufferId> counted;
    for_each_load(program_, producer, [&](const Term& t) {
      const BufferId id = program_.storage(BufferId(t.id));
      if (program_.buffer(id).role != Role::kTemp || std::find(counted.begin(), counted.end(), id) != counted.end())
        return;
      counted.push_back(id);
      if (last_read_[id.index()] < now_) held += estimated_bytes(program_, id);
    });
    return held >= kMuchMemory;
  }

  /// The inputs of a term that are read again at each point, not once for a row.
  size_t streams(const Equation& producer) {
    size_t& known = streams_[producer.target.index()];  // a producer has already taken in its own
    if (known == SIZE_MAX) known = count_streams(producer);
    return known;
  }
  size_t count_streams(const Equation& producer) {
    const size_t rank = core_of(program_, producer.target).size();
    size_t found = 0;
    for_each_part(program_, producer.value, [&](TermId id) {
      if (!is_load(program_.term(id))) return;
      uses_.extend(program_);
      found += uses_.of(id).axes.size() == rank;
    });
    return found;
  }

  /// Whether it reads nothing that an equation computes: then there is none to be fused with, and it is a kernel for
  /// itself.
  bool is_first(const Equation& producer) {
    bool first = true;
    for_each_load(program_, producer.value, [&](const Term& t) { first &= equation_of_[t.id] == SIZE_MAX; });
    return first;
  }

  bool moves_only(const Equation& e) { return weights_.of(program_, e.value).work <= 1 && streams(e) <= 1; }

  /// Whether a load with these indices visits each element of the producer about once.
  bool covers(const Equation& reader, const Term& load) {
    uses_.extend(program_);
    std::vector<AxisId> read;
    for (size_t d = 0; d < program_.buffer(BufferId(load.id)).type.sizes.size(); ++d)
      for (const AxisId axis : uses_.of(load.operands[d]).axes) read.push_back(axis);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    return read.size() >= axes_of(reader);
  }

  /// The axes of the space that an equation walks, those of its reductions included.
  size_t axes_of(const Equation& reader) {
    if (counted_ == reader.value) return axes_;
    counted_ = reader.value;
    const size_t points = reader.over.empty() ? core_of(program_, reader.target).size() : reader.over.size();
    axes_ = points;
    for_each_part(program_, reader.value, [&](TermId id) {
      if (program_.term(id).op == Op::kReduce) axes_ = std::max(axes_, points + program_.term(id).axes.size());
    });
    return axes_;
  }

  bool wanted(const Equation& reader, const Term& load, bool moves) {
    const BufferId id(load.id);
    const size_t n = equation_of_[id.index()];
    if (n == SIZE_MAX || program_.buffer(id).role != Role::kTemp) return false;
    const Equation& producer = program_.equations[n];
    if (producer.kind != Equation::Kind::kMap) return false;
    uses_.extend(program_);
    if (uses_.of(producer.value).reduces || uses_.of(producer.value).may_fault) return false;
    if (moves_only(producer)) return true;
    if (moves || readers_[id.index()] >= 1000 || holds_memory(producer, n)) return false;
    const size_t readers = readers_[id.index()], inputs = streams(producer);
    const bool covering = covers(reader, load);
    if (sites_[id.index()] == 1 && covering) return true;
    const uint32_t work = weights_.of(program_, producer.value).work;
    if (!covering) return inputs <= 1 && work <= (is_first(producer) ? most_again_ : kAgain);
    return work < kDear && readers * inputs <= inputs + 1 + readers;
  }

  void take_in(Equation& e, bool moves) {
    counted_ = {};
    Rewrite rewrite(program_, [&](TermId id) -> std::optional<TermId> {
      const Term t = program_.term(id);
      if (!is_load(t) || !wanted(e, t, moves)) return std::nullopt;
      const size_t rank = program_.buffer(BufferId(t.id)).type.sizes.size();
      std::vector<TermId> index;
      for (size_t d = 0; d < rank; ++d) index.push_back(rewrite(t.operands[d]));
      const Equation& producer = program_.equations[equation_of_[t.id]];
      if (t.op == Op::kLoad) return at(producer, index, {});
      const TermId condition = rewrite(t.operands[rank]), otherwise = rewrite(t.operands[rank + 1]);
      return program_.where(condition, at(producer, index, condition), otherwise);
    });
    change_roots(e, [&](TermId id) { return rewrite(id); });
  }

  /// The value of a producer at an index; memory is read only where the condition holds, when there is one.
  TermId at(const Equation& producer, const std::vector<TermId>& index, TermId condition) {
    bool same = !condition.valid();  // at the very point of the reader: nothing is to be written again
    for (size_t d = 0; d < index.size() && same; ++d)
      same =
          index[d] == program_.axis_value(producer.axes[d]) || is_one(program_.buffer(producer.target).type.sizes[d]);
    if (same) return checked(producer.value, index);
    Rewrite rewrite(program_, [&](TermId id) -> std::optional<TermId> {
      const Term t = program_.term(id);
      if (t.op == Op::kAxis) {
        const auto found = std::find(producer.axes.begin(), producer.axes.end(), AxisId(t.id));
        return found == producer.axes.end() ? id : index[static_cast<size_t>(found - producer.axes.begin())];
      }
      if (!condition.valid() || !is_load(t)) return std::nullopt;
      const size_t rank = program_.buffer(BufferId(t.id)).type.sizes.size();
      std::vector<TermId> inner;
      for (size_t d = 0; d < rank; ++d) inner.push_back(rewrite(t.operands[d]));
      TermId holds = condition;
      TermId otherwise = program_.constant_int(0, t.dtype);
      if (t.op == Op::kGuarded) {
        const TermId own = rewrite(t.operands[rank]);
        holds = program_.binary(Op::kAnd, condition, own);
        otherwise = rewrite(t.operands[rank + 1]);
      }
      return program_.guarded(BufferId(t.id), inner, holds, otherwise);
    });
    return checked(rewrite(producer.value), index);
  }
  TermId checked(TermId value, const std::vector<TermId>& index) {
    uses_.extend(program_);
    const bool any = std::any_of(index.begin(), index.end(), [&](TermId id) { return uses_.of(id).may_fault; });
    return any ? with_checks(program_, value, index) : value;
  }

  Program& program_;
  const uint32_t most_again_;
  Uses uses_;
  Weights weights_;
  std::vector<size_t> equation_of_, readers_, sites_, streams_;
  std::vector<size_t> last_read_;  ///< by buffer: the last equation that reads its memory
  std::vector<size_t> calls_;      ///< by equation: extern calls up to it
  size_t now_ = 0;                 ///< the equation that takes in its producers
  TermId counted_;                 ///< the value whose axes are known
  size_t axes_ = 0;
};

}  // namespace

void inline_cheap(Program& program, const Shape& shape) { Inliner(program, shape).run(); }

}  // namespace magneto::schedule
