// codegen/machine.h: the CPU that code is made for. Features are asked of the CPU itself, never guessed from its name:
// a virtual machine may hide some of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace magneto::codegen {

struct Machine {
  enum class Isa : uint8_t { kGeneric, kNeon, kAvx2, kAvx512 };
  Isa isa = Isa::kGeneric;
  bool bf16 = false;  ///< conversions of bf16 in one instruction

  int vector_bytes() const { return isa == Isa::kAvx512 ? 64 : isa == Isa::kAvx2 ? 32 : 16; }
  bool has_fma() const { return isa != Isa::kGeneric; }
};

Machine host_machine();
std::vector<std::string> compiler_flags(const Machine& machine);  ///< of g++ and clang
std::string llvm_features(const Machine& machine);                ///< "+avx2,+fma,..."

}  // namespace magneto::codegen
