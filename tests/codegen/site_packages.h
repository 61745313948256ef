// tests/codegen/site_packages.h: where Python packages with compilers in them may lie.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace magneto::codegen {

/// Those of the virtual environment of this checkout and of the one in use.
inline std::vector<std::string> site_packages() {
  std::vector<std::string> roots = {MAGNETO_TEST_DIR "/../../.venv"}, found;
  if (const char* active = std::getenv("VIRTUAL_ENV")) roots.insert(roots.begin(), active);
  for (const std::string& root : roots) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root + "/lib", ignored))
      found.push_back(entry.path().string() + "/site-packages");
  }
  return found;
}

}  // namespace magneto::codegen
