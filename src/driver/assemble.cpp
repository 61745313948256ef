#include "driver/assemble.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "codegen/abi.h"
#include "loop/uses.h"
#include "schedule/memory.h"
#include "schedule/share.h"

namespace magneto::driver {

using namespace loop;
using types::Expr;

namespace {

constexpr int64_t kGrain = 16384;  ///< elements that are worth waking a thread

/// The elements that are visited, about: of a kernel's body, at one point.
int64_t elements_of(const Program& program, const std::vector<Statement>& body) {
  int64_t sum = 1;
  for (const Statement& s : body) {
    if (s.kind != Statement::Kind::kLoop) continue;
    int64_t elements = 1;
    for (const Range& r : s.loop.front().ranges) elements *= std::max<int64_t>(most_of(program, r).value_or(256), 1);
    sum += elements * elements_of(program, s.loop.front().body);
  }
  return sum;
}

class Assembler {
 public:
  Assembler(const Program& program, const Assembly& how)
      : program_(program),
        on_gpu_(how.device == types::Device::Kind::kCuda),
        arena_(schedule::plan_memory(program, how.memory)),
        sharing_(schedule::share(program)) {}

  Assembled run() {
    for (size_t b = 0; b < program_.buffers(); ++b) buffer(BufferId(b));
    made_.plan.arena = arena_.bytes;
    made_.peak = arena_.bytes;
    made_.apart = arena_.apart;
    size_t next = 0;
    in_order(
        program_, [&](const Equation& e) { call(e); }, [&](const Kernel& k) { kernel(k, next++); });
    made_.places = std::move(place_);
    return std::move(made_);
  }

 private:
  void buffer(BufferId id) {
    const Buffer& b = program_.buffer(id);
    place_.emplace_back();
    if (b.of.valid()) {
      place_.back() = place_[b.of.index()];
      return;
    }
    if (b.role == Role::kRow || (b.role == Role::kTemp && !arena_.used[id.index()])) return;
    plan::Buffer made;
    made.name = b.name;
    made.place = b.role == Role::kIn        ? plan::Place::kIn
                 : arena_.made[id.index()]  ? plan::Place::kCall
                 : b.role == Role::kOut     ? plan::Place::kOut
                 : arena_.alone[id.index()] ? plan::Place::kAlone
                                            : plan::Place::kTemp;
    made.bytes = arena_.size[id.index()];
    if (made.place == plan::Place::kTemp) made.at = arena_.at[id.index()];
    place_.back() = plan::BufferId(made_.plan.buffers.size());
    made_.plan.buffers.push_back(std::move(made));
  }

  void kernel(const Kernel& k, size_t n) {
    const size_t first = sharing_.same_as[n];
    const Kernel& shared = program_.kernels[first];
    if (first == n) made_.units.push_back({&program_, &k, k.name});
    plan::Step s;
    s.name = shared.name;
    // the function wants its buffers in the order of its own program; ours stand at the same places of the agreed order
    const std::vector<BufferId>&theirs = sharing_.buffers[first], &ours = sharing_.buffers[n];
    for (const BufferId id : codegen::arguments_of(program_, shared)) {
      const auto at = std::find(theirs.begin(), theirs.end(), id) - theirs.begin();
      s.buffers.push_back(place_[ours[static_cast<size_t>(at)].index()]);
    }
    std::map<plan::BufferId, Touch> touches;
    for (const Touch& touch : touches_of(program_, k)) touches[place_[touch.storage.index()]] = touch;
    for (const plan::BufferId id : s.buffers) {  // a view and what it is a view of are one
      Touch& touch = touches[id];
      if (std::exchange(touch.reads, false)) s.reads.push_back(id);
      if (std::exchange(touch.writes, false)) s.writes.push_back(id);
    }
    if (on_gpu_) {
      const codegen::Grid grid = codegen::grid_of(program_, k);
      s.points = grid.blocks;
      s.threads = grid.threads;
      s.scratch = grid.shared;
      s.symbols = codegen::symbols_of(program_, shared);
    } else {
      s.points = codegen::points_of(program_, k);
      s.scratch = codegen::scratch_bytes(program_, k.rows);
      s.grain = std::max<int64_t>(1, kGrain / elements_of(program_, k.body));
    }
    made_.plan.steps.push_back(std::move(s));
  }

  void call(const Equation& e) {
    plan::Step s;
    s.kind = plan::Step::Kind::kCall;
    const auto places = [&](const std::vector<BufferId>& list) {
      std::vector<plan::BufferId> made;
      for (const BufferId id : list) made.push_back(place_[id.index()]);
      return made;
    };
    if (e.kind == Equation::Kind::kSort) {
      const BufferId source(program_.term(e.value).id);
      const auto d = std::find(e.axes.begin(), e.axes.end(), e.along) - e.axes.begin();
      s.name = "magneto::sort";
      s.reads = places({source});
      s.writes = places({e.target});
      s.arguments =
          base::concat(to_string(program_.buffer(source).type), "; ", to_string(program_.buffer(e.target).type));
      if (e.positions.valid()) {
        s.writes.push_back(place_[e.positions.index()]);
        s.arguments += base::concat("; ", to_string(program_.buffer(e.positions).type));
      }
      s.arguments += base::concat("; along ", d, e.descending ? " descending" : "");
    } else {
      base::check(e.kind == Equation::Kind::kExtern, "assemble: an equation is left; tile makes kernels of them");
      s.name = e.callee;
      s.reads = places(e.reads);
      s.writes = places(e.writes);
      s.arguments = e.arguments;
    }
    made_.plan.steps.push_back(std::move(s));
  }

  const Program& program_;
  const bool on_gpu_;
  schedule::Arena arena_;
  schedule::Sharing sharing_;
  std::vector<plan::BufferId> place_;
  Assembled made_;
};

}  // namespace

Assembled assemble(const Program& program, const Assembly& how) { return Assembler(program, how).run(); }

}  // namespace magneto::driver
