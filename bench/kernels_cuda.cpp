// How fast the kernels are that the scheduler makes for a GPU: GB/s, and the time against a copy on the device of the
// same number of bytes (read + written). No torch.
//
//     cmake --build build/tests --target bench_kernels_cuda && build/tests/tests/bench_kernels_cuda [name part]
//     [key=value ...]
//
// Keys are fields of schedule::Shape (vector, unroll, columns, block, few_points, part, threads, flat_threads), and
// print=1 for the text of each kernel, brief=1 for the ratios alone. Bytes are those that must be moved: each input
// read once, each output written once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "codegen/cuda/print.h"
#include "driver/assemble.h"
#include "driver/passes.h"
#include "loop/text.h"
#include "runtime/launch.h"
#include "toolchain/nvrtc.h"

namespace magneto {
namespace {

using base::concat;

struct Driver {
  const runtime::Cuda& cuda;
  int (*allocate)(uint64_t*, size_t);
  int (*free)(uint64_t);
  int (*fill)(uint64_t, unsigned, size_t);
  int (*copy)(uint64_t, uint64_t, size_t, void*);
  int (*make_event)(void**, unsigned);
  int (*record)(void*, void*);
  int (*wait)(void*);
  int (*elapsed)(float*, void*, void*);
  void* events[2];

  explicit Driver(const runtime::Cuda& c) : cuda(c) {
    c.enter();
    c.get(allocate, "cuMemAlloc_v2");
    c.get(free, "cuMemFree_v2");
    c.get(fill, "cuMemsetD32_v2");
    c.get(copy, "cuMemcpyDtoDAsync_v2");
    c.get(make_event, "cuEventCreate");
    c.get(record, "cuEventRecord");
    c.get(wait, "cuEventSynchronize");
    c.get(elapsed, "cuEventElapsedTime");
    for (void*& event : events) c.check(make_event(&event, 0), "cuEventCreate");
  }

  void* memory(size_t bytes) {
    uint64_t at = 0;
    cuda.check(allocate(&at, bytes + 256), "cuMemAlloc");
    cuda.check(fill(at, 0x3e99999a, (bytes + 3) / 4), "cuMemsetD32");  // 0.3f everywhere
    return reinterpret_cast<void*>(at);
  }

  /// Microseconds of one call, the least of several measurements.
  template <class Call>
  double time(const Call& call) {
    for (int k = 0; k < 3; ++k) call();
    float best = 1e30F;
    for (int turn = 0; turn < 7; ++turn) {
      constexpr int kCalls = 20;
      cuda.check(record(events[0], nullptr), "cuEventRecord");
      for (int k = 0; k < kCalls; ++k) call();
      cuda.check(record(events[1], nullptr), "cuEventRecord");
      cuda.check(wait(events[1]), "cuEventSynchronize");
      float ms = 0;
      cuda.check(elapsed(&ms, events[0], events[1]), "cuEventElapsedTime");
      best = std::min(best, ms / kCalls);
    }
    return best * 1e3;
  }
};

struct Bench {
  std::string name, text;
};

std::string chain(const char* dtype, int64_t n, bool dear) {
  const std::string x = std::strcmp(dtype, "f32") == 0 ? "x[i]" : "f32(x[i])";
  const std::string light = concat("abs(max(((", x, " * 2.0 + 1.0) * 0.5 - 0.25), 0.0) * 3.0)");
  const std::string heavy = concat("tanh(1.0 / (1.0 + exp(-(", x, " * 2.0 + 1.0))))");
  const std::string value = dear ? heavy : light;
  return concat("loop {\n  in x: ", dtype, "[", n, "]\n  out y: ", dtype, "[", n,
                "]\n  y[i] = ", x == "x[i]" ? value : concat(dtype, "(", value, ")"), "\n}\n");
}

std::string softmax(int64_t rows, int64_t n) {
  return concat("loop {\n  in x: f32[", rows, ", ", n, "]\n  temp m: f32[", rows, ", 1]\n  temp e: f32[", rows, ", ", n,
                "]\n  temp s: f32[", rows, ", 1]\n  out y: f32[", rows, ", ", n, "]\n  m[i, k] = max(j < ", n,
                ", x[i, j])\n  e[i, j] = exp(x[i, j] - m[i, 0])\n  s[i, k] = sum(j < ", n,
                ", e[i, j])\n  y[i, j] = e[i, j] / s[i, 0]\n}\n");
}

std::string softmax_backward(int64_t rows, int64_t n) {
  return concat("loop {\n  in g: f32[", rows, ", ", n, "]\n  in y: f32[", rows, ", ", n, "]\n  temp s: f32[", rows,
                ", 1]\n  out dx: f32[", rows, ", ", n, "]\n  s[i, k] = sum(j < ", n,
                ", g[i, j] * y[i, j])\n  dx[i, j] = (g[i, j] - s[i, 0]) * y[i, j]\n}\n");
}

std::string layer_norm(int64_t rows, int64_t n) {
  const std::string all = concat("f32[", rows, ", ", n, "]\n"), row = concat("f32[", rows, ", 1]\n");
  return concat("loop {\n  in x: ", all, "  in w: f32[", n, "]\n  in b: f32[", n, "]\n  temp d: ", all,
                "  temp v: ", row, "  out mean: ", row, "  out r: ", row, "  out y: ", all, "  mean[i, k] = sum(j < ",
                n, ", x[i, j]) / ", n, ".0\n  d[i, j] = x[i, j] - mean[i, 0]\n  v[i, k] = sum(j < ", n,
                ", d[i, j] * d[i, j]) / ", n,
                ".0\n  r[i, k] = rsqrt(v[i, 0] + 1e-05)\n  y[i, j] = d[i, j] * r[i, 0] * w[j] + b[j]\n}\n");
}

std::string layer_norm_backward(int64_t rows, int64_t n) {
  const std::string all = concat("f32[", rows, ", ", n, "]\n"), row = concat("f32[", rows, ", 1]\n"),
                    column = concat("f32[", n, "]\n");
  return concat("loop {\n  in g: ", all, "  in x: ", all, "  in w: ", column, "  in mean: ", row, "  in r: ", row,
                "  temp n: ", all, "  temp gw: ", all, "  temp a: ", row, "  temp b: ", row, "  out dx: ", all,
                "  out dw: ", column, "  out db: ", column,
                "  n[i, j] = (x[i, j] - mean[i, 0]) * r[i, 0]\n  gw[i, j] = g[i, j] * w[j]\n  a[i, k] = sum(j < ", n,
                ", gw[i, j]) / ", n, ".0\n  b[i, k] = sum(j < ", n, ", gw[i, j] * n[i, j]) / ", n,
                ".0\n  dx[i, j] = (gw[i, j] - a[i, 0] - n[i, j] * b[i, 0]) * r[i, 0]\n  dw[j] = sum(i < ", rows,
                ", g[i, j] * n[i, j])\n  db[j] = sum(i < ", rows, ", g[i, j])\n}\n");
}

std::string column_sum(int64_t rows, int64_t n) {
  return concat("loop {\n  in x: f32[", rows, ", ", n, "]\n  out s: f32[", n, "]\n  s[j] = sum(i < ", rows,
                ", x[i, j])\n}\n");
}

std::string transpose(int64_t rows, int64_t n) {
  return concat("loop {\n  in x: f32[", rows, ", ", n, "]\n  out y: f32[", n, ", ", rows,
                "]\n  y[i, j] = x[j, i] + 1.0\n}\n");
}

std::vector<Bench> benches() {
  std::vector<Bench> list = {
      {"chain of 7, f32[2^26]", chain("f32", 1 << 26, false)},
      {"chain of 7 with exp and tanh, f32[2^26]", chain("f32", 1 << 26, true)},
      {"chain of 7, bf16[2^26]", chain("bf16", 1 << 26, false)},
      {"chain of 7, f32[2^16]", chain("f32", 1 << 16, false)},
      {"sum of all, f32[2^26]",
       concat("loop {\n  in x: f32[", 1 << 26, "]\n  out s: f32[]\n  s[] = sum(i < ", 1 << 26, ", x[i])\n}\n")},
  };
  const std::pair<int64_t, int64_t> shapes[] = {{8192, 1024}, {32768, 768}, {128, 50257}, {262144, 128}};
  for (const auto& [rows, n] : shapes) {
    const std::string at = concat(" ", rows, "x", n);
    list.push_back({"softmax" + at, softmax(rows, n)});
    list.push_back({"softmax backward" + at, softmax_backward(rows, n)});
    list.push_back({"layer norm" + at, layer_norm(rows, n)});
    list.push_back({"layer norm backward" + at, layer_norm_backward(rows, n)});
    list.push_back({"column sum" + at, column_sum(rows, n)});
  }
  list.push_back({"transpose 8192x8192", transpose(8192, 8192)});
  return list;
}

std::vector<std::string> site_packages() {
  const char* given = std::getenv("MAGNETO_SITE_PACKAGES");
  return {given ? given : ".venv/lib/python3.11/site-packages"};
}

int run(int count, char** arguments) {
  schedule::Shape shape = schedule::gpu_shape();
  std::string wanted;
  bool prints = false, brief = false;
  for (int k = 1; k < count; ++k) {
    const std::string text = arguments[k];
    const size_t at = text.find('=');
    if (at == std::string::npos) {
      wanted = text;
      continue;
    }
    const std::string key = text.substr(0, at);
    const int64_t value = std::atoll(text.c_str() + at + 1);
    const std::pair<const char*, int*> small[] = {{"vector", &shape.vector},
                                                  {"unroll", &shape.unroll},
                                                  {"columns", &shape.columns},
                                                  {"threads", &shape.threads},
                                                  {"flat_threads", &shape.flat_threads}};
    const std::pair<const char*, int64_t*> large[] = {{"block", &shape.block},
                                                      {"few_points", &shape.few_points},
                                                      {"part", &shape.part},
                                                      {"row_bytes", &shape.row_bytes}};
    for (const auto& [name, to] : small)
      if (key == name) *to = static_cast<int>(value);
    for (const auto& [name, to] : large)
      if (key == name) *to = value;
    if (key == "print") prints = value != 0;
    if (key == "brief") brief = value != 0;
  }
  const toolchain::Nvrtc nvrtc(toolchain::find_nvrtc(site_packages()));
  const runtime::Cuda* cuda = runtime::cuda();
  if (!cuda) std::printf("%s; kernels are only compiled\n", runtime::why_no_cuda().c_str());
  std::unique_ptr<Driver> driver = cuda ? std::make_unique<Driver>(*cuda) : nullptr;
  if (!brief) std::printf("%-42s %8s %8s %8s %7s %8s  steps\n", "", "MB", "us", "GB/s", "x copy", "host us");
  for (const Bench& b : benches()) {
    if (b.name.find(wanted) == std::string::npos) continue;
    loop::Program program = loop::parse(b.text);
    driver::Passes passes;
    driver::schedule(program, passes, shape);
    const driver::Assembled made = driver::assemble(program, {.device = types::Device::Kind::kCuda});
    const std::string text = codegen::cuda::print(made.units);
    if (prints) std::printf("%s%s%s", loop::print(program).c_str(), plan::print(made.plan).c_str(), text.c_str());
    const std::string cubin = nvrtc.compile(text, cuda ? cuda->architecture() : "sm_90");
    std::string steps;
    double bytes = 0;
    for (const plan::Step& s : made.plan.steps)
      steps += concat(steps.empty() ? "" : " + ", to_string(s.points), "x", s.threads);
    for (const plan::Buffer& p : made.plan.buffers)
      if (p.place != plan::Place::kTemp) bytes += static_cast<double>(p.bytes.value_or(0));
    if (!driver) {
      std::printf("%-42s %8.1f %43s%s\n", b.name.c_str(), bytes / 1e6, "", steps.c_str());
      continue;
    }
    const auto module = cuda->load(cubin);
    const runtime::Runner runner(made.plan, [&](const plan::Plan& plan) {
      return runtime::cuda_launcher(plan, *cuda, [&](const std::string& name) { return module->get(name); });
    });
    std::vector<void*> memory, blocks;
    for (const plan::Buffer& p : made.plan.buffers) {
      memory.push_back(p.place == plan::Place::kTemp ? nullptr
                                                     : driver->memory(static_cast<size_t>(p.bytes.value_or(0))));
      if (memory.back()) blocks.push_back(memory.back());
    }
    blocks.push_back(driver->memory(static_cast<size_t>(made.plan.arena.value_or(0))));
    runtime::Environment with;
    with.allocate = [&](size_t) { return blocks.back(); };
    with.release = [](void*) {};
    const double us = driver->time([&] { runner.run(memory, {}, with); });
    const auto half = static_cast<size_t>(bytes / 2);
    auto* from = static_cast<char*>(driver->memory(half));
    auto* to = static_cast<char*>(driver->memory(half));
    const double copy = driver->time(
        [&] { driver->copy(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), half, nullptr); });
    if (brief) std::printf(" %.2f", us / copy);
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < 200; ++k) runner.run(memory, {}, with);  // fewer than the queue of launches holds
    const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - start;
    if (!brief)
      std::printf("%-42s %8.1f %8.1f %8.0f %7.2f %8.2f  %s\n", b.name.c_str(), bytes / 1e6, us, bytes / us / 1e3,
                  us / copy, host.count() / 200, steps.c_str());
    std::fflush(stdout);
    blocks.push_back(from);
    blocks.push_back(to);
    driver->cuda.check(driver->wait((driver->record(driver->events[1], nullptr), driver->events[1])), "wait");
    for (void* block : blocks) driver->free(reinterpret_cast<uint64_t>(block));
  }
  if (brief) std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace magneto

int main(int count, char** arguments) {
  try {
    return magneto::run(count, arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
