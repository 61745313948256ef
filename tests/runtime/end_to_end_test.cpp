// Equations to machine code: scheduled, printed, compiled, assembled into a plan, run by threads; judged by the
// interpreter on the equations.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "../codegen/agree.h"
#include "../codegen/site_packages.h"
#include "cases.h"
#include "codegen/cpp/print.h"
#include "codegen/llvm/print.h"
#include "runtime/run.h"
#include "toolchain/compiler.h"
#include "toolchain/llvm.h"

namespace magneto::runtime {
namespace {

/// What is alone, while it is there; its memory is gone behind that, as a sanitizer sees.
struct Alone {
  std::map<plan::BufferId, std::unique_ptr<char[]>> there;
  size_t most = 0;
};

void agree(const Case& c, const std::function<void*(const std::string&)>& find, const std::vector<int64_t>& symbols,
           Threads* threads, Alone* alone = nullptr) {
  const Runner runner(c.made.plan, [&](const plan::Plan& plan) {
    return cpu_launcher(plan,
                        [&](const std::string& name) { return reinterpret_cast<Kernel*>(find(symbol_of(c, name))); });
  });
  Trial trial(c, symbols);
  const std::vector<void*> memory = trial.memory(c);
  Environment with;
  with.threads = threads;
  with.call = call_extern;
  if (alone) {
    with.provide = [&](plan::BufferId id) -> void* {
      const plan::Buffer& b = c.made.plan[id];
      if (b.place == plan::Place::kOut) return memory[id.index()];
      auto& made = alone->there[id] = std::make_unique<char[]>(static_cast<size_t>(b.bytes.evaluate(symbols)));
      alone->most = std::max(alone->most, alone->there.size());
      return made.get();
    };
    with.drop = [&](plan::BufferId id) { alone->there.erase(id); };
  }
  ASSERT_EQ(runner.run(memory, symbols, with), trial.sound ? Outcome::kDone : Outcome::kFault);
  ASSERT_EQ(trial.difference(), "") << texts_of(c, symbols);
}

void agree(const std::vector<Case>& list, const std::function<void*(const std::string&)>& find) {
  Threads threads(3);
  for (const Case& c : list)
    for (const auto& symbols : kSymbols) {
      agree(c, find, symbols, &threads);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(EndToEnd, CompiledByTheSystemsCompiler) {
  const codegen::Machine machine = codegen::host_machine();
  const std::vector<Case> list = cases({.vector = machine.vector_bytes() / 4, .unroll = 2, .columns = 2}, 8);
  std::vector<std::string> flags = codegen::with_sanitizer(codegen::compiler_flags(machine));
  flags.push_back("-O1");
  const toolchain::Library library = toolchain::compile_cpp(codegen::cpp::print(units_of(list), machine), flags);
  agree(list, [&](const std::string& name) { return library.get(name.c_str()); });
}

const toolchain::Llvm* find_llvm() {
  static const std::string path = toolchain::find_llvmlite(codegen::site_packages());
  static const auto* llvm = path.empty() ? nullptr : new toolchain::Llvm(path);
  return llvm;
}

std::unique_ptr<toolchain::LoadedCode> compile(const toolchain::Llvm& llvm, const std::vector<Case>& list) {
  const codegen::Machine machine = codegen::host_machine();
  std::vector<std::string> names;
  for (const codegen::Unit& unit : units_of(list)) names.push_back(unit.name);
  return llvm.link(llvm.compile(codegen::llvm::print(units_of(list), machine), codegen::llvm_features(machine)), names);
}

TEST(EndToEnd, CompiledByLlvm) {
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  const std::vector<Case> list = cases({}, 30);
  const auto code = compile(*llvm, list);
  agree(list, [&](const std::string& name) { return code->get(name); });
}

TEST(EndToEnd, OnePlanIsRunByManyAtATime) {
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  const std::vector<Case> list = cases({}, 0);
  const auto code = compile(*llvm, list);
  Threads threads(2);
  std::vector<std::thread> callers;
  for (int k = 0; k < 4; ++k)
    callers.emplace_back([&] {
      for (int turn = 0; turn < 5; ++turn)
        for (const Case& c : list)
          agree(
              c, [&](const std::string& name) { return code->get(name); }, {33, 70}, &threads);
    });
  for (std::thread& caller : callers) caller.join();
}

TEST(EndToEnd, EqualLayersShareKernelsAndMemory) {
  const Case c = prepare("layers", layers(12), {});
  EXPECT_EQ(c.made.plan.steps.size(), 25u) << plan::print(c.made.plan);
  EXPECT_EQ(c.made.units.size(), 3u);
  const std::vector<int64_t> symbols = {100};
  const int64_t one = 100 * 64 * 4;
  EXPECT_LE(c.made.peak.evaluate(symbols), 4 * one + 1024);
  EXPECT_GE(c.made.apart.evaluate(symbols), 34 * one);
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  std::vector<Case> list;
  list.push_back(prepare("layers", layers(12), {}));
  const auto code = compile(*llvm, list);
  agree(
      list[0], [&](const std::string& name) { return code->get(name); }, {9, 64}, nullptr);
}

TEST(EndToEnd, LargeTemporariesAreThereOnlyWhileTheyAreNeeded) {
  const toolchain::Llvm* llvm = find_llvm();
  if (!llvm) GTEST_SKIP() << "llvmlite is not installed";
  std::vector<Case> list;
  list.push_back(prepare("layers", layers(12), {}, {.alone = 256}));
  EXPECT_EQ(list[0].made.plan.arena, types::Expr(0));
  const auto code = compile(*llvm, list);
  Alone alone;
  agree(
      list[0], [&](const std::string& name) { return code->get(name); }, {9, 64}, nullptr, &alone);
  EXPECT_TRUE(alone.there.empty());
  EXPECT_LE(alone.most, 4u);
}

}  // namespace
}  // namespace magneto::runtime
