#include "codegen/cpp/print.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/text.h"
#include "loop/verify.h"
#include "programs.h"
#include "toolchain/compiler.h"

namespace magneto::codegen {
namespace {

void agree(const std::vector<Case>& cases, const Machine& machine, const std::string& compiler) {
  const std::string text = cpp::print(units_of(cases), machine);
  std::vector<std::string> flags = compiler_flags(machine);
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

TEST(Cpp, HandwrittenKernelsAgreeWithTheInterpreter) { agree(handwritten(), host_machine(), "g++"); }

TEST(Cpp, RandomProgramsAreValidAndReadBack) {
  for (const Case& c : random_cases(0, 400)) {
    const auto broken = loop::verify(*c.program);
    ASSERT_TRUE(broken.empty()) << broken[0] << "\n" << loop::print(*c.program);
    const std::string text = loop::print(*c.program);
    ASSERT_EQ(loop::print(loop::parse(text)), text);
  }
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
