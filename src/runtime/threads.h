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

/// Somebody's threads.
class Team {
 public:
  virtual ~Team() = default;
  virtual int count() const = 0;  ///< that work on a job, the caller included

  using Body = std::function<void(int64_t lo, int64_t hi, int thread)>;
  /// Calls `body` for parts of 0 .. points, at least `grain` points each but the last; `thread` is below count(), and
  /// no two calls at one time have the same. Returns when all are done. A call from inside a job runs on the calling
  /// thread alone (as thread 0 of its own), so nothing waits for itself. `body` must not throw.
  virtual void parallel_for(int64_t points, int64_t grain, const Body& body) const = 0;
};

/// Threads of our own.
class Threads final : public Team {
 public:
  /// `count` threads work on a job, the caller included: count - 1 are started here.
  explicit Threads(int count);
  ~Threads() override;
  Threads(const Threads&) = delete;

  int count() const override { return static_cast<int>(workers_.size()) + 1; }

  /// One job has the threads: a call while another has them runs on the calling thread alone. So there are never more
  /// threads at work than callers and workers.
  void parallel_for(int64_t points, int64_t grain, const Body& body) const override;

 private:
  struct Work {        ///< what the threads share
    std::mutex owner;  ///< held by the caller whose job has the threads
    std::mutex mutex;
    std::condition_variable wake, done;
    uint64_t generation = 0;
    bool stops = false;
    int wanted = 0, busy = 0;
    const Body* body = nullptr;
    int64_t points = 0, part = 1;
    std::atomic<int64_t> next{0};
  };
  void work(int thread);
  void take_parts(int thread) const;

  std::vector<std::thread> workers_;
  mutable Work work_;
};

}  // namespace magneto::runtime
