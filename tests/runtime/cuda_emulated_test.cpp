// Plans for a GPU on any machine: the kernels run in the emulator of tests/codegen.
#include <gtest/gtest.h>

#include "../codegen/emulate.h"
#include "cases.h"
#include "runtime/run.h"
#include "runtime/sort.h"

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
    for (const plan::BufferId id : s.reads) arguments.push_back(const_cast<void**>(&l.place[id.index()]));
    for (const uint32_t symbol : s.symbols) arguments.push_back(const_cast<int64_t*>(&l.symbols[symbol]));
    if (!kernels_[l.step](arguments.data(), l.points, static_cast<unsigned>(s.threads))) *l.fault = 1;
  }

 private:
  const plan::Plan& plan_;
  std::vector<codegen::Emulated::Kernel*> kernels_;
};

void call(const plan::Step& step, void* const* buffers, const std::vector<int64_t>& symbols) {
  if (step.name == "magneto::sort") return sort(step, buffers, symbols);
  ASSERT_EQ(step.name, "double");
  for (int64_t k = 0; k < symbols[0] * symbols[1]; ++k)
    static_cast<float*>(buffers[1])[k] = 2 * static_cast<float*>(buffers[0])[k];
}

void agree(const std::vector<Case>& list, const std::vector<std::vector<int64_t>>& sizes) {
  const codegen::Emulated code(units_of(list));
  for (const Case& c : list) {
    const Runner runner(c.made.plan, [&](const plan::Plan& plan) {
      return std::make_unique<EmulatedLauncher>(plan,
                                                [&](const std::string& name) { return code.get(symbol_of(c, name)); });
    });
    for (const auto& symbols : sizes) {
      loop::Memory expected(c.equations, symbols, 7), given(c.equations, symbols, 7);
      loop::Interpretation how;
      how.call_extern = [&](const loop::Equation& e, const std::vector<void*>& buffers) {
        schedule::double_all(c.equations, e, symbols, buffers);
      };
      const bool sound = loop::interpret(c.equations, symbols, expected.pointers(), how);
      const std::vector<void*> pointers = given.pointers();
      std::vector<void*> memory;
      for (const plan::Buffer& b : c.made.plan.buffers) {
        const loop::BufferId id = loop::find_buffer(c.equations, b.name);
        memory.push_back(id.valid() ? pointers[id.index()] : nullptr);
      }
      Environment with;
      with.call = call;
      ASSERT_EQ(runner.run(memory, symbols, with), sound ? Outcome::kDone : Outcome::kFault) << c.name;
      ASSERT_EQ(loop::difference(expected, given, 2e-4), "")
          << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
          << loop::print(c.equations) << loop::print(*c.scheduled) << plan::print(c.made.plan)
          << codegen::cuda::print(c.made.units);
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
