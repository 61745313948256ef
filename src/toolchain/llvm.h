// toolchain/llvm.h: LLVM IR to machine code, by the LLVM inside llvmlite's shared library, which is opened at run time
// and called through its C functions. Nothing of LLVM is needed to build.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magneto::toolchain {

/// Machine code in memory. Its functions live as long as this does.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  virtual void* get(const std::string& name) const = 0;  ///< throws base::Fault when there is none
};

class Llvm {
 public:
  /// `path` is libllvmlite.so. Throws base::Fault when it cannot be opened or lacks a function. Sets LLVM's global
  /// options once: no loop strength reduction, which takes a third of the time and gains nothing here.
  explicit Llvm(const std::string& path);
  ~Llvm();
  Llvm(const Llvm&) = delete;

  /// An object file for this machine with exactly these features (codegen::llvm_features). No optimiser runs: the text
  /// is meant as it stands. Throws base::Fault with LLVM's words when the text is wrong.
  std::string compile(const std::string& text, const std::string& features) const;
  /// Loads an object file that `compile` made, now or in another process. What it calls comes from this process.
  std::unique_ptr<LoadedCode> link(std::string_view object, const std::vector<std::string>& functions) const;

 private:
  struct Functions;
  std::unique_ptr<Functions> llvm_;
};

/// libllvmlite.so: $MAGNETO_LLVMLITE, else the first found in these folders of Python packages; "" when there is none.
std::string find_llvmlite(const std::vector<std::string>& site_packages);

}  // namespace magneto::toolchain
