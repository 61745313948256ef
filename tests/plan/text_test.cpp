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
  run k_t(x, t) points s0 grain 4 scratch 3072
  run k_u(t, u) points 1
  run k_v(t, u) points (s0 + 3) // 4 threads 128 with s0, s3 scratch 12288
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

TEST(Plan, VerifySeesWhatDoesNotHold) {
  Plan plan = parse(kText);
  plan.steps[3].writes = {BufferId(0)};
  EXPECT_EQ(verify(plan).front(), "aten::mm writes x");
  plan = parse(kText);
  plan.steps[0].grain = 0;
  EXPECT_FALSE(verify(plan).empty());
  plan = parse(kText);
  plan.steps[2].threads = 0;
  EXPECT_FALSE(verify(plan).empty());
  plan = parse(kText);
  plan.arena = 0;
  EXPECT_FALSE(verify(plan).empty());
  plan.steps[0].reads[0] = BufferId(99);
  EXPECT_FALSE(verify(plan).empty());
}

}  // namespace
}  // namespace magneto::plan
