#include "driver/code.h"

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "codegen/cpp/print.h"
#include "codegen/cuda/print.h"
#include "codegen/llvm/print.h"
#include "runtime/cuda.h"
#include "toolchain/compiler.h"
#include "toolchain/llvm.h"
#include "toolchain/nvrtc.h"

namespace magneto::driver {

namespace {

std::vector<std::string> names_of(const std::vector<codegen::Unit>& units) {
  std::vector<std::string> names;
  for (const codegen::Unit& unit : units) names.push_back(unit.name);
  return names;
}

/// Deals the units out to as many parts as there are cores, and makes all parts at a time. Throws what the first part
/// threw.
template <class Made>
std::vector<Made> on_all_cores(const std::vector<codegen::Unit>& units,
                               const std::function<Made(const std::vector<codegen::Unit>&)>& make) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::vector<codegen::Unit>> parts(std::min(cores, (units.size() + 1) / 2));
  for (size_t u = 0; u < units.size(); ++u) parts[u % parts.size()].push_back(units[u]);
  std::vector<std::future<Made>> others;
  for (size_t p = 1; p < parts.size(); ++p)
    others.push_back(std::async(std::launch::async, [&make, &part = parts[p]] { return make(part); }));
  std::vector<Made> made;
  std::exception_ptr error;
  const auto keep = [&](const auto& get) {
    try {
      made.push_back(get());
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  keep([&] { return make(parts[0]); });
  for (std::future<Made>& other : others) keep([&] { return other.get(); });
  if (error) std::rethrow_exception(error);
  return made;
}

/// Code in several pieces.
template <class Piece>
class Pieces : public Code {
 public:
  struct Part {
    std::string text;
    std::vector<std::string> names;
    std::unique_ptr<Piece> piece;
  };
  Pieces(std::string toolchain, std::vector<Part> parts) {
    by = std::move(toolchain);
    for (Part& part : parts) {
      text += part.text;
      for (const std::string& name : part.names) piece_of_[name] = part.piece.get();
      pieces_.push_back(std::move(part.piece));
    }
  }
  void* find(const std::string& name) const override {
    const auto found = piece_of_.find(name);
    base::check(found != piece_of_.end(), "code: no kernel ", name);
    return found->second->get(name);
  }

 private:
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::map<std::string, const Piece*> piece_of_;
};

std::shared_ptr<const Code> by_llvm(const toolchain::Llvm& llvm, const std::vector<codegen::Unit>& units,
                                    const codegen::Machine& machine) {
  using Made = Pieces<toolchain::LoadedCode>;
  const std::string features = codegen::llvm_features(machine);
  return std::make_shared<Made>("llvm", on_all_cores<Made::Part>(units, [&](const std::vector<codegen::Unit>& part) {
                                  std::string text = codegen::llvm::print(part, machine);
                                  auto code = llvm.link(llvm.compile(text, features), names_of(part));
                                  return Made::Part{std::move(text), names_of(part), std::move(code)};
                                }));
}

std::shared_ptr<const Code> by_nvrtc(const toolchain::Nvrtc& nvrtc, const runtime::Cuda& cuda,
                                     const std::vector<codegen::Unit>& units) {
  using Made = Pieces<runtime::CudaModule>;
  const std::string architecture = cuda.architecture();
  struct Compiled {
    std::string text, cubin;
    std::vector<std::string> names;
  };
  // modules are loaded by the calling thread, which has a context
  std::vector<Made::Part> parts;
  for (Compiled& one : on_all_cores<Compiled>(units, [&](const std::vector<codegen::Unit>& part) {
         std::string text = codegen::cuda::print(part);
         std::string cubin = nvrtc.compile(text, architecture);
         return Compiled{std::move(text), std::move(cubin), names_of(part)};
       }))
    parts.push_back({std::move(one.text), std::move(one.names), cuda.load(one.cubin)});
  return std::make_shared<Made>("nvrtc", std::move(parts));
}

class CppCode : public Code {
 public:
  CppCode(const std::vector<codegen::Unit>& units, const codegen::Machine& machine) {
    by = "c++";
    text = codegen::cpp::print(units, machine);
    std::vector<std::string> flags = codegen::compiler_flags(machine);
    flags.push_back("-O1");
    library_ = toolchain::compile_cpp(text, flags);
  }
  void* find(const std::string& name) const override { return library_.get(name.c_str()); }

 private:
  toolchain::Library library_;
};

/// The LLVM of this process, opened once. Throws when there is none.
const toolchain::Llvm& llvm_of(const Toolchains& toolchains) {
  static std::mutex mutex;
  static const toolchain::Llvm* llvm = nullptr;
  const std::lock_guard lock(mutex);
  if (!llvm) {
    const std::string path = toolchain::find_llvmlite(toolchains.site_packages);
    base::check(!path.empty(), "llvmlite is not installed");
    llvm = new toolchain::Llvm(path);  // lives as long as the process: its code does
  }
  return *llvm;
}

const toolchain::Nvrtc& nvrtc_of(const Toolchains& toolchains) {
  static std::mutex mutex;
  static const toolchain::Nvrtc* nvrtc = nullptr;
  const std::lock_guard lock(mutex);
  if (!nvrtc) {
    const std::string path = toolchain::find_nvrtc(toolchains.site_packages);
    base::check(!path.empty(), "NVRTC is not installed");
    nvrtc = new toolchain::Nvrtc(path);
  }
  return *nvrtc;
}

}  // namespace

std::shared_ptr<const Code> make_cuda_code(const std::vector<codegen::Unit>& units, const Toolchains& toolchains) {
  const runtime::Cuda* cuda = runtime::cuda();
  base::check(cuda != nullptr, runtime::why_no_cuda());
  return by_nvrtc(nvrtc_of(toolchains), *cuda, units);
}

std::shared_ptr<const Code> make_code(const std::vector<codegen::Unit>& units, const codegen::Machine& machine,
                                      const Toolchains& toolchains) {
  std::string complaints;
  for (const std::string& name : toolchains.order) {
    try {
      if (name == "llvm") return by_llvm(llvm_of(toolchains), units, machine);
      if (name == "c++") return std::make_shared<CppCode>(units, machine);
      throw base::Fault("there is no such toolchain");
    } catch (const std::exception& fault) {
      complaints += base::concat(complaints.empty() ? "" : "; ", name, ": ", fault.what());
    }
  }
  throw base::Fault(complaints);
}

}  // namespace magneto::driver
