// Equations to a plan that runs on a GPU: scheduled for it, printed, compiled by NVRTC, launched; judged by the
// interpreter on the equations. Without a GPU everything but the run is tested.
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "../codegen/device.h"
#include "../codegen/site_packages.h"
#include "base/check.h"
#include "cases.h"
#include "codegen/cuda/print.h"
#include "runtime/launch.h"
#include "runtime/sort.h"
#include "toolchain/nvrtc.h"

namespace magneto::runtime {
namespace {

using codegen::Device;

const toolchain::Nvrtc* find_nvrtc() {
  static const std::string path = toolchain::find_nvrtc(codegen::site_packages());
  static const auto* nvrtc = path.empty() ? nullptr : new toolchain::Nvrtc(path);
  return nvrtc;
}

class CudaEndToEnd : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  }
  void TearDown() override {
    if (!HasFailure() && !IsSkipped() && !Device::open()) GTEST_SKIP() << "compiled only: " << why_no_cuda();
    if (ran_ > 0) std::printf("             %d runs agree\n", ran_);
  }

  /// The cubin of some cases, compiled in a few parts at a time.
  std::vector<std::unique_ptr<CudaModule>> compile(const std::vector<Case>& list) {
    const Device* device = Device::open();
    const std::string architecture = device ? device->cuda().architecture() : "sm_90";
    const std::vector<codegen::Unit> units = units_of(list);
    const size_t parts = std::min<size_t>(device ? 16 : 2, units.size());
    std::vector<std::future<std::string>> made;
    for (size_t part = 0; part < parts; ++part) {
      std::vector<codegen::Unit> own;
      for (size_t k = part; k < units.size(); k += parts) {
        own.push_back(units[k]);
        part_of_[units[k].name] = part;
      }
      made.push_back(std::async(std::launch::async, [own, architecture] {
        return find_nvrtc()->compile(codegen::cuda::print(own), architecture);
      }));
    }
    std::vector<std::unique_ptr<CudaModule>> modules;
    for (auto& one : made) {
      const std::string cubin = one.get();
      if (device) modules.push_back(device->cuda().load(cubin));
    }
    return modules;
  }

  void agree(const std::vector<Case>& list, const std::vector<std::vector<int64_t>>& sizes, size_t shift = 0) {
    const auto modules = compile(list);
    if (!Device::open()) return;
    for (const Case& c : list) {
      const Runner runner(c.made.plan, [&](const plan::Plan& plan) {
        return cuda_launcher(plan, Device::open()->cuda(), [&](const std::string& name) {
          const std::string symbol = symbol_of(c, name);
          return modules[part_of_.at(symbol)]->get(symbol);
        });
      });
      for (const auto& symbols : sizes) {
        agree(c, runner, symbols, shift);
        if (HasFatalFailure()) return;
      }
    }
  }

  void agree(const Case& c, const Runner& runner, const std::vector<int64_t>& symbols, size_t shift) {
    const Device& device = *Device::open();
    Trial trial(c, symbols);
    if (!trial.sound) return;  // a GPU stops for good
    std::string found;
    try {
      codegen::OnDevice copied(device, trial.given, shift);
      const std::vector<void*> memory = Trial::memory_of(c, [&](loop::BufferId id) { return copied.at(id); });
      Environment with;
      with.allocate = [&](size_t bytes) { return device.allocate(bytes); };
      with.release = [&](void* at) { device.release(at); };
      with.call = [&](const plan::Step& step, void** buffers, const std::vector<int64_t>& values) {
        call(c.made.plan, step, buffers, values);
      };
      ASSERT_EQ(runner.run(memory, symbols, with), Outcome::kDone);
      copied.fetch();
      found = trial.difference();
    } catch (const base::Fault& fault) {
      found = fault.what();
    }
    ASSERT_EQ(found, "") << texts_of(c, symbols) << codegen::cuda::print(c.made.units);
    ++ran_;
  }

  /// On the host, with copies of the memory.
  static void call(const plan::Plan& plan, const plan::Step& step, void* const* buffers,
                   const std::vector<int64_t>& symbols) {
    const Device& device = *Device::open();
    device.wait();
    std::vector<plan::BufferId> ids = step.reads;
    ids.insert(ids.end(), step.writes.begin(), step.writes.end());
    std::vector<std::vector<char>> memory;
    std::vector<void*> pointers;
    for (size_t k = 0; k < ids.size(); ++k) {
      const auto bytes = static_cast<size_t>(std::max<int64_t>(plan[ids[k]].bytes.evaluate(symbols), 0));
      memory.emplace_back(bytes + 64);
      device.to_host(memory.back().data(), buffers[k], bytes);
      pointers.push_back(memory.back().data());
    }
    if (step.name == "magneto::sort") {
      sort(step, pointers.data(), symbols);
    } else {
      ASSERT_EQ(step.name, "double");
      const int64_t count = plan[ids[1]].bytes.evaluate(symbols) / 4;
      for (int64_t k = 0; k < count; ++k) static_cast<float*>(pointers[1])[k] = 2 * static_cast<float*>(pointers[0])[k];
    }
    for (size_t k = step.reads.size(); k < ids.size(); ++k)
      device.to_device(buffers[k], pointers[k], memory[k].size() - 64);
  }

  std::map<std::string, size_t> part_of_;
  int ran_ = 0;
};

TEST_F(CudaEndToEnd, PlansAgree) { agree(cases(schedule::gpu_shape(), Device::open() ? 150 : 6), kSymbols); }

TEST_F(CudaEndToEnd, MemoryMayLieAtAnyMultipleOf16Bytes) {
  agree(cases(schedule::gpu_shape(), 0), {{5, 37}, {64, 128}}, 1);
}

TEST_F(CudaEndToEnd, OtherShapesGiveTheSame) {
  schedule::Shape shape = schedule::gpu_shape();
  shape.unroll = 2;
  shape.block = 2048;
  shape.columns = 16;
  shape.few_points = 4;
  agree(cases(shape, Device::open() ? 20 : 0), kSymbols);
}

TEST_F(CudaEndToEnd, FixedSizesOfManyLengths) {
  const std::vector<Case> list = rows_of({1, 3, 32, 50, 128, 500, 768, 1023, 1024, 4096, 5001, 60000});
  agree(list, {{0, 0}});
  if (!HasFailure()) agree(list, {{0, 0}}, 1);
}

TEST_F(CudaEndToEnd, EqualLayersShareKernelsAndMemory) {
  std::vector<Case> list;
  list.push_back(prepare("layers", layers(12), schedule::gpu_shape()));
  EXPECT_EQ(list[0].made.units.size(), 3u);
  agree(list, {{9, 64}});  // each layer doubles what rounding did: among many rows one shows it
}

TEST(CudaDevice, IsThereOrSaysWhyNot) {
  EXPECT_EQ(cuda() == nullptr, !why_no_cuda().empty());
  if (!cuda()) GTEST_SKIP() << why_no_cuda();
  cuda()->enter();
  EXPECT_TRUE(cuda()->architecture().starts_with("sm_")) << cuda()->architecture();
  EXPECT_GT(cuda()->multiprocessors(), 0);
  EXPECT_GE(cuda()->shared_bytes(), 48 << 10);
  EXPECT_THROW(cuda()->load("no cubin, but long enough to be looked at as if it were one"), base::Fault);
}

}  // namespace
}  // namespace magneto::runtime
