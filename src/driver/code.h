// driver/code.h: machine code of kernels, by the first toolchain that can make it.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "codegen/machine.h"
#include "codegen/unit.h"

namespace magneto::driver {

/// Where toolchains are found.
struct Toolchains {
  std::vector<std::string> site_packages;  ///< folders of Python packages
  std::vector<std::string> order = {"llvm", "c++"};
  std::chrono::milliseconds patience = std::chrono::minutes(2);  ///< with a compiler that is a process
};

/// Functions by name. They live as long as this does.
class Code {
 public:
  virtual ~Code() = default;
  virtual void* find(const std::string& name) const = 0;  ///< throws base::Fault when there is none
  std::string by;                                         ///< the toolchain that made it
  std::string text;                                       ///< its source
};

/// For the CPU of this machine. Takes the first toolchain of the order that works; throws base::Fault with the words of
/// all of them when none does, and what `poll` throws, which is asked in the calling thread now and then. A compiler
/// that was too slow is not asked again in this process.
std::shared_ptr<const Code> make_code(const std::vector<codegen::Unit>& units, const codegen::Machine& machine,
                                      const Toolchains& toolchains, const base::Poll& poll = {});

/// For the current GPU. Throws base::Fault when there is no driver, no NVRTC, or it fails. Functions are of type
/// runtime::CudaModule::Function. `give_memory_back` is called once when the GPU has no memory for the code, which is
/// then loaded again.
std::shared_ptr<const Code> make_cuda_code(const std::vector<codegen::Unit>& units, const Toolchains& toolchains,
                                           const std::function<void()>& give_memory_back, const base::Poll& poll = {});

}  // namespace magneto::driver
