// runtime/threads.h: threads that share the points of a kernel.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace magneto::runtime {

class Threads {
 public:
  /// `count` threads work on a job, the caller included: count - 1 are started here.
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;

  int count() const { return static_cast<int>(workers_.size()) + 1; }

  using Body = std::function<void(int64_t lo, int64_t hi, int thread)>;
  /// Calls `body` for parts of 0 .. points, at least `grain` points each but the last; `thread` is below count(), and
  /// no two calls at one time have the same. Returns when all are done. One job has the threads: a call from inside a
  /// job, or while another has them, runs on the calling thread alone (as thread 0 of its own). So there are never more
  /// threads at work than callers and workers, and nothing waits for itself. `body` must not throw.
  void parallel_for(int64_t points, int64_t grain, const Body& body);

 private:
  void work(int thread);
  void take_parts(int thread);

  std::vector<std::thread> workers_;
  std::mutex owner_;  ///< held by the caller whose job has the threads
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  uint64_t generation_ = 0;
  bool stops_ = false;
  int wanted_ = 0, busy_ = 0;
  const Body* body_ = nullptr;
  int64_t points_ = 0, part_ = 1;
  std::atomic<int64_t> next_{0};
};

}  // namespace magneto::runtime
