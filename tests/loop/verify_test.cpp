#include "loop/verify.h"

#include <gtest/gtest.h>

#include "loop/text.h"

namespace magneto::loop {
namespace {

std::string first(const std::string& rest) {
  const auto broken =
      verify(parse("loop {\n in x: f32[8, 4]\n in h: f16[8]\n in n: i32[8]\n out y: f32[8]\n" + rest + "\n}"));
  return broken.empty() ? "" : broken[0];
}

TEST(Verify, TypesOfTerms) {
  EXPECT_EQ(first("y[i] = x[i, 0] + f32(n[i])"), "");
  EXPECT_EQ(first("y[i] = x[i, 0] + 1"), "x[i, 0] + 1 mixes f32 and i64");
  EXPECT_EQ(first("y[i] = f32(h[i] + h[i])"), "+ does not take f16: cast to f32 first, in h[i] + h[i]");
  EXPECT_EQ(first("y[i] = x[i]"), "x[i] has 1 indices; x has 2 sizes");
  EXPECT_EQ(first("y[i] = x[i, n[i]]"), "index n[i] is no i64");
  EXPECT_EQ(first("y[i] = f32(n[i] / n[i])"), "/ does not take i32, in n[i] / n[i]");
  EXPECT_EQ(first("y[i] = where(n[i], 1.0, 2.0)"), "the condition of where(n[i], 1.0, 2.0) is no bool");
  EXPECT_EQ(first("y[i] = f32(n[i])\n out z: bool[]\n z[] = any(i < 8, n[i])"),
            "any does not fold i32, in any(i < 8, n[i])");
  EXPECT_EQ(first("y[i] = f32(bits_i64(x[i, 0]))"), "bits_i64(x[i, 0]) changes the number of bits");
}

TEST(Verify, NamesAreBoundOnce) {
  EXPECT_EQ(first("y[i] = x[i, j]"), "axis j is not bound in y[i] = x[i, j]");
  EXPECT_EQ(first("y[i] = sum(i < 4, x[i, i])"), "axis i is bound twice in y[i] = sum(i < 4, x[i, i])");
  EXPECT_EQ(first("kernel k(i < 8) {\n phase j < 4 {\n let v = x[i, j]\n }\n store y[i] = v\n}"),
            "v is not known yet in kernel k");
  EXPECT_EQ(first("kernel k(i < 8) {\n phase j < 4 {\n sum s = x[i, j]\n store y[i] = s\n }\n}"),
            "s is not known yet in kernel k");
}

TEST(Verify, EachTargetIsWrittenOnceInItsType) {
  EXPECT_EQ(first("y[i] = f64(n[i])"), "y[i] = f64(n[i]) gives f64 to y, which holds f32");
  EXPECT_EQ(first("scan y[i] = sum over i: f64(n[i])"), "");  // what is added up may be wider
  EXPECT_EQ(first("scan y[i] = sum over i: n[i]"), "scan y[i] = sum over i: n[i] gives i32 to y, which holds f32");
  EXPECT_EQ(first("y[i] = 1.0\n y[i] = 2.0"), "y is written twice, by y[i] = 2.0");
  EXPECT_EQ(first("n[i] = 3:i32"), "input n is written by n[i] = 3:i32");
  EXPECT_EQ(first("temp t: f32[8]\n y[i] = t[i]"), "t is read before it is written, in y[i] = t[i]");
}

TEST(Verify, TheShapeOfKernels) {
  EXPECT_EQ(first("kernel k(i < 8) {\n phase j < 4 {\n phase k < 2 {\n }\n }\n store y[i] = 0.0\n}"),
            "phase k < 2 stands in another loop, in kernel k");
  EXPECT_EQ(first("kernel k() {\n each i < 8 {\n each j < 4 {\n store y[i] = 0.0\n }\n }\n}"),
            "each j < 4 stands in another loop, in kernel k");
  EXPECT_EQ(first("kernel k() {\n each i < 8, vector 4 {\n store y[i] = 0.0\n }\n}"),
            "rows that are walked one after the other are vectorised in kernel k");
  EXPECT_EQ(first("kernel k() {\n each i < 8 {\n let v = x[i, 0]\n }\n phase j < 8 {\n store y[j] = v\n }\n}"),
            "v is not known yet in kernel k");
  EXPECT_EQ(first("kernel k(i < 8) {\n sum s = 1.0\n store y[i] = 0.0\n}"), "fold s stands in no phase, in kernel k");
  EXPECT_EQ(first("kernel k() {\n row r: f32[8]\n phase i < 8 {\n store r[i] = 1.0\n store y[i] = r[i]\n }\n}"),
            "row r is read in the phase that fills it, in kernel k");
  EXPECT_EQ(first("kernel k() {\n phase i < 8, vector 3 {\n store y[i] = 1.0\n }\n}"),
            "vector 3 is no power of two up to 64, in kernel k");
  EXPECT_EQ(first("kernel k() {\n phase i < 8, vector 4 {\n scan sum s = 1.0\n store y[i] = s\n }\n}"),
            "a scan stands in a phase that is vectorised or unrolled, in kernel k");
  EXPECT_EQ(first("kernel k() {\n phase i < 7 {\n store y[i] = y[i + 1]\n }\n}"),
            "y is stored to and read at another place, in kernel k");
  EXPECT_EQ(first("kernel k() {\n phase i < 8 {\n store y[i] = sum(j < 4, x[i, j])\n }\n}"),
            "a reduction stands as a term in kernel k; kernels fold in phases");
  EXPECT_EQ(first("kernel k() {\n phase i < 8 {\n argmax s = 1.0\n store y[i] = 1.0\n }\n}"),
            "argmax has no position in kernel k");
  EXPECT_EQ(first("kernel k() {\n let a = 1.0\n}"), "output y is never written");
}

}  // namespace
}  // namespace magneto::loop
