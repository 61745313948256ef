#include "codegen/machine.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace magneto::codegen {

Machine host_machine() {
  Machine machine;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  machine.isa = avx512 ? Machine::Isa::kAvx512 : avx2 ? Machine::Isa::kAvx2 : Machine::Isa::kGeneric;
  machine.bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  machine.isa = Machine::Isa::kNeon;
  machine.bf16 = getauxval(AT_HWCAP2) & kBf16;
#endif
  return machine;
}

std::vector<std::string> compiler_flags(const Machine& machine) {
  switch (machine.isa) {
    case Machine::Isa::kAvx512: {
      std::vector<std::string> flags = {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
                                        "-mavx2",    "-mfma",      "-mf16c",     "-mprefer-vector-width=512"};
      if (machine.bf16) flags.push_back("-mavx512bf16");
      return flags;
    }
    case Machine::Isa::kAvx2:
      return {"-mavx2", "-mfma", "-mf16c"};
    case Machine::Isa::kNeon:
      return {machine.bf16 ? "-march=armv8.2-a+fp16+bf16" : "-march=armv8.2-a+fp16"};
    case Machine::Isa::kGeneric:
      break;
  }
  return {};
}

std::string llvm_features(const Machine& machine) {
  const std::string bf16 = machine.bf16 ? (machine.isa == Machine::Isa::kNeon ? ",+bf16" : ",+avx512bf16") : "";
  switch (machine.isa) {
    case Machine::Isa::kAvx512:
      return "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,-prefer-256-bit" + bf16;
    case Machine::Isa::kAvx2:
      return "+avx2,+fma,+f16c";
    case Machine::Isa::kNeon:
      return "+neon,+fp-armv8,+fullfp16,-sve" + bf16;
    case Machine::Isa::kGeneric:
      break;
  }
  return "";
}

}  // namespace magneto::codegen
