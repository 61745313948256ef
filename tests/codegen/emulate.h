// tests/codegen/emulate.h: runs CUDA text without a GPU, one block after the other, each thread of a block a fiber: an
// index that is wrong, a barrier that not all reach or a group that is not aligned shows on any machine. Speed and
// memory order do not.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "codegen/abi.h"
#include "codegen/cuda/print.h"
#include "toolchain/compiler.h"

namespace magneto::codegen {

/// What stands for the words of CUDA, and the fibers.
inline constexpr const char* kCudaWords = R"(
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>
namespace emulated {
struct Dim { unsigned x; };
enum State { kRuns, kAtBlock, kAtWarp, kDone };
struct Fiber { ucontext_t context; std::vector<char> stack; Dim thread; State state; };
static std::vector<Fiber> fibers;
static Fiber* now;
static ucontext_t scheduler;
static Dim block;
static std::function<void()> entry;
static bool fault;
alignas(64) static char scratch[1 << 18];
static char slots[1024][8];
static void yield(State state) { now->state = state; swapcontext(&now->context, &scheduler); }
static void start() { entry(); now->state = kDone; swapcontext(&now->context, &scheduler); }
static void run_block(unsigned threads) {
  if (fibers.size() < threads) fibers.resize(threads);
  memset(scratch, 0xff, sizeof scratch);
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = fibers[t];
    f.stack.resize(1 << 16);
    f.thread.x = t;
    f.state = kRuns;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = nullptr;
    makecontext(&f.context, start, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (unsigned t = 0; t < threads; ++t)
      if (fibers[t].state == kRuns) { now = &fibers[t]; swapcontext(&scheduler, &now->context); }
    const auto release = [&](unsigned first, unsigned last, State at) {
      unsigned waits = 0, done = 0;
      for (unsigned t = first; t < last; ++t) { waits += fibers[t].state == at; done += fibers[t].state == kDone; }
      if (waits == 0) return;
      more = true;
      if (waits + done == last - first) {
        for (unsigned t = first; t < last; ++t) if (fibers[t].state == at) fibers[t].state = kRuns;
        return;
      }
      for (unsigned t = first; t < last; ++t) if (fibers[t].state == kRuns) return;
      if (at == kAtWarp) { fprintf(stderr, "a warp parted at a barrier\n"); abort(); }
    };
    for (unsigned w = 0; w < threads; w += 32) release(w, std::min(w + 32, threads), kAtWarp);
    release(0, threads, kAtBlock);
    bool runs = false;
    for (unsigned t = 0; t < threads; ++t) runs |= fibers[t].state == kRuns;
    if (more && !runs) { fprintf(stderr, "threads wait at different barriers\n"); abort(); }
  }
}
}  // namespace emulated
#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __restrict__
#define __align__(n) alignas(n)
#define __shared__ static
#define threadIdx emulated::now->thread
#define blockIdx emulated::block
static void __syncthreads() { emulated::yield(emulated::kAtBlock); }
static void __syncwarp() { emulated::yield(emulated::kAtWarp); }
template <class T> static T __shfl_xor_sync(unsigned, T a, int k) {
  const unsigned own = threadIdx.x;
  memcpy(emulated::slots[own], &a, sizeof a);
  __syncwarp();
  T b;
  memcpy(&b, emulated::slots[own ^ k], sizeof b);
  __syncwarp();
  return b;
}
template <class T> static T atomicAdd(T* p, T a) { T old = *p; *p = old + a; return old; }
template <class T> static T atomicCAS(T* p, T seen, T next) { T old = *p; if (old == seen) *p = next; return old; }
static float __int_as_float(int a) { float b; memcpy(&b, &a, 4); return b; }
static double __longlong_as_double(long a) { double b; memcpy(&b, &a, 8); return b; }
static float emulated_f32(unsigned short h) {
  const int sign = h >> 15, exponent = h >> 10 & 31, mantissa = h & 1023;
  const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                     : exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24);
  return sign ? -size : size;
}
static unsigned short emulated_f16(float a) {
  unsigned bits;
  memcpy(&bits, &a, 4);
  const unsigned short sign = bits >> 16 & 0x8000;
  if (a != a) return sign | 0x7e00;
  const float size = fabsf(a);
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent;
  frexpf(size, &exponent);
  const int shift = size < 6.1035156e-05f ? 24 : 11 - exponent;
  const int whole = (int)nearbyintf(ldexpf(size, shift));
  return sign + (shift == 24 ? whole : whole + ((14 + exponent) << 10) - 1024);
}
static unsigned short emulated_bf16(float a) {
  unsigned bits;
  memcpy(&bits, &a, 4);
  if (a != a) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
)";

class Emulated {
 public:
  /// Compiles the kernels of some units with the compiler of the system.
  explicit Emulated(const std::vector<Unit>& units) {
    std::string text = cuda::print(units);
    const auto replace = [&](const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    };
    replace("extern __shared__ __align__(64) char scratch[];", "char* scratch = emulated::scratch;");
    replace("asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(a));", "y = emulated_f32(a);");
    replace("asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(a));", "y = emulated_bf16(a);");
    replace("asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(a));", "y = emulated_f16(a);");
    replace("extern \"C\" __global__", "__global__");
    replace(
        "extern \"C\" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);",
        "static void __assertfail(const char*, const char*, unsigned, const char*, unsigned long) { "
        "emulated::fault = true; }");
    for (const Unit& unit : units) {
      std::string arguments;
      size_t k = 0;
      const auto add = [&](const std::string& type) {
        arguments += base::concat(k ? ", " : "", "*(", type, "*)arguments[", k, "]");
        ++k;
      };
      for (const loop::BufferId id : arguments_of(*unit.program, *unit.kernel)) {
        const types::Dtype dtype = unit.program->buffer(id).type.dtype;
        add(base::concat(types::name(dtype == types::Dtype::kBool ? types::Dtype::kU8 : dtype), "*"));
      }
      for (size_t s = symbols_of(*unit.program, *unit.kernel).size(); s > 0; --s) add("i64");
      text += base::concat("extern \"C\" bool emulate_", unit.name,
                           "(void** arguments, long blocks, unsigned threads) {\n  emulated::fault = false;\n"
                           "  emulated::entry = [&] { ",
                           unit.name, "(", arguments,
                           "); };\n  for (long b = 0; b < blocks; ++b) {\n    emulated::block.x = (unsigned)b;\n"
                           "    emulated::run_block(threads);\n  }\n  return !emulated::fault;\n}\n");
    }
    library_ = toolchain::compile_cpp(kCudaWords + text,
                                      {"-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-std=c++20"});
  }

  using Kernel = bool(void** arguments, int64_t blocks, unsigned threads);
  Kernel* get(const std::string& name) const {
    return reinterpret_cast<Kernel*>(library_.get(("emulate_" + name).c_str()));
  }

 private:
  toolchain::Library library_;
};

}  // namespace magneto::codegen
