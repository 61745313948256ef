#include "driver/code.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

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

constexpr size_t kUnitsAtOnce = 16;  ///< in one part: nobody who wants to end this waits for more

/// Deals the units out to parts, and makes as many at a time as there are cores. Throws what the first part threw, or
/// what `poll` throws, which the calling thread asks before each part; the others end after the part they are at.
template <class Made>
std::vector<Made> on_all_cores(const std::vector<codegen::Unit>& units, const base::Poll& poll,
                               const std::function<Made(const std::vector<codegen::Unit>&)>& make) {
  const size_t cores = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), (units.size() + 1) / 2);
  std::vector<std::vector<codegen::Unit>> parts(std::max(cores, (units.size() + kUnitsAtOnce - 1) / kUnitsAtOnce));
  for (size_t u = 0; u < units.size(); ++u) parts[u % parts.size()].push_back(units[u]);
  std::vector<Made> made(parts.size());
  std::vector<std::exception_ptr> errors(parts.size() + 1);  // of `poll`, of the parts
  std::atomic<size_t> next = 0;
  const auto work = [&](const base::Poll& ask) {
    for (size_t part; (part = next++) < parts.size();) {
      size_t whose = 0;
      try {
        if (ask) ask();
        whose = part + 1;
        made[part] = make(parts[part]);
      } catch (...) {
        errors[whose] = std::current_exception();
        next = parts.size();  // nobody begins another
      }
    }
  };
  std::vector<std::future<void>> others;
  try {
    while (others.size() + 1 < cores) others.push_back(std::async(std::launch::async, work, base::Poll()));
  } catch (const std::system_error&) {  // no more threads: those that are there do it
  }
  work(poll);
  for (std::future<void>& other : others) other.get();
  for (const std::exception_ptr& error : errors)
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
                                    const codegen::Machine& machine, const base::Poll& poll) {
  using Made = Pieces<toolchain::LoadedCode>;
  const std::string features = codegen::llvm_features(machine);
  return std::make_shared<Made>("llvm",
                                on_all_cores<Made::Part>(units, poll, [&](const std::vector<codegen::Unit>& part) {
                                  std::string text = codegen::llvm::print(part, machine);
                                  auto code = llvm.link(llvm.compile(text, features), names_of(part));
                                  return Made::Part{std::move(text), names_of(part), std::move(code)};
                                }));
}

std::shared_ptr<const Code> by_nvrtc(const toolchain::Nvrtc& nvrtc, const runtime::Cuda& cuda,
                                     const std::vector<codegen::Unit>& units, const base::Poll& poll,
                                     std::function<void()> give_memory_back) {
  using Made = Pieces<runtime::CudaModule>;
  const std::string architecture = cuda.architecture();
  struct Compiled {
    std::string text, cubin;
    std::vector<std::string> names;
  };
  const auto load = [&](const std::string& cubin) {
    try {
      return cuda.load(cubin);
    } catch (const runtime::NoMemory&) {
      if (!give_memory_back) throw;
      std::exchange(give_memory_back, nullptr)();
      return cuda.load(cubin);
    }
  };
  // modules are loaded by the calling thread, which has a context
  std::vector<Made::Part> parts;
  for (Compiled& one : on_all_cores<Compiled>(units, poll, [&](const std::vector<codegen::Unit>& part) {
         std::string text = codegen::cuda::print(part);
         std::string cubin = nvrtc.compile(text, architecture);
         return Compiled{std::move(text), std::move(cubin), names_of(part)};
       }))
    parts.push_back({std::move(one.text), std::move(one.names), load(one.cubin)});
  return std::make_shared<Made>("nvrtc", std::move(parts));
}

class CppCode : public Code {
 public:
  CppCode(const std::vector<codegen::Unit>& units, const codegen::Machine& machine,
          const toolchain::Patience& patience) {
    static std::atomic<bool> is_too_slow{false};
    base::check(!is_too_slow, "the compiler was too slow before");
    by = "c++";
    text = codegen::cpp::print(units, machine);
    std::vector<std::string> flags = codegen::compiler_flags(machine);
    flags.push_back("-O1");
    try {
      library_ = toolchain::compile_cpp(text, flags, "g++", patience);
    } catch (const toolchain::TooSlow&) {
      is_too_slow = true;
      throw;
    }
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

std::shared_ptr<const Code> make_cuda_code(const std::vector<codegen::Unit>& units, const Toolchains& toolchains,
                                           const std::function<void()>& give_memory_back, const base::Poll& poll) {
  const runtime::Cuda* cuda = runtime::cuda();
  base::check(cuda != nullptr, runtime::why_no_cuda());
  return by_nvrtc(nvrtc_of(toolchains), *cuda, units, poll, give_memory_back);
}

std::shared_ptr<const Code> make_code(const std::vector<codegen::Unit>& units, const codegen::Machine& machine,
                                      const Toolchains& toolchains, const base::Poll& poll) {
  std::string complaints;
  for (const std::string& name : toolchains.order) {
    try {
      if (name == "llvm") return by_llvm(llvm_of(toolchains), units, machine, poll);
      if (name == "c++")
        return std::make_shared<CppCode>(units, machine, toolchain::Patience{toolchains.patience, poll});
      throw base::Fault("there is no such toolchain");
    } catch (const std::exception& fault) {
      complaints += base::concat(complaints.empty() ? "" : "; ", name, ": ", fault.what());
    }
  }
  throw base::Fault(complaints);
}

}  // namespace magneto::driver
