// The judge itself is judged by numbers that torch gives.
#include "loop/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "loop/text.h"
#include "memory.h"

namespace magneto::loop {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The value of a term without buffers, as it is stored in `type`.
Number value(const std::string& term, const std::string& type, bool* sound = nullptr) {
  const Program program = parse("loop {\n out y: " + type + "[]\n y[] = " + term + "\n}");
  Memory memory(program, {}, 1);
  const bool fine = interpret(program, {}, memory.pointers());
  if (sound) *sound = fine;
  return memory.number(BufferId(0), 0);
}
double f32(const std::string& term) { return value(term, "f32").real; }
int64_t i64(const std::string& term) { return value(term, "i64").whole; }

TEST(Interpret, DivisionRoundsAsTorchDoes) {
  EXPECT_EQ(i64("-7 // 2"), -4);
  EXPECT_EQ(i64("-7 % 2"), 1);
  EXPECT_EQ(i64("7 % -2"), -1);
  EXPECT_EQ(i64("trunc_div(-7, 2)"), -3);
  EXPECT_EQ(i64("fmod(-7, 2)"), -1);
  EXPECT_EQ(f32("-7.0 // 2.0"), -4);
  EXPECT_EQ(f32("-7.5 % 2.0"), 0.5);
  EXPECT_EQ(f32("fmod(-7.5, 2.0)"), -1.5);
  EXPECT_EQ(f32("1.0 // 0.0"), kInf);
  EXPECT_TRUE(std::isnan(f32("1.0 % 0.0")));
  EXPECT_EQ(value("1.0:f64 // 0.1:f64", "f64").real, 9);  // torch: 9, though 1 / 0.1 rounds to 10
  EXPECT_TRUE(std::signbit(f32("-0.0 // 3.0")));
}

TEST(Interpret, IntegersWrap) {
  EXPECT_EQ(value("200:u8 + 100:u8", "u8").whole, 44);
  EXPECT_EQ(value("-100:i8 - 100:i8", "i8").whole, 56);
  EXPECT_EQ(value("-(-2147483648:i32)", "i32").whole, -2147483648);
  EXPECT_EQ(value("trunc_div(-2147483648:i32, -1:i32)", "i32").whole, -2147483648);
  EXPECT_EQ(i64("9223372036854775807 + 1"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(i64("pow(3, 40)"), static_cast<int64_t>(12157665459056928801u));  // modulo 2^64
  EXPECT_EQ(i64("pow(2, -1)"), 0);
  EXPECT_EQ(i64("1 << 64"), 0);
  EXPECT_EQ(i64("-8 >> 70"), -1);
  EXPECT_EQ(value("u8(-1.0)", "u8").whole, 255);
  EXPECT_EQ(value("~5:u8", "u8").whole, 250);
  EXPECT_EQ(value("~true", "bool").whole, 0);
}

TEST(Interpret, NanAndSigns) {
  EXPECT_TRUE(std::isnan(f32("max(nan, 1.0)")));
  EXPECT_TRUE(std::isnan(f32("min(1.0, nan)")));
  EXPECT_EQ(i64("i64(nan == nan)"), 0);
  EXPECT_EQ(i64("i64(bool(nan))"), 1);
  EXPECT_EQ(f32("round(2.5)"), 2);
  EXPECT_EQ(f32("round(-3.5)"), -4);
  EXPECT_EQ(i64("argmax(i < 5, where(i == 3, nan, f32(i)))"), 3);
  EXPECT_EQ(i64("argmax(i < 5, f32(i % 2))"), 1);
  EXPECT_EQ(i64("argmin(i < 3, k < 4, f32(-(i * 4 + k) % 7))"), 0);
  EXPECT_EQ(f32("max(i < 0, f32(i))"), -kInf);
  EXPECT_EQ(i64("prod(i < 0, i)"), 1);
}

TEST(Interpret, HalvesAreRoundedWhereTheyAreCast) {
  EXPECT_EQ(f32("f32(bf16(1.00390625))"), 1.0);       // a tie goes to even
  EXPECT_EQ(f32("f32(bf16(1.01171875))"), 1.015625);  // so does this one
  EXPECT_EQ(f32("f32(f16(65519.0))"), 65504);
  EXPECT_EQ(f32("f32(f16(65520.0))"), kInf);
  EXPECT_EQ(f32("f32(f16(3e-08))"), std::ldexp(1.0, -24) * 1.0);
  EXPECT_EQ(f32("f32(f16(2e-08))"), 0);
  EXPECT_EQ(value("f16(-0.0)", "f16").real, 0);
  for (int bits = 0; bits < 65536; ++bits) {
    const auto given = static_cast<uint16_t>(bits);
    uint16_t back = 0;
    write(Dtype::kF16, &back, read(Dtype::kF16, &given));
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
    ASSERT_TRUE(nan || back == given) << bits;
    write(Dtype::kBF16, &back, read(Dtype::kBF16, &given));
    const bool bnan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f);
    ASSERT_TRUE(bnan || back == given) << bits;
  }
}

TEST(Interpret, FaultsAreReportedAndOutOfBoundsIsOurs) {
  bool sound = true;
  value("1 // (2 - 2)", "i64", &sound);
  EXPECT_FALSE(sound);
  value("checked(5, 5)", "i64", &sound);
  EXPECT_FALSE(sound);
  EXPECT_EQ(value("checked(4, 5)", "i64", &sound).whole, 4);
  EXPECT_TRUE(sound);
  const Program program = parse("loop {\n in x: f32[4]\n out y: f32[4]\n y[i] = x[i + 1]\n}");
  Memory memory(program, {}, 1);
  EXPECT_THROW(interpret(program, {}, memory.pointers()), base::Fault);
}

TEST(Interpret, AnExternEquationCallsBack) {
  const Program program = parse("loop {\n in x: f32[4]\n out y: f32[4]\n extern \"double\" (x) -> (y) \"\"\n}");
  Memory memory(program, {}, 1);
  EXPECT_THROW(interpret(program, {}, memory.pointers()), base::Fault);
  Interpretation how;
  how.call_extern = [](const Equation& e, const std::vector<void*>& buffers) {
    for (int k = 0; k < 4; ++k)
      static_cast<float*>(buffers[e.writes[0].index()])[k] = 2 * static_cast<float*>(buffers[e.reads[0].index()])[k];
  };
  EXPECT_TRUE(interpret(program, {}, memory.pointers(), how));
  EXPECT_EQ(memory.number(BufferId(1), 2).real, 2 * memory.number(BufferId(0), 2).real);
}

TEST(Interpret, SortIsStableAndPutsNanLast) {
  const Program program = parse(
      "loop {\n in x: f32[5]\n out y: f32[5]\n out at: i64[5]\n sort y[i], at over i: where(i == 1, nan, f32(i % "
      "2))\n}");
  Memory memory(program, {}, 1);
  EXPECT_TRUE(interpret(program, {}, memory.pointers()));
  const std::vector<int64_t> expected = {0, 2, 4, 3, 1};
  for (size_t k = 0; k < 5; ++k) EXPECT_EQ(memory.number(BufferId(2), k).whole, expected[k]);
}

}  // namespace
}  // namespace magneto::loop
