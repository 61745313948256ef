#include "driver/code.h"

#include <map>
#include <mutex>

#include "base/check.h"
#include "base/text.h"
#include "codegen/cpp/print.h"
#include "codegen/llvm/print.h"
#include "toolchain/compiler.h"
#include "toolchain/llvm.h"

namespace magneto::driver {

namespace {

class LlvmCode : public Code {
 public:
  LlvmCode(const toolchain::Llvm& llvm, const std::vector<codegen::Unit>& units, const codegen::Machine& machine) {
    by = "llvm";
    text = codegen::llvm::print(units, machine);
    std::vector<std::string> names;
    for (const codegen::Unit& unit : units) names.push_back(unit.name);
    code_ = llvm.link(llvm.compile(text, codegen::llvm_features(machine)), names);
  }
  void* find(const std::string& name) const override { return code_->get(name); }

 private:
  std::unique_ptr<toolchain::LoadedCode> code_;
};

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

}  // namespace

std::shared_ptr<const Code> make_code(const std::vector<codegen::Unit>& units, const codegen::Machine& machine,
                                      const Toolchains& toolchains) {
  std::string complaints;
  for (const std::string& name : toolchains.order) {
    try {
      if (name == "llvm") return std::make_shared<LlvmCode>(llvm_of(toolchains), units, machine);
      if (name == "c++") return std::make_shared<CppCode>(units, machine);
      throw base::Fault("there is no such toolchain");
    } catch (const std::exception& fault) {
      complaints += base::concat(complaints.empty() ? "" : "; ", name, ": ", fault.what());
    }
  }
  throw base::Fault(complaints);
}

}  // namespace magneto::driver
