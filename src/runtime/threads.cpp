// A job is a range and a function. Whoever works on it takes the next part with one atomic addition, so a slow thread
// takes fewer. The caller works, too; it waits only for parts that others have begun. Small jobs (fewer points than two
// grains) never wake anybody.
#include "runtime/threads.h"

#include <algorithm>

namespace magneto::runtime {

namespace {
thread_local bool in_job = false;  // of this thread, whichever pool it works for: nested calls run where they stand
}

Threads::Threads(int count) {
  for (int thread = 1; thread < count; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Threads::~Threads() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::take_parts(int thread) {
  for (;;) {
    const int64_t lo = next_.fetch_add(part_, std::memory_order_relaxed);
    if (lo >= points_) return;
    (*body_)(lo, std::min(lo + part_, points_), thread);
  }
}

void Threads::work(int thread) {
  in_job = true;
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stops_ || (generation_ != seen && wanted_ > 0); });
    if (stops_) return;
    seen = generation_;
    --wanted_;
    ++busy_;
    lock.unlock();
    take_parts(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void Threads::parallel_for(int64_t points, int64_t grain, const Body& body) {
  if (points <= 0) return;
  const int64_t parts = points / std::max<int64_t>(grain, 1);
  std::unique_lock owner(owner_, std::defer_lock);
  if (workers_.empty() || parts < 2 || in_job || !owner.try_lock()) return body(0, points, 0);
  const auto helpers = static_cast<int>(std::min<int64_t>(parts, count()) - 1);
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    points_ = points;
    // a few parts for each thread even out their speed
    part_ = std::max(grain, (points + 4 * (helpers + 1) - 1) / (4 * (helpers + 1)));
    next_.store(0, std::memory_order_relaxed);
    wanted_ = helpers;
    ++generation_;
  }
  if (helpers == 1)
    wake_.notify_one();
  else
    wake_.notify_all();
  in_job = true;
  take_parts(0);
  in_job = false;
  std::unique_lock lock(mutex_);
  wanted_ = 0;  // whoever has not woken by now is not needed
  done_.wait(lock, [&] { return busy_ == 0; });
  body_ = nullptr;
}

}  // namespace magneto::runtime
