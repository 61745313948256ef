#include "toolchain/compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"

extern char** environ;

namespace magneto::toolchain {

namespace {

/// A folder that only we can read; gone with this object.
class PrivateFolder {
 public:
  PrivateFolder() : path_((std::filesystem::temp_directory_path() / "magneto-XXXXXX").string()) {
    base::check(mkdtemp(path_.data()) != nullptr, "toolchain: no folder for temporary files");
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

int run(const std::vector<std::string>& words, const std::string& errors) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  base::check(started == 0, "toolchain: cannot start ", words[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Library compile_cpp(const std::string& source, const std::vector<std::string>& flags, const std::string& compiler) {
  const PrivateFolder folder;
  const std::string text = folder.file("kernels.cpp"), object = folder.file("kernels.so"),
                    errors = folder.file("errors");
  std::ofstream(text) << source;
  std::vector<std::string> words = {compiler, "-x",  "c++",     "-std=c++17",      "-shared",
                                    "-fPIC",  "-O2", "-fwrapv", "-fno-math-errno", "-ffp-contract=off",
                                    "-w",     "-o",  object};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back(text);
  if (const int status = run(words, errors); status != 0) {
    std::ostringstream said;
    said << std::ifstream(errors).rdbuf();
    throw base::Fault("toolchain: " + compiler + " failed with " + std::to_string(status) + ": " +
                      said.str().substr(0, 4000));
  }
  return Library(object);
}

}  // namespace magneto::toolchain
