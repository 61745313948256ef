#include "toolchain/compiler.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "toolchain/process.h"

namespace magneto::toolchain {

namespace {

constexpr std::chrono::milliseconds kBetweenPolls{50};

/// A folder that only we can read; gone with this object.
class PrivateFolder {
 public:
  PrivateFolder() : path_((std::filesystem::temp_directory_path() / "magneto-XXXXXX").string()) {
    const bool made = mkdtemp(path_.data()) != nullptr;
    base::check(made, "toolchain: no folder for temporary files: ", path_, ": ", std::strerror(errno));
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path);
  file << text;
  file.close();
  base::check(file.good(), "toolchain: cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace

Library compile_cpp(const std::string& source, const std::vector<std::string>& flags, const std::string& compiler,
                    const Patience& patience) {
  if (patience.poll) patience.poll();  // a compiler may be done before it is looked at
  const PrivateFolder folder;
  const std::string text = folder.file("kernels.cpp"), object = folder.file("kernels.so");
  write(text, source);
  std::vector<std::string> words = {compiler, "-x",  "c++",     "-std=c++17",      "-shared",
                                    "-fPIC",  "-O2", "-fwrapv", "-fno-math-errno", "-ffp-contract=off",
                                    "-w",     "-o",  object};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back(text);
  const auto end = std::chrono::steady_clock::now() + patience.time;
  Process process(words, folder.path());
  while (!process.ended(kBetweenPolls)) {
    if (patience.poll) patience.poll();
    if (std::chrono::steady_clock::now() > end)
      throw TooSlow(base::concat("toolchain: ", compiler, " did not end within ", patience.time.count(), " ms"));
  }
  if (const std::string complaint = process.complaint(); !complaint.empty())
    throw base::Fault(base::concat("toolchain: ", compiler, " ", complaint));
  return Library(object);
}

}  // namespace magneto::toolchain
