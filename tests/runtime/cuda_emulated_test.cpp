// Plans for a GPU on any machine: the kernels run in the emulator of tests/codegen.
#include <gtest/gtest.h>

#include "../codegen/emulate.h"
#include "cases.h"
#include "runtime/run.h"

namespace magneto::runtime {
namespace {

class EmulatedLauncher final : public Launcher {
 public:
  EmulatedLauncher(const plan::Plan& plan, const std::function<codegen::Emulated::Kernel*(const std::string&)>& find)
      : plan_(plan) {
    for (const plan::Step& s : plan.steps)
      kernels_.push_back(s.kind == plan::Step::Kind::kRun ? find(s.name) : nullptr);
  }
  int scratch_copies(const Environment&) const override { return 0; }
  void launch(const Launch& l) const override {
    const plan::Step& s = plan_.steps[l.step];
    std::vector<void*> arguments;
    for (const plan::BufferId id : s.buffers) arguments.push_back(const_cast<void**>(&l.place[id.index()]));
    for (const uint32_t symbol : s.symbols) arguments.push_back(const_cast<int64_t*>(&l.symbols[symbol]));
    if (!kernels_[l.step](arguments.data(), l.points, static_cast<unsigned>(s.threads))) *l.fault = 1;
  }

 private:
  const plan::Plan& plan_;
  std::vector<codegen::Emulated::Kernel*> kernels_;
};

void agree(const std::vector<Case>& list, const std::vector<std::vector<int64_t>>& sizes) {
  const codegen::Emulated code(units_of(list));
  for (const Case& c : list) {
    const Runner runner(c.made.plan, [&](const plan::Plan& plan) {
      return std::make_unique<EmulatedLauncher>(plan,
                                                [&](const std::string& name) { return code.get(symbol_of(c, name)); });
    });
    for (const auto& symbols : sizes) {
      Trial trial(c, symbols);
      Environment with;
      with.call = call_extern;
      ASSERT_EQ(runner.run(trial.memory(c), symbols, with), trial.sound ? Outcome::kDone : Outcome::kFault) << c.name;
      ASSERT_EQ(trial.difference(), "") << texts_of(c, symbols) << codegen::cuda::print(c.made.units);
    }
  }
}

TEST(CudaEmulated, PlansAgree) { agree(cases(schedule::gpu_shape(), 25), kSymbols); }

TEST(CudaEmulated, OtherShapesGiveTheSame) {
  schedule::Shape shape = schedule::gpu_shape();
  shape.unroll = 2;
  shape.block = 64;
  shape.columns = 16;
  shape.few_points = 4;
  shape.threads = 64;
  shape.flat_threads = 32;
  agree(cases(shape, 4), kSymbols);
}

TEST(CudaEmulated, FixedSizesOfManyLengths) { agree(rows_of({1, 3, 32, 50, 768, 1023, 5001}), {{0, 0}}); }

}  // namespace
}  // namespace magneto::runtime
