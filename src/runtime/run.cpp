#include "runtime/run.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/check.h"

namespace magneto::runtime {

namespace {

/// Memory of one run, given back at its end.
class Block {
 public:
  Block(const Environment& with, size_t bytes) : with_(with) {
    if (bytes == 0) return;
    bytes = (bytes + 63) / 64 * 64;
    at_ = static_cast<char*>(with.allocate ? with.allocate(bytes) : std::aligned_alloc(64, bytes));
    base::check(at_ != nullptr, "run: no memory for ", bytes, " bytes");
  }
  ~Block() {
    if (!at_) return;
    if (with_.release)
      with_.release(at_);
    else if (!with_.allocate)
      std::free(at_);
  }
  Block(const Block&) = delete;
  char* at() const { return at_; }

 private:
  const Environment& with_;
  char* at_ = nullptr;
};

}  // namespace

Runner::Runner(plan::Plan plan, const std::function<Kernel*(const std::string&)>& find) : plan_(std::move(plan)) {
  for (const plan::Step& s : plan_.steps) {
    kernels_.push_back(s.kind == plan::Step::Kind::kRun ? find(s.name) : nullptr);
    base::check(s.kind != plan::Step::Kind::kRun || kernels_.back(), "run: nobody has kernel ", s.name);
  }
  endings_.resize(plan_.steps.size());
  std::vector<bool> read(plan_.buffers.size());
  for (size_t n = plan_.steps.size(); n-- > 0;)
    for (const auto* list : {&plan_.steps[n].reads, &plan_.steps[n].writes})
      for (const plan::BufferId id : *list) {
        if (plan_[id].place == plan::Place::kCall && !read[id.index()]) endings_[n].push_back(id);
        read[id.index()] = true;
      }
}

Outcome Runner::run(const std::vector<void*>& memory, const std::vector<int64_t>& symbols,
                    const Environment& with) const {
  base::check(memory.size() == plan_.buffers.size(), "run: ", memory.size(), " pointers for ", plan_.buffers.size(),
              " buffers");
  for (const types::Condition& c : plan_.conditions)
    if (!c.holds(symbols)) return Outcome::kCondition;
  const int threads = with.threads ? with.threads->count() : 1;
  int64_t scratch = 0;
  for (const plan::Step& s : plan_.steps) scratch = std::max(scratch, s.scratch.evaluate(symbols));
  scratch = (scratch + 63) / 64 * 64;
  const Block arena(with, static_cast<size_t>(std::max<int64_t>(plan_.arena.evaluate(symbols), 0)));
  const Block rows(with, static_cast<size_t>(scratch * threads));

  std::vector<void*> place = memory;
  for (size_t b = 0; b < place.size(); ++b)
    if (plan_.buffers[b].place == plan::Place::kTemp) place[b] = arena.at() + plan_.buffers[b].at.evaluate(symbols);
  std::vector<int64_t> values = symbols;
  values.resize(std::max<size_t>(values.size(), 1));
  int32_t fault = 0;
  std::vector<void*> arguments;
  const auto drop = [&](size_t n) {
    if (with.drop)
      for (const plan::BufferId id : endings_[n]) with.drop(id);
  };
  for (size_t n = 0; n < plan_.steps.size(); ++n) {
    const plan::Step& s = plan_.steps[n];
    arguments.clear();
    for (const plan::BufferId id : s.reads) arguments.push_back(place[id.index()]);
    for (const plan::BufferId id : s.writes) arguments.push_back(place[id.index()]);
    if (s.kind == plan::Step::Kind::kCall) {
      base::check(static_cast<bool>(with.call), "run: nobody knows how to call ", s.name);
      with.call(s, arguments.data(), symbols);
      for (size_t w = 0; w < s.writes.size(); ++w) place[s.writes[w].index()] = arguments[s.reads.size() + w];
      drop(n);
      continue;
    }
    const int64_t points = s.points.evaluate(symbols);
    Kernel* const kernel = kernels_[n];
    const auto part = [&](int64_t lo, int64_t hi, int thread) {
      int32_t own = 0;  // of this part: threads do not write to one word
      kernel(arguments.data(), values.data(), lo, hi, rows.at() + scratch * thread, &own);
      if (own) std::atomic_ref(fault).store(1, std::memory_order_relaxed);
    };
    if (with.threads)
      with.threads->parallel_for(points, s.grain, part);
    else if (points > 0)
      part(0, points, 0);
    drop(n);
  }
  return fault ? Outcome::kFault : Outcome::kDone;
}

}  // namespace magneto::runtime
