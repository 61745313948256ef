#include <gtest/gtest.h>

#include "base/check.h"
#include "base/ids.h"

namespace magneto::base {
namespace {

TEST(Id, TheDefaultNamesNothing) {
  EXPECT_FALSE(Id<struct Thing>().valid());
  EXPECT_TRUE(Id<struct Thing>(0).valid());
  EXPECT_LT(Id<struct Thing>(1), Id<struct Thing>(2));
}

TEST(Check, AFaultSaysWhatWasSeenAndPromised) {
  EXPECT_NO_THROW(check(true, "never"));
  try {
    check(false, "fuse: nest n", 7, " has extent ", 0);
    FAIL();
  } catch (const Fault& fault) {
    EXPECT_STREQ(fault.what(), "fuse: nest n7 has extent 0");
  }
}

}  // namespace
}  // namespace magneto::base
