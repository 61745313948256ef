// How fast the generated kernels are: bytes that must be read and written, in GB/s, and the ratio to a memcpy that
// moves as many, with one thread and with two.
//
//     cmake --build build/tests --target bench_kernels && VIRTUAL_ENV=... build/tests/tests/bench_kernels [word ...]
//
// With words, only the cases whose name has one of them; with --show, also their kernels, --code their text.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>

#include "autograd/functionalise.h"
#include "base/text.h"
#include "codegen/llvm/print.h"
#include "codegen/machine.h"
#include "driver/assemble.h"
#include "driver/passes.h"
#include "graphs.h"
#include "loop/text.h"
#include "lower/expand.h"
#include "lower/lower.h"
#include "runtime/run.h"
#include "toolchain/llvm.h"

namespace magneto::bench {
namespace {

struct Case {
  std::string name;
  std::function<void(Maker&)> make;
  int64_t indices = 0;  ///< integers of the inputs are below this
};

std::string by(const char* name, const types::Sizes& sizes, Dtype dtype) {
  std::string text = name;
  for (size_t d = 0; d < sizes.size(); ++d) text += base::concat(d ? "x" : " ", to_string(sizes[d]));
  return dtype == Dtype::kF32 ? text : base::concat(text, " ", types::name(dtype));
}

void add_row_cases(std::vector<Case>& all, const types::Sizes& sizes, Dtype dtype) {
  const Expr width = sizes.back();
  const types::Sizes rows(sizes.begin(), sizes.end() - 1);
  const auto add = [&](const char* name, std::function<void(Maker&)> make) {
    all.push_back({by(name, sizes, dtype), std::move(make)});
  };
  add("softmax", [=](Maker& m) { m.out(m.call("aten::_softmax", {m.in(sizes, dtype), Expr(-1), false})); });
  add("softmax backward", [=](Maker& m) {
    m.out(m.call("aten::_softmax_backward_data", {m.in(sizes, dtype), m.in(sizes, dtype), Expr(-1), dtype}));
  });
  add("log_softmax", [=](Maker& m) { m.out(m.call("aten::_log_softmax", {m.in(sizes, dtype), Expr(-1), false})); });
  add("layer_norm", [=](Maker& m) {
    for (const ValueId id : m.all("aten::native_layer_norm", {m.in(sizes, dtype), types::Sizes{width},
                                                              m.in({width}, dtype), m.in({width}, dtype), 1e-5}))
      m.out(id);
  });
  const auto backward = [=](Maker& m, bool dx, bool rest) {
    const Dtype wide = Dtype::kF32;
    types::Sizes kept = rows;
    kept.push_back(1);
    const auto made =
        m.all("aten::native_layer_norm_backward",
              {m.in(sizes, dtype), m.in(sizes, dtype), types::Sizes{width}, m.in(kept, wide), m.in(kept, wide),
               m.in({width}, dtype), m.in({width}, dtype), std::vector<bool>{dx, rest, rest}});
    for (const ValueId id : made)
      if (id.valid()) m.out(id);
  };
  add("layer_norm backward", [=](Maker& m) { backward(m, true, true); });
  add("layer_norm dx", [=](Maker& m) { backward(m, true, false); });
  add("layer_norm dgamma dbeta", [=](Maker& m) { backward(m, false, true); });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, std::function<void(Maker&)> make, int64_t indices = 0) {
    all.push_back({name, std::move(make), indices});
  };
  const types::Sizes large = {1 << 22};
  for (const Dtype d : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    add(by("chain of 7", large, d), [=](Maker& m) {
      const ValueId a = m.in(large, d), b = m.in(large, d);
      ValueId x = m.call("aten::mul.Tensor", {a, b});
      x = m.call("aten::add.Tensor", {x, a, Expr(1)});
      x = m.call("aten::relu", {x});
      x = m.call("aten::sub.Tensor", {x, b, Expr(1)});
      x = m.call("aten::mul.Tensor", {x, 0.5});
      x = m.call("aten::abs", {x});
      m.out(m.call("aten::add.Tensor", {x, a, Expr(1)}));
    });
    add(by("gelu erf", large, d), [=](Maker& m) {
      m.out(m.call("aten::gelu", {m.in(large, d), std::string("none")}));
    });
    add(by("gelu erf", {1 << 16}, d), [=](Maker& m) {
      m.out(m.call("aten::gelu", {m.in({1 << 16}, d), std::string("none")}));
    });
    add(by("gelu tanh", large, d), [=](Maker& m) {
      m.out(m.call("aten::gelu", {m.in(large, d), std::string("tanh")}));
    });
    add(by("gelu erf backward", large, d), [=](Maker& m) {
      m.out(m.call("aten::gelu_backward", {m.in(large, d), m.in(large, d), std::string("none")}));
    });
    add(by("gelu erf backward and bias", {4096, 3072}, d), [=](Maker& m) {
      const ValueId made =
          m.call("aten::gelu_backward", {m.in({4096, 3072}, d), m.in({4096, 3072}, d), std::string("none")});
      m.out(made);
      m.out(m.call("aten::sum.dim_IntList", {made, list({0}), false, {}}));
    });
    add(by("silu", large, d), [=](Maker& m) { m.out(m.call("aten::silu", {m.in(large, d)})); });
    add(by("exp", large, d), [=](Maker& m) { m.out(m.call("aten::exp", {m.in(large, d)})); });
    add(by("tanh", large, d), [=](Maker& m) { m.out(m.call("aten::tanh", {m.in(large, d)})); });
    for (const types::Sizes& sizes :
         {types::Sizes{8192, 1024}, {4096, 768}, {8, 512, 768}, {128, 50257}, {256, 1024}, {64, 64}})
      add_row_cases(all, sizes, d);
    for (const types::Sizes& sizes : {types::Sizes{8192, 1024}, {65536, 64}, {64, 65536}})
      add(by("column sum", sizes, d), [=](Maker& m) {
        m.out(m.call("aten::sum.dim_IntList", {m.in(sizes, d), list({0}), false, {}}));
      });
    add(by("row sum", {8192, 1024}, d), [=](Maker& m) {
      m.out(m.call("aten::sum.dim_IntList", {m.in({8192, 1024}, d), list({1}), false, {}}));
    });
    add(by("sum of all", large, d), [=](Maker& m) {
      m.out(m.call("aten::sum.dim_IntList", {m.in(large, d), list({0}), false, {}}));
    });
    for (const types::Sizes& sizes :
         d == Dtype::kF32 ? std::vector<types::Sizes>{{32, 256, 56, 56}, {32, 512, 7, 7}} : std::vector<types::Sizes>())
      add(by("batch norm", sizes, d), [=](Maker& m) {
        const Expr channels = sizes[1];
        const auto made = m.all("aten::native_batch_norm", {m.in(sizes, d), m.in({channels}), m.in({channels}),
                                                            m.in({channels}), m.in({channels}), true, 0.1, 1e-5});
        for (const ValueId id : made) m.out(id);
      });
    add(by("transposed copy", {4096, 1024}, d), [=](Maker& m) {
      m.out(m.call("aten::clone", {m.call("aten::t", {m.in({4096, 1024}, d)}), types::MemoryFormat::kContiguous}));
    });
    add(by("heads to rows", {8, 12, 512, 64}, d), [=](Maker& m) {
      m.out(m.call("aten::clone", {m.call("aten::transpose.int", {m.in({8, 12, 512, 64}, d), Expr(1), Expr(2)}),
                                   types::MemoryFormat::kContiguous}));
    });
    add(by("cat of 3", {4096, 512}, d), [=](Maker& m) {
      const std::vector<ValueId> parts = {m.in({4096, 512}, d), m.in({4096, 512}, d), m.in({4096, 512}, d)};
      m.out(m.call("aten::cat", {parts, Expr(1)}));
    });
    add(
        by("embedding", {8192, 768}, d),
        [=](Maker& m) {
          m.out(m.call("aten::embedding", {m.in({30522, 768}, d), m.in({8192}, Dtype::kI64), Expr(-1), false, false}));
        },
        30522);
    add(
        by("index", {8192, 768}, d),
        [=](Maker& m) {
          const std::vector<ValueId> indices = {m.in({8192}, Dtype::kI64)};
          m.out(m.call("aten::index.Tensor", {m.in({30522, 768}, d), indices}));
        },
        30522);
  }
  return all;
}

class Memory {
 public:
  explicit Memory(size_t bytes) : at_(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), bytes_(bytes) {
    std::memset(at_, 1, bytes);
  }
  ~Memory() { std::free(at_); }
  Memory(const Memory&) = delete;
  char* at() const { return static_cast<char*>(at_); }
  size_t bytes() const { return bytes_; }

 private:
  void* at_;
  size_t bytes_;
};

void fill(const types::TensorType& type, Memory& memory, int64_t indices) {
  uint32_t random = 7;
  const auto next = [&] {
    random = random * 1664525 + 1013904223;
    return random >> 8;
  };
  const size_t count = memory.bytes() / types::item_size(type.dtype);
  for (size_t k = 0; k < count; ++k) {
    const float value = static_cast<float>(next()) / (1 << 23) - 1;
    if (type.dtype == Dtype::kI64)
      reinterpret_cast<int64_t*>(memory.at())[k] = indices ? static_cast<int64_t>(next()) % indices : 0;
    else if (type.dtype == Dtype::kF32)
      reinterpret_cast<float*>(memory.at())[k] = value;
    else if (type.dtype == Dtype::kBF16)
      std::memcpy(memory.at() + 2 * k, reinterpret_cast<const char*>(&value) + 2, 2);
    else if (type.dtype == Dtype::kF16)
      reinterpret_cast<_Float16*>(memory.at())[k] = static_cast<_Float16>(value);
  }
}

/// Milliseconds: of this thread alone, so that other work on the machine does not count, or by the clock on the wall.
enum class Clock { kThread, kWall };
double now(Clock clock) {
  timespec time{};
  clock_gettime(clock == Clock::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// The first decile: what the machine gives when nobody disturbs it; `call` is repeated until it has taken a while.
double measure(Clock clock, const std::function<void()>& call) {
  std::vector<double> times;
  double sum = 0;
  call();
  while (times.size() < 5 || (sum < 150 && times.size() < 2000)) {
    const double start = now(clock);
    call();
    times.push_back(now(clock) - start);
    sum += times.back();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 10];
}

double copying(Clock clock, size_t bytes, runtime::Threads& threads) {
  const Memory from(bytes / 2 + 64), to(bytes / 2 + 64);
  const auto part = [&](int64_t lo, int64_t hi, int) {
    std::memcpy(to.at() + lo * 4096, from.at() + lo * 4096, static_cast<size_t>(hi - lo) * 4096);
  };
  const auto pages = static_cast<int64_t>(bytes / 2 / 4096);
  return measure(clock, [&] {
    threads.parallel_for(pages, 16, part);
    std::memcpy(to.at() + pages * 4096, from.at() + pages * 4096, bytes / 2 % 4096);
  });
}

struct Wanted {
  std::vector<std::string> words;
  bool kernels = false, code = false;
};

void run(const Case& one, const toolchain::Llvm& llvm, const Wanted& wanted, runtime::Threads& single,
         runtime::Threads& both) {
  Maker maker;
  one.make(maker);
  const codegen::Machine machine = codegen::host_machine();
  const autograd::Functional functional = autograd::functionalise(maker.graph);
  lower::Lowered lowered = lower::lower(lower::expand(functional.graph));
  loop::Program& program = lowered.program;
  driver::Passes passes;
  driver::schedule(program, passes, {});
  const driver::Assembled made = driver::assemble(program);
  const std::string text = codegen::llvm::print(made.units, machine);
  if (wanted.kernels) std::printf("%s\n%s", loop::print(program).c_str(), plan::print(made.plan).c_str());
  if (wanted.code) std::printf("%s", text.c_str());
  std::vector<std::string> names;
  for (const codegen::Unit& unit : made.units) names.push_back(unit.name);
  const auto code = llvm.link(llvm.compile(text, codegen::llvm_features(machine)), names);
  const runtime::Runner runner(made.plan, [&](const plan::Plan& plan) {
    return runtime::cpu_launcher(
        plan, [&](const std::string& name) { return reinterpret_cast<runtime::Kernel*>(code->get(name)); });
  });
  std::vector<std::unique_ptr<Memory>> owned;
  std::vector<void*> memory;
  size_t bytes = 0;
  std::vector<const loop::Buffer*> buffers;
  for (size_t b = 0; b < program.buffers(); ++b)
    if (!program.buffer(loop::BufferId(b)).of.valid()) buffers.push_back(&program.buffer(loop::BufferId(b)));
  for (const plan::Buffer& b : made.plan.buffers) {
    memory.push_back(nullptr);
    if (b.place == plan::Place::kTemp) continue;
    const auto of = std::find_if(buffers.begin(), buffers.end(), [&](const auto* p) { return p->name == b.name; });
    owned.push_back(std::make_unique<Memory>(static_cast<size_t>(b.bytes.evaluate({}))));
    if (b.place == plan::Place::kIn) fill((*of)->type, *owned.back(), one.indices);
    memory.back() = owned.back()->at();
    // of a table only the rows that are asked for are read
    bytes += one.indices && (*of)->type.sizes.front() == Expr(one.indices) ? 0 : owned.back()->bytes();
    if (one.indices && b.place == plan::Place::kOut) bytes += owned.back()->bytes();
  }
  runtime::Environment with;
  // temporaries are kept from run to run, as a caller with an allocator of its own has them
  std::vector<std::pair<size_t, std::unique_ptr<Memory>>> kept;
  with.allocate = [&](size_t wanted_bytes) -> void* {
    for (auto& [size, block] : kept)
      if (size == wanted_bytes) return block->at();
    kept.emplace_back(wanted_bytes, std::make_unique<Memory>(wanted_bytes));
    return kept.back().second->at();
  };
  with.release = [](void*) {};
  const auto time = [&](Clock clock, runtime::Threads& threads) {
    with.threads = &threads;
    return measure(clock, [&] { runner.run(memory, {0}, with); });
  };
  size_t kernels = made.plan.steps.size();
  const double alone = time(Clock::kThread, single), copy = copying(Clock::kThread, bytes, single);
  const double together = time(Clock::kWall, both), copy2 = copying(Clock::kWall, bytes, both);
  const double giga = static_cast<double>(bytes) / 1e6;
  std::printf("%-40s %2zu %9.3f ms %7.1f GB/s %5.2f | %9.3f ms %7.1f GB/s %5.2f\n", one.name.c_str(), kernels, alone,
              giga / alone, copy / alone, together, giga / together, copy2 / together);
  std::fflush(stdout);
}

int run(int count, char** arguments) {
  Wanted wanted;
  for (int k = 1; k < count; ++k) {
    const std::string word = arguments[k];
    if (word == "--show")
      wanted.kernels = true;
    else if (word == "--code")
      wanted.code = true;
    else
      wanted.words.push_back(word);
  }
  const std::string path = toolchain::find_llvmlite(site_packages());
  base::check(!path.empty(), "bench: llvmlite is not installed");
  const toolchain::Llvm llvm(path);
  runtime::Threads single(1), both(2);
  std::printf("%-40s %2s %12s %12s %5s | %12s %12s %5s\n", "", "k", "1 thread", "", "copy", "2 threads", "", "copy");
  for (const Case& one : cases()) {
    const bool asked =
        wanted.words.empty() || std::any_of(wanted.words.begin(), wanted.words.end(),
                                            [&](const auto& w) { return one.name.find(w) != std::string::npos; });
    if (asked) run(one, llvm, wanted, single, both);
  }
  return 0;
}

}  // namespace
}  // namespace magneto::bench

int main(int count, char** arguments) { return magneto::bench::run(count, arguments); }
