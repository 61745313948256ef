#include "toolchain/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

extern char** environ;

namespace magneto::toolchain {

namespace {

constexpr size_t kMostWords = 4000;  ///< of what it says

/// Our environment, but for the folder of temporary files.
std::vector<std::string> environment_with(const std::string& folder) {
  std::vector<std::string> made;
  for (char** one = environ; *one; ++one)
    if (std::strncmp(*one, "TMPDIR=", 7) != 0) made.emplace_back(*one);
  made.push_back("TMPDIR=" + folder);
  return made;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> made;
  for (const std::string& word : words) made.push_back(const_cast<char*>(word.c_str()));
  made.push_back(nullptr);
  return made;
}

}  // namespace

Process::Process(const std::vector<std::string>& words, const std::string& folder) {
  int ends[2];
  const bool made = pipe2(ends, O_CLOEXEC) == 0;
  base::check(made, "toolchain: no pipe: ", std::strerror(errno));
  pipe_ = ends[0];
  fcntl(pipe_, F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: a Ctrl-C is ours to serve, and compilers start others that must end with them.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const std::vector<std::string> environment = environment_with(folder);
  const int failed = posix_spawnp(&child_, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                                  pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed == 0) return;
  close(pipe_);
  throw base::Fault(base::concat("toolchain: cannot start ", words[0], ": ", std::strerror(failed)));
}

Process::~Process() {
  if (!reaped_) end_all();
  close(pipe_);
}

void Process::listen(std::chrono::milliseconds wait) {
  if (closed_) wait = std::min(wait, std::chrono::milliseconds(1));  // it ends just now, as a rule
  pollfd some{pipe_, POLLIN, 0};
  poll(&some, closed_ ? 0 : 1, static_cast<int>(wait.count()));
  char words[4096];
  ssize_t count;
  while ((count = read(pipe_, words, sizeof words)) > 0)
    if (said_.size() < kMostWords) said_.append(words, static_cast<size_t>(count));
  closed_ = count == 0;
}

void Process::reap() {
  while (waitpid(child_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

bool Process::ended(std::chrono::milliseconds wait) {
  listen(wait);
  siginfo_t what{};
  // It stays a zombie for now: its number, which is the group's, must not become somebody else's.
  if (waitid(P_PID, static_cast<id_t>(child_), &what, WEXITED | WNOHANG | WNOWAIT) != 0)
    return errno == ECHILD;  // the program around us takes all zombies: what it made tells
  well_ = what.si_pid != child_ || (what.si_code == CLD_EXITED && what.si_status == 0);
  return what.si_pid == child_;
}

std::string Process::complaint() {
  listen(std::chrono::milliseconds(0));
  if (well_)
    reap();
  else
    end_all();  // a driver may be killed while the compiler behind it works on
  if (well_) return "";
  const std::string how = WIFSIGNALED(status_) ? base::concat("was killed by signal ", WTERMSIG(status_))
                                               : base::concat("failed with status ", WEXITSTATUS(status_));
  return base::concat(how, ": ", said_.substr(0, kMostWords));
}

// Returns when nobody of the group has our pipe any more: then nobody writes to the folder of temporary files.
void Process::end_all() {
  kill(-child_, SIGKILL);
  reap();
  for (int tries = 0; tries < 100 && !closed_; ++tries)  // a second: one who left the group does not hold us up
    listen(std::chrono::milliseconds(10));
}

}  // namespace magneto::toolchain
