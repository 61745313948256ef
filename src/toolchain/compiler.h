// toolchain/compiler.h: C++ text to a loaded library, by the compiler of the system.
#pragma once
#include <string>
#include <vector>

#include "toolchain/library.h"

namespace magneto::toolchain {

/// Compiles `source` into a library in a private folder that is gone when this returns, and loads it. `compiler` is
/// found in PATH. Throws base::Fault with what the compiler said.
Library compile_cpp(const std::string& source, const std::vector<std::string>& flags,
                    const std::string& compiler = "g++");

}  // namespace magneto::toolchain
