#include "toolchain/library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "base/check.h"

namespace magneto::toolchain {

// The linker maps what the headers promise: a file that was cut off (a full disk, half an installation) would end the
// process with SIGBUS. Anything else that is wrong it finds itself.
static void check_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) head;
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) return;
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ElfW(Phdr))) return;
  std::vector<ElfW(Phdr)> parts(head.e_phnum);
  file.seekg(static_cast<std::streamoff>(head.e_phoff));
  file.read(reinterpret_cast<char*>(parts.data()), static_cast<std::streamsize>(parts.size() * sizeof(ElfW(Phdr))));
  bool whole = file.good();
  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<uint64_t>(file.tellg());
  for (const ElfW(Phdr) & part : parts) whole = whole && part.p_offset <= size && part.p_filesz <= size - part.p_offset;
  base::check(whole, "toolchain: ", path, " is cut off");
}

Library::Library(const std::string& path, bool stays) {
  check_whole(path);
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (stays ? RTLD_NODELETE : 0));
  if (!handle_) throw base::Fault(std::string("toolchain: ") + dlerror());
}

Library::~Library() {
  if (handle_) dlclose(handle_);
}

void* Library::find(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

void* Library::get(const char* name) const {
  void* found = find(name);
  base::check(found != nullptr, "toolchain: no function ", name);
  return found;
}

}  // namespace magneto::toolchain
