// toolchain/process.h: a program that runs for us, in a process group of its own.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace magneto::toolchain {

/// Its standard output and error come to us through a pipe: no disk is needed to hear why it failed, and the pipe's end
/// tells that everybody who could still write files is gone. Whatever happens to us, the destructor leaves neither a
/// process nor a zombie.
class Process {
 public:
  /// `words[0]` is found in PATH; its temporary files go to `folder`. Throws base::Fault when it cannot be started.
  Process(const std::vector<std::string>& words, const std::string& folder);
  ~Process();
  Process(const Process&) = delete;

  /// Whether it has ended; waits for that so long at most, less when a signal comes.
  bool ended(std::chrono::milliseconds wait);
  /// After `ended`: "" when it went well, else what happened to it, and what it said.
  std::string complaint();

 private:
  void listen(std::chrono::milliseconds wait);
  void reap();
  void end_all();

  std::string said_;
  pid_t child_ = 0;
  int pipe_ = -1;
  int status_ = 0;
  bool well_ = true, reaped_ = false;
  bool closed_ = false;  ///< nobody has the other end of the pipe
};

}  // namespace magneto::toolchain
