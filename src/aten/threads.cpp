#include "aten/threads_internal.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>

namespace magneto::aten {

namespace {

// The entry of OpenMP's runtime that compiled `omp parallel` regions call. Looked up, not linked: it must be the one
// that torch brought, of whatever compiler.
using Parallel = void (*)(void (*body)(void*), void* argument, unsigned threads, unsigned flags);

class TorchTeam final : public runtime::Team {
 public:
  TorchTeam() : parallel_(reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"))) {}

  int count() const override { return parallel_ && !at::in_parallel_region() ? at::get_num_threads() : 1; }

  void parallel_for(int64_t points, int64_t grain, const Body& body) const override {
    if (points <= 0) return;
    const int64_t parts = std::min<int64_t>(points / std::max<int64_t>(grain, 1), count());
    if (parts < 2) return body(0, points, 0);
    // a few parts for each thread even out their speed
    Job job{&body, points, std::max(grain, (points + 4 * parts - 1) / (4 * parts)), 0, 0};
    parallel_(&work, &job, static_cast<unsigned>(parts), 0);
  }

 private:
  struct Job {
    const Body* body;
    int64_t points, part;
    std::atomic<int64_t> next;
    std::atomic<int> threads;
  };
  static void work(void* argument) {
    Job& job = *static_cast<Job*>(argument);
    const int thread = job.threads.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
      const int64_t lo = job.next.fetch_add(job.part, std::memory_order_relaxed);
      if (lo >= job.points) return;
      (*job.body)(lo, std::min(lo + job.part, job.points), thread);
    }
  }

  const Parallel parallel_;
};

}  // namespace

const runtime::Team& torch_team() {
  static const TorchTeam team;
  return team;
}

}  // namespace magneto::aten
