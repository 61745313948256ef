#include "driver/scripts.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace magneto::driver {

namespace {

/// Nobody else writes to it: the system's temporary folder belongs to all.
std::string own_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "magneto-check-XXXXXX").string();
  return mkdtemp(name.data()) ? name : "";
}

std::string folder() {
  const char* chosen = std::getenv("MAGNETO_CHECK_DIR");
  if (!chosen || !*chosen) {
    static const std::string own = own_folder();
    return own;
  }
  std::filesystem::create_directories(chosen);
  return chosen;
}

bool write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return !file.fail();
}

}  // namespace

std::string write_script(const std::string& text, const std::vector<std::pair<std::string, std::string>>& files) try {
  static std::atomic<int> last = 0;
  const std::string in = folder();
  if (in.empty()) return "";
  const std::string stem = base::concat(in, "/check_", getpid(), "_", ++last);
  for (const auto& [ending, bytes] : files)
    if (!write(stem + ending, bytes)) return "";
  return write(stem + ".py", text) ? stem + ".py" : "";
} catch (const std::exception&) {  // no such folder, no room
  return "";
}

}  // namespace magneto::driver
