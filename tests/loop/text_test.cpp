#include "loop/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "loop/interpret.h"
#include "loop/verify.h"
#include "memory.h"

namespace magneto::loop {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& line : list) text += line + "\n";
  return text;
}

TEST(Text, EveryLoopFileReadsBackUnchanged) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/texts")) {
    const std::string text = read_file(entry.path());
    EXPECT_EQ(joined(verify(parse(text))), "") << entry.path();
    const std::string printed = print(parse(text));
    EXPECT_EQ(print(parse(printed)), printed) << entry.path();
    EXPECT_EQ(printed, text) << entry.path();
    ++seen;
  }
  EXPECT_GE(seen, 2);
}

TEST(Text, ProgramsThatSayTheSameGiveTheSame) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/same")) {
    std::string text = read_file(entry.path());
    std::vector<Program> programs;
    for (size_t at; (at = text.find("\n==\n")) != std::string::npos; text = text.substr(at + 4))
      programs.push_back(parse(text.substr(0, at)));
    programs.push_back(parse(text));
    ASSERT_GE(programs.size(), 2u) << entry.path();
    for (const std::vector<int64_t>& symbols : {std::vector<int64_t>{5, 37}, {1, 16}, {13, 1}, {8, 64}}) {
      Memory first(programs[0], symbols, 1);
      EXPECT_TRUE(interpret(programs[0], symbols, first.pointers()));
      for (Program& program : programs) {
        EXPECT_EQ(joined(verify(program)), "") << entry.path();
        EXPECT_EQ(print(parse(print(program))), print(program));
        Memory memory(program, symbols, 1);
        // the same inputs, whatever else the program has
        for (size_t b = 0; b < program.buffers(); ++b)
          if (program.buffer(BufferId(b)).role == Role::kIn)
            for (size_t k = 0; k < memory.count(BufferId(b)); ++k)
              memory.set(BufferId(b), k, first.number(find_buffer(programs[0], program.buffer(BufferId(b)).name), k));
        EXPECT_TRUE(interpret(program, symbols, memory.pointers()));
        EXPECT_EQ(difference(first, memory, 1e-6), "") << entry.path();
      }
    }
    ++seen;
  }
  EXPECT_GE(seen, 4);
}

std::string reprint(const std::string& term) {
  const std::string head = "loop {\n  in x: f32[8]\n  in n: i32[8]\n  in b: bool[8]\n  out y: f32[8]\n  y[i] = ";
  const std::string text = print(parse(head + term + "\n}\n"));
  return text.substr(head.size(), text.size() - head.size() - 3);
}

TEST(Text, ParenthesesStandOnlyWhereTheyAreNeeded) {
  EXPECT_EQ(reprint("((x[i] + (x[i])) * 2.0)"), "(x[i] + x[i]) * 2.0");
  EXPECT_EQ(reprint("x[i] - (x[i] - 1.0) - -1.0"), "x[i] - (x[i] - 1.0) - -1.0");
  EXPECT_EQ(reprint("x[i] / (x[i] * 2.0)"), "x[i] / (x[i] * 2.0)");
  EXPECT_EQ(reprint("-(1.0)"), "-(1.0)");
  EXPECT_EQ(reprint("-(x[i] * 2.0)"), "-(x[i] * 2.0)");
  EXPECT_EQ(reprint("-x[i] * -2.5"), "-x[i] * -2.5");
  EXPECT_EQ(reprint("where((n[i] < 3:i32) == b[i], x[i], 0.0)"), "where((n[i] < 3:i32) == b[i], x[i], 0.0)");
  EXPECT_EQ(reprint("f32(n[i] << 2:i32 & (7:i32 | n[i]))"), "f32(n[i] << 2:i32 & (7:i32 | n[i]))");
  EXPECT_EQ(reprint("max(j < 8, max(x[j], 0.1))"), "max(j < 8, max(x[j], 0.1))");
}

TEST(Text, SizesAreFoldedIntoOneExpression) {
  EXPECT_EQ(reprint("x[s0 * 2 + 1 + i]"), "x[2*s0 + 1 + i]");
  EXPECT_EQ(reprint("x[i + (s1 + s0)]"), "x[i + (s0 + s1)]");
  EXPECT_EQ(reprint("x[i * (2*s0)]"), "x[i * (2*s0)]");
  EXPECT_EQ(reprint("x[min(s0, 3) - s0 // 2]"), "x[-(s0 // 2) + min(s0, 3)]");
  EXPECT_EQ(reprint("x[-s0 + i]"), "x[-s0 + i]");
}

TEST(Text, NumbersKeepTypeAndValue) {
  EXPECT_EQ(reprint("0.1 + f32(0.1:f64) + f32(1e-320:f64)"), "0.1 + f32(0.1:f64) + f32(1e-320:f64)");
  EXPECT_EQ(reprint("f32(-9223372036854775808) + f32(255:u8) + nan + -inf + 3e+38 + -0.0"),
            "f32(-9223372036854775808) + f32(255:u8) + nan + -inf + 3e+38 + -0.0");
}

TEST(Text, AnErrorNamesTheLineAndWhatWasExpected) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse(text);
    } catch (const base::Fault& fault) {
      return fault.what();
    }
    return "";
  };
  EXPECT_EQ(error("loop {\n  in x f32[2]\n}"), "loop text, line 2: found 'f32[2]', expected ':'");
  EXPECT_EQ(error("loop {\n  y[i] = 1.0\n}"), "loop text, line 2: found '[i] = 1.0', expected y to be declared");
  for (const char* text :
       {"", "loop {", "x", "loop {\n in x: f32[2]\n in x: f32[2]\n}", "loop {\n out y: f32[2]\n y[i] = f(i)\n}",
        "loop {\n out y: f32[2]\n y[i] = 1.0 +\n}", "loop {\n kernel k( {\n}\n}", "loop { } x",
        "loop {\n kernel k() {\n phase j < 3, vector 0 { }\n}\n}",
        "loop {\n kernel k() {\n let a = 1\n let a = 2\n}\n}", "loop {\n out y: f32[2]\n y[i] = 1:f32\n}"})
    EXPECT_NE(error(text), "") << text;
}

}  // namespace
}  // namespace magneto::loop
