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
    const std::lock_guard lock(work_.mutex);
    work_.stops = true;
  }
  work_.wake.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::take_parts(int thread) const {
  for (;;) {
    const int64_t lo = work_.next.fetch_add(work_.part, std::memory_order_relaxed);
    if (lo >= work_.points) return;
    (*work_.body)(lo, std::min(lo + work_.part, work_.points), thread);
  }
}

void Threads::work(int thread) {
  in_job = true;
  uint64_t seen = 0;
  std::unique_lock lock(work_.mutex);
  for (;;) {
    work_.wake.wait(lock, [&] { return work_.stops || (work_.generation != seen && work_.wanted > 0); });
    if (work_.stops) return;
    seen = work_.generation;
    --work_.wanted;
    ++work_.busy;
    lock.unlock();
    take_parts(thread);
    lock.lock();
    if (--work_.busy == 0) work_.done.notify_one();
  }
}

void Threads::parallel_for(int64_t points, int64_t grain, const Body& body) const {
  if (points <= 0) return;
  const int64_t parts = points / std::max<int64_t>(grain, 1);
  std::unique_lock owner(work_.owner, std::defer_lock);
  if (workers_.empty() || parts < 2 || in_job || !owner.try_lock()) return body(0, points, 0);
  const auto helpers = static_cast<int>(std::min<int64_t>(parts, count()) - 1);
  {
    const std::lock_guard lock(work_.mutex);
    work_.body = &body;
    work_.points = points;
    // a few parts for each thread even out their speed
    work_.part = std::max(grain, (points + 4 * (helpers + 1) - 1) / (4 * (helpers + 1)));
    work_.next.store(0, std::memory_order_relaxed);
    work_.wanted = helpers;
    ++work_.generation;
  }
  if (helpers == 1)
    work_.wake.notify_one();
  else
    work_.wake.notify_all();
  in_job = true;
  take_parts(0);
  in_job = false;
  std::unique_lock lock(work_.mutex);
  work_.wanted = 0;  // whoever has not woken by now is not needed
  work_.done.wait(lock, [&] { return work_.busy == 0; });
  work_.body = nullptr;
}

}  // namespace magneto::runtime
