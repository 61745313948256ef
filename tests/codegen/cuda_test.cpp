// CUDA text: NVRTC must take it everywhere; where there is a GPU, its kernels must agree with the interpreter.
#include "codegen/cuda/print.h"

#include <gtest/gtest.h>

#include <future>

#include "base/check.h"
#include "device.h"
#include "programs.h"
#include "site_packages.h"
#include "toolchain/nvrtc.h"

namespace magneto::codegen {
namespace {

const toolchain::Nvrtc* find_nvrtc() {
  static const std::string path = toolchain::find_nvrtc(site_packages());
  static const auto* nvrtc = path.empty() ? nullptr : new toolchain::Nvrtc(path);
  return nvrtc;
}

std::string compile(const std::vector<Case>& cases) {
  const Device* device = Device::open();
  return find_nvrtc()->compile(cuda::print(units_of(cases)), device ? device->cuda().architecture() : "sm_90");
}

/// Where there is a GPU, runs each case; `shift` puts memory so many times 16 bytes behind an aligned address.
void agree(const std::vector<Case>& cases, const std::string& cubin, size_t shift, int& ran) {
  const Device* device = Device::open();
  if (!device) return;  // compiled, and that is all that can be asked here
  const auto module = device->cuda().load(cubin);
  for (const Case& c : cases)
    for (const std::vector<int64_t>& symbols : c.symbols) {
      loop::Memory expected(*c.program, symbols, 3), given(*c.program, symbols, 3);
      loop::Interpretation how;
      how.round_each = true;
      // out of bounds, a GPU stops for good
      if (!loop::interpret(*c.program, symbols, expected.pointers(), how)) continue;
      std::string found;
      try {
        OnDevice memory(*device, given, shift);
        run(*device, *c.program, symbols, memory.place(),
            [&](const loop::Kernel& kernel) { return module->get(unit_name(c, kernel)); });
        memory.fetch();
        found = loop::difference(expected, given, 2e-4);
      } catch (const base::Fault& fault) {
        found = fault.what();
      }
      ASSERT_EQ(found, "") << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
                           << loop::print(*c.program) << cuda::print(codegen::units_of(*c.program));
      ++ran;
    }
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  }
  void TearDown() override {
    if (!HasFailure() && !IsSkipped() && !Device::open()) GTEST_SKIP() << "compiled only: " << runtime::why_no_cuda();
    if (ran_ > 0) std::printf("             %d runs agree\n", ran_);
  }
  int ran_ = 0;
};

TEST_F(Cuda, HandwrittenKernelsAgree) {
  const std::string cubin = compile(handwritten());
  agree(handwritten(), cubin, 0, ran_);
  agree(handwritten(), cubin, 1, ran_);
}

TEST_F(Cuda, RandomKernelsAgree) {
  const unsigned batches = Device::open() ? 40 : 1, each = Device::open() ? 10 : 20;
  std::vector<std::vector<Case>> cases;
  std::vector<std::future<std::string>> cubins;
  for (unsigned batch = 0; batch < batches; ++batch) cases.push_back(random_cases(batch * each, each));
  for (const auto& some : cases) cubins.push_back(std::async(std::launch::async, [&some] { return compile(some); }));
  for (unsigned batch = 0; batch < batches; ++batch) {
    const std::string cubin = cubins[batch].get();
    if (!HasFailure()) agree(cases[batch], cubin, batch % 3 == 2, ran_);
  }
}

/// Runs in a process of its own: the context is lost with the assert.
void gather_out_of_bounds() {
  const auto program = std::make_shared<loop::Program>(loop::parse(R"(loop {
  in ix: i64[s1]
  in t: f32[4]
  out y: f32[s1]
  kernel gather() threads 64 {
    phase j < s1 {
      store y[j] = t[checked(ix[j], 4)]
    }
  }
})"));
  const std::vector<Case> cases = {{"gather", program, {{1, 100}}}};
  const std::string cubin = compile(cases);
  const Device* device = Device::open();
  const auto module = device->cuda().load(cubin);
  loop::Memory memory(*program, {1, 100}, 3);  // integers from 0 to 7
  try {
    OnDevice given(*device, memory);
    run(*device, *program, {1, 100}, given.place(),
        [&](const loop::Kernel& kernel) { return module->get(unit_name(cases[0], kernel)); });
    given.fetch();
  } catch (const base::Fault& fault) {
    std::fprintf(stderr, "found: %s\n", fault.what());
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST_F(Cuda, AnIndexOutOfBoundsIsADeviceSideAssert) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has not touched the driver
  if (!Device::open()) return;
  EXPECT_EXIT(gather_out_of_bounds(), testing::ExitedWithCode(3), "assert");
}

}  // namespace
}  // namespace magneto::codegen
