// CUDA text: NVRTC must take it everywhere; where there is a GPU, its kernels must agree with the interpreter.
#include "codegen/cuda/print.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "device.h"
#include "programs.h"
#include "site_packages.h"
#include "toolchain/nvrtc.h"

namespace magneto::codegen {
namespace {

std::string compile(const std::vector<Case>& cases) {
  static const std::string path = toolchain::find_nvrtc(site_packages());
  if (path.empty()) return "";
  static const toolchain::Nvrtc nvrtc(path);
  return nvrtc.compile(cuda::print(units_of(cases)), "sm_90");
}

void agree(const std::vector<Case>& cases) {
  const std::string cubin = compile(cases);
  if (cubin.empty()) GTEST_SKIP() << "NVRTC is not installed";
  static const std::unique_ptr<Device> device = Device::open();
  if (!device) return;  // compiled, and that is all that can be asked here
  device->load(cubin);
  for (const Case& c : cases)
    for (const std::vector<int64_t>& symbols : c.symbols) {
      loop::Memory expected(*c.program, symbols, 3), given(*c.program, symbols, 3);
      loop::Interpretation how;
      how.round_each = true;
      const bool sound = loop::interpret(*c.program, symbols, expected.pointers(), how);
      const bool fine =
          device->run(*c.program, symbols, given, [&](const loop::Kernel& kernel) { return unit_name(c, kernel); });
      const std::string found = fine == sound ? loop::difference(expected, given, 2e-4) : "one of them has a fault";
      EXPECT_EQ(found, "") << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
                           << loop::print(*c.program) << cuda::print(codegen::units_of(*c.program));
      if (!found.empty()) return;
    }
}

TEST(Cuda, HandwrittenKernelsAreTaken) { agree(handwritten()); }

TEST(Cuda, RandomKernelsAreTaken) {
  for (unsigned batch = 0; batch < (Device::open() ? 8 : 1); ++batch) {
    agree(random_cases(batch * 40, 40));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace magneto::codegen
