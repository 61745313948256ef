// toolchain/nvrtc.h: CUDA C++ text to machine code of a GPU, by NVRTC, which is opened at run time.
#pragma once
#include <string>
#include <vector>

#include "toolchain/library.h"

namespace magneto::toolchain {

class Nvrtc {
 public:
  explicit Nvrtc(const std::string& path);  ///< libnvrtc.so; throws base::Fault when it cannot be opened

  /// A cubin for one architecture: "sm_90". Throws base::Fault with the compiler's log.
  std::string compile(const std::string& text, const std::string& architecture) const;

 private:
  Library library_;
};

/// The first libnvrtc.so in these folders of Python packages, or in the system's CUDA; "" when there is none.
std::string find_nvrtc(const std::vector<std::string>& site_packages);

}  // namespace magneto::toolchain
