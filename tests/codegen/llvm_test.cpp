#include "codegen/llvm/print.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "programs.h"
#include "site_packages.h"
#include "toolchain/llvm.h"

namespace magneto::codegen {
namespace {

const toolchain::Llvm* find_llvm() {  // once for all tests: LLVM is large
  static const std::string path = toolchain::find_llvmlite(site_packages());
  static const auto* llvm = path.empty() ? nullptr : new toolchain::Llvm(path);
  return llvm;
}

void agree(const std::vector<Case>& cases, const Machine& machine) {
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  const std::vector<Unit> units = units_of(cases);
  std::vector<std::string> names;
  for (const Unit& unit : units) names.push_back(unit.name);
  const auto code = llvm->link(llvm->compile(llvm::print(units, machine), llvm_features(machine)), names);
  for (const Case& c : cases)
    for (const std::vector<int64_t>& symbols : c.symbols) {
      const std::string found = compare(*c.program, symbols, 3, [&](const loop::Kernel& kernel) {
        return reinterpret_cast<CpuKernel*>(code->get(unit_name(c, kernel)));
      });
      EXPECT_EQ(found, "") << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
                           << loop::print(*c.program);
      if (!found.empty()) return;
    }
}

TEST(Llvm, HandwrittenKernelsAgreeWithTheInterpreter) { agree(handwritten(), host_machine()); }

TEST(Llvm, RandomKernelsAgreeWithTheInterpreter) {
  for (unsigned batch = 0; batch < 8; ++batch) agree(random_cases(batch * 40, 40), host_machine());
}

TEST(Llvm, OtherMachinesAgree) {  // narrower than the host, where it is an x86
  if (host_machine().isa != Machine::Isa::kAvx512) GTEST_SKIP();
  agree(random_cases(1000, 40), {Machine::Isa::kAvx2, false});
}

TEST(Llvm, WrongTextIsAFaultWithTheReason) {
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  EXPECT_THROW(llvm->compile("define void @f() { ret i32 0 }", ""), base::Fault);
}

}  // namespace
}  // namespace magneto::codegen
