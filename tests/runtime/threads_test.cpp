#include "runtime/threads.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/run.h"

namespace magneto::runtime {
namespace {

TEST(Threads, EveryPointIsVisitedOnce) {
  Threads threads(4);
  for (const int64_t points : {0, 1, 7, 100, 5000})
    for (const int64_t grain : {1, 3, 64, 10000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(points));
      std::atomic<int> outside{0};
      threads.parallel_for(points, grain, [&](int64_t lo, int64_t hi, int thread) {
        if (thread < 0 || thread >= 4) ++outside;
        for (int64_t k = lo; k < hi; ++k) ++seen[static_cast<size_t>(k)];
      });
      for (const auto& count : seen) ASSERT_EQ(count, 1);
      ASSERT_EQ(outside, 0);
    }
}

TEST(Threads, NestedCallsRunWhereTheyStand) {
  Threads threads(3);
  std::atomic<int64_t> sum{0};
  threads.parallel_for(50, 1, [&](int64_t lo, int64_t hi, int) {
    for (int64_t k = lo; k < hi; ++k)
      threads.parallel_for(20, 1, [&](int64_t a, int64_t b, int thread) {
        EXPECT_EQ(thread, 0);
        sum += b - a;
      });
  });
  EXPECT_EQ(sum, 1000);
}

TEST(Threads, ConcurrentCallersAllFinish) {
  Threads threads(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int turn = 0; turn < 300; ++turn)
        threads.parallel_for(40, 2, [&](int64_t lo, int64_t hi, int) { sum += hi - lo; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 300 * 40);
}

void add_one(void* const* buffers, const int64_t*, int64_t lo, int64_t hi, char*, int32_t* fault) {
  for (int64_t k = lo; k < hi; ++k) static_cast<int*>(buffers[1])[k] = static_cast<int*>(buffers[0])[k] + 1;
  if (lo <= 90 && hi > 90) *fault = 1;
}

TEST(Runner, StepsConditionsFaultsAndAllocators) {
  const plan::Plan plan = plan::parse(
      "plan {\n  in x: 4*s0\n  temp t: 4*s0 at 64\n  out y: 4*s0\n  arena 4*s0 + 64\n  where 1 <= s0\n"
      "  run add(x, t) points s0 grain 8\n  run add(t, y) points s0\n}\n");
  const auto with_kernel = [](Kernel* kernel) {
    return [kernel](const plan::Plan& p) { return cpu_launcher(p, [kernel](const std::string&) { return kernel; }); };
  };
  EXPECT_THROW(Runner(plan, with_kernel(nullptr)), base::Fault);
  const Runner runner(plan, with_kernel(&add_one));
  Threads threads(2);
  int live = 0;
  Environment with;
  with.threads = &threads;
  with.allocate = [&](size_t bytes) { return ++live, std::aligned_alloc(64, bytes); };
  with.release = [&](void* at) { --live, std::free(at); };
  std::vector<int> x(200, 5), y(200);
  EXPECT_EQ(runner.run({x.data(), nullptr, y.data()}, {0}, with), Outcome::kCondition);
  EXPECT_EQ(runner.run({x.data(), nullptr, y.data()}, {80}, with), Outcome::kDone);
  EXPECT_EQ(y[79], 7);
  EXPECT_EQ(y[80], 0);
  EXPECT_EQ(runner.run({x.data(), nullptr, y.data()}, {200}, with), Outcome::kFault);
  EXPECT_EQ(y[199], 7);
  EXPECT_EQ(live, 0);
}

}  // namespace
}  // namespace magneto::runtime
