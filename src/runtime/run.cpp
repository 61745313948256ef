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

/// A few values on the stack, many on the heap.
template <class Item, size_t kFew>
class Row {
 public:
  explicit Row(size_t count) {
    if (count > kFew) many_.resize(count);
  }
  Item* data() { return many_.empty() ? few_ : many_.data(); }

 private:
  Item few_[kFew];
  std::vector<Item> many_;
};

class CpuLauncher final : public Launcher {
 public:
  CpuLauncher(const plan::Plan& plan, const std::function<Kernel*(const std::string&)>& find) : plan_(plan) {
    for (const plan::Step& s : plan.steps) {
      kernels_.push_back(s.kind == plan::Step::Kind::kRun ? find(s.name) : nullptr);
      base::check(s.kind != plan::Step::Kind::kRun || kernels_.back(), "run: nobody has kernel ", s.name);
    }
  }

  int scratch_copies(const Environment& with) const override { return with.threads ? with.threads->count() : 1; }

  void launch(const Launch& l) const override {
    const plan::Step& s = plan_.steps[l.step];
    Kernel* const kernel = kernels_[l.step];
    Row<void*, 32> buffers(s.buffers.size());
    void** const arguments = buffers.data();
    for (size_t k = 0; k < s.buffers.size(); ++k) arguments[k] = l.place[s.buffers[k].index()];
    const auto part = [&](int64_t lo, int64_t hi, int thread) {
      int32_t own = 0;  // of this part: threads do not write to one word
      kernel(arguments, l.symbols, lo, hi, l.rows + l.scratch * thread, &own);
      if (own) std::atomic_ref(*l.fault).store(1, std::memory_order_relaxed);
    };
    if (l.with.threads)
      l.with.threads->parallel_for(l.points, s.grain, part);
    else
      part(0, l.points, 0);
  }

 private:
  const plan::Plan& plan_;
  std::vector<Kernel*> kernels_;  ///< by step; null for calls
};

bool is_fixed(const plan::Plan& plan) {
  const auto fixed = [](const types::Expr& e) { return e.is_constant(); };
  return fixed(plan.arena) &&
         std::all_of(plan.buffers.begin(), plan.buffers.end(), [&](const plan::Buffer& b) { return fixed(b.at); }) &&
         std::all_of(plan.steps.begin(), plan.steps.end(),
                     [&](const plan::Step& s) { return fixed(s.points) && fixed(s.scratch); });
}

}  // namespace

std::unique_ptr<Launcher> cpu_launcher(const plan::Plan& plan, const std::function<Kernel*(const std::string&)>& find) {
  return std::make_unique<CpuLauncher>(plan, find);
}

Runner::Runner(plan::Plan plan, const MakeLauncher& make)
    : plan_(std::make_unique<plan::Plan>(std::move(plan))), launcher_(make(*plan_)) {
  if (is_fixed(*plan_)) fixed_ = measure({});
  find_lives();
}

Runner::Sizes Runner::measure(const std::vector<int64_t>& symbols) const {
  Sizes made;
  made.arena = std::max<int64_t>(plan_->arena.evaluate(symbols), 0);
  made.at.reserve(plan_->buffers.size());
  for (const plan::Buffer& b : plan_->buffers)
    made.at.push_back(b.place == plan::Place::kTemp ? b.at.evaluate(symbols) : 0);
  made.points.reserve(plan_->steps.size());
  made.scratch_of.reserve(plan_->steps.size());
  for (const plan::Step& s : plan_->steps) {
    made.points.push_back(s.points.evaluate(symbols));
    made.scratch_of.push_back((s.scratch.evaluate(symbols) + 63) / 64 * 64);
    made.scratch = std::max(made.scratch, made.scratch_of.back());
  }
  return made;
}

void Runner::find_lives() {
  beginnings_.resize(plan_->steps.size());
  std::vector<bool> touched(plan_->buffers.size());
  for (size_t n = 0; n < plan_->steps.size(); ++n)
    for (const auto* list : {&plan_->steps[n].reads, &plan_->steps[n].writes})
      for (const plan::BufferId id : *list) {
        const plan::Place place = (*plan_)[id].place;
        if ((place == plan::Place::kOut || place == plan::Place::kAlone) && !touched[id.index()])
          beginnings_[n].push_back(id);
        touched[id.index()] = true;
      }
  endings_.resize(plan_->steps.size());
  std::vector<bool> read(plan_->buffers.size());
  for (size_t n = plan_->steps.size(); n-- > 0;)
    for (const auto* list : {&plan_->steps[n].reads, &plan_->steps[n].writes})
      for (const plan::BufferId id : *list) {
        const plan::Place place = (*plan_)[id].place;
        const bool ends = place == plan::Place::kCall || place == plan::Place::kIn || place == plan::Place::kAlone;
        if (ends && !read[id.index()]) endings_[n].push_back(id);
        read[id.index()] = true;
      }
}

Outcome Runner::run(const std::vector<void*>& memory, const std::vector<int64_t>& symbols,
                    const Environment& with) const {
  base::check(memory.size() == plan_->buffers.size(), "run: ", memory.size(), " pointers for ", plan_->buffers.size(),
              " buffers");
  for (const types::Condition& c : plan_->conditions)
    if (!c.holds(symbols)) return Outcome::kCondition;
  std::optional<Sizes> measured;
  if (!fixed_) measured = measure(symbols);
  const Sizes& sizes = fixed_ ? *fixed_ : *measured;
  const Block arena(with, static_cast<size_t>(sizes.arena));
  const Block rows(with, static_cast<size_t>(sizes.scratch * launcher_->scratch_copies(with)));

  Row<void*, 32> places(memory.size());
  void** const place = places.data();
  for (size_t b = 0; b < memory.size(); ++b)
    place[b] = plan_->buffers[b].place == plan::Place::kTemp ? arena.at() + sizes.at[b] : memory[b];
  const int64_t none = 0;
  int32_t fault = 0;
  std::vector<void*> arguments;
  for (size_t n = 0; n < plan_->steps.size(); ++n) {
    const plan::Step& s = plan_->steps[n];
    if (with.provide)
      for (const plan::BufferId id : beginnings_[n]) place[id.index()] = with.provide(id);
    if (s.kind == plan::Step::Kind::kRun) {
      if (sizes.points[n] > 0)
        launcher_->launch({n, place, symbols.empty() ? &none : symbols.data(), sizes.points[n], sizes.scratch_of[n],
                           rows.at(), &fault, with});
    } else {
      base::check(static_cast<bool>(with.call), "run: nobody knows how to call ", s.name);
      arguments.clear();
      for (const plan::BufferId id : s.reads) arguments.push_back(place[id.index()]);
      for (const plan::BufferId id : s.writes) arguments.push_back(place[id.index()]);
      with.call(s, arguments.data(), symbols);
      for (size_t w = 0; w < s.writes.size(); ++w) place[s.writes[w].index()] = arguments[s.reads.size() + w];
    }
    if (with.drop)
      for (const plan::BufferId id : endings_[n]) with.drop(id);
  }
  return fault ? Outcome::kFault : Outcome::kDone;
}

}  // namespace magneto::runtime
