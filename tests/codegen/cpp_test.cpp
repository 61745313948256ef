#include "codegen/cpp/print.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/text.h"
#include "loop/bounds.h"
#include "loop/verify.h"
#include "programs.h"
#include "toolchain/compiler.h"

namespace magneto::codegen {
namespace {

void agree(const std::vector<Case>& cases, const Machine& machine, const std::string& compiler) {
  const std::string text = cpp::print(units_of(cases), machine);
  std::vector<std::string> flags = with_sanitizer(compiler_flags(machine));
  flags.push_back("-O1");  // half the time of -O2, and the same operations
  const toolchain::Library library = toolchain::compile_cpp(text, flags, compiler);
  for (const Case& c : cases)
    for (const std::vector<int64_t>& symbols : c.symbols) {
      const std::string found = compare(*c.program, symbols, 3, [&](const loop::Kernel& kernel) {
        return reinterpret_cast<CpuKernel*>(library.get(unit_name(c, kernel).c_str()));
      });
      EXPECT_EQ(found, "") << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
                           << loop::print(*c.program) << cpp::print(codegen::units_of(*c.program), machine);
      if (!found.empty()) return;
    }
}

TEST(Cpp, HandwrittenKernelsAgreeWithTheInterpreter) {
  for (const Case& c : handwritten()) {
    const auto broken = loop::verify(*c.program);
    EXPECT_TRUE(broken.empty()) << c.name << ": " << broken[0];
  }
  agree(handwritten(), host_machine(), "g++");
}

TEST(Cpp, AnotherCompilerAgrees) {
  if (std::system("clang++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "clang++ is not installed";
  agree(handwritten(), host_machine(), "clang++");
}

TEST(Cpp, RandomProgramsAreValidAndReadBack) {
  std::vector<types::Condition> some;  // sizes are never zero
  for (const uint32_t symbol : {0u, 1u}) some.push_back({1, types::Relation::kLe, types::Expr::symbol(symbol)});
  for (const Case& c : random_cases(0, 400)) {
    const auto broken = loop::verify(*c.program);
    ASSERT_TRUE(broken.empty()) << broken[0] << "\n" << loop::print(*c.program);
    const std::string text = loop::print(*c.program);
    ASSERT_EQ(loop::print(loop::parse(text)), text);
    const auto outside = loop::unproved_places(*c.program, some);
    ASSERT_TRUE(outside.empty()) << outside[0].what << "\n" << text;
  }
}

#ifdef __SANITIZE_ADDRESS__
TEST(Cpp, ASanitizerSeesAKernelThatGoesBeyondItsBuffers) {
  const loop::Program program = loop::parse(
      "loop {\n in x: f32[s1]\n out y: f32[s1]\n kernel k() {\n phase j < s1 {\n store y[j] = x[j + 1]\n }\n }\n}\n");
  const toolchain::Library library = toolchain::compile_cpp(cpp::print(units_of(program), host_machine()),
                                                            with_sanitizer(compiler_flags(host_machine())));
  loop::Memory memory(program, {1, 50}, 3);
  EXPECT_DEATH(run(program, {1, 50}, memory,
                   [&](const loop::Kernel&) { return reinterpret_cast<CpuKernel*>(library.get("k")); }),
               "heap-buffer-overflow");
}
#endif

TEST(Cpp, TheComparisonSeesADifference) {
  const auto text = [](const std::string& number) {
    return "loop {\n in x: f32[s1]\n out y: f32[s1]\n kernel k() {\n phase j < s1, vector 8 {\n store y[j] = x[j] + " +
           number + "\n }\n }\n}\n";
  };
  const loop::Program right = loop::parse(text("1.0")), wrong = loop::parse(text("where(j == 30, 1.001, 1.0)"));
  const toolchain::Library library =
      toolchain::compile_cpp(cpp::print(units_of(wrong), host_machine()), compiler_flags(host_machine()));
  const auto find = [&](const loop::Kernel&) { return reinterpret_cast<CpuKernel*>(library.get("k")); };
  EXPECT_EQ(compare(wrong, {1, 50}, 3, find), "");
  EXPECT_NE(compare(right, {1, 50}, 3, find), "");
  EXPECT_EQ(compare(right, {1, 30}, 3, find), "");
}

class CppRandom : public testing::TestWithParam<unsigned> {};
TEST_P(CppRandom, KernelsAgreeWithTheInterpreter) { agree(random_cases(GetParam() * 40, 40), host_machine(), "g++"); }
INSTANTIATE_TEST_SUITE_P(Batch, CppRandom, testing::Range(0u, 8u));

TEST(Cpp, OtherMachinesAgree) {  // narrower than the host, where it is an x86
  if (host_machine().isa != Machine::Isa::kAvx512) GTEST_SKIP();
  agree(random_cases(1000, 6), {Machine::Isa::kAvx2, false}, "g++");
  agree(random_cases(1020, 6), {}, "g++");
}

}  // namespace
}  // namespace magneto::codegen
