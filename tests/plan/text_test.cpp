#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/plan.h"

namespace magneto::plan {
namespace {

constexpr std::string_view kText = R"(plan {
  in x: 3072*s0
  constant w: 3072
  temp t: 3072*s0 at 0
  temp u: 64 at 3072*s0
  alone a: 3072*s0
  made m: 3072*s0
  out y: 3072*s0
  arena 3072*s0 + 64
  where 1 <= s0
  where s0 != 7
  run k_t(x, -> t) points s0 grain 4 scratch 3072
  run k_u(t, -> u, -> a) points 1
  run k_v(t, <-> u) points (s0 + 3) // 4 threads 128 with s0, s3 scratch 12288
  call "aten::mm" (t, w) -> (y) "transpose_b"
  call "aten::mm" (a, w) -> (m) ""
  call "note" () -> () ""
}
)";

TEST(Plan, PrintAndParseAreInverse) {
  const Plan plan = parse(kText);
  EXPECT_EQ(print(plan), kText);
  EXPECT_TRUE(verify(plan).empty()) << verify(plan).front();
  EXPECT_EQ(plan.steps[0].grain, 4);
  EXPECT_EQ(plan[plan.steps[3].writes[0]].name, "y");
}

TEST(Plan, WrongTextIsAFaultWithItsLine) {
  for (const char* text :
       {"", "plan {", "plan {\n  in x\n}\n", "plan {\n  run k(x) points 1\n}\n", "plan {\n  foo\n}\n",
        "plan {\n  in x: 4 4\n}\n", "plan {\n  in x: 4\n  in x: 4\n}\n", "plan {\n}\nmore\n"})
    EXPECT_THROW(parse(text), base::Fault) << text;
}

TEST(Plan, AKernelSaysWhatItReadsAndWhatItWrites) {
  const Plan plan = parse(kText);
  const Step& k_v = plan.steps[2];
  EXPECT_EQ(k_v.buffers, (std::vector{BufferId(2), BufferId(3)}));
  EXPECT_EQ(k_v.reads, k_v.buffers);
  EXPECT_EQ(k_v.writes, (std::vector{BufferId(3)}));
  EXPECT_EQ(plan.steps[0].reads, (std::vector{BufferId(0)}));
}

}  // namespace
}  // namespace magneto::plan
