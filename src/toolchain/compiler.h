// toolchain/compiler.h: C++ text to a loaded library, by the compiler of the system.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/interrupt.h"
#include "toolchain/library.h"

namespace magneto::toolchain {

/// A compiler that did not end in time. It would not the next time, either.
class TooSlow : public base::Fault {
 public:
  using base::Fault::Fault;
};

/// How long a compiler may take, and who may end it before.
struct Patience {
  std::chrono::milliseconds time = std::chrono::minutes(2);
  base::Poll poll;
};

/// Compiles `source` into a library in a private folder that is gone when this returns, and loads it. `compiler` is
/// found in PATH. Throws base::Fault with what the compiler said, TooSlow or base::Interrupted; then it and all that it
/// started are dead.
Library compile_cpp(const std::string& source, const std::vector<std::string>& flags,
                    const std::string& compiler = "g++", const Patience& patience = {});

}  // namespace magneto::toolchain
