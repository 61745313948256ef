#include "toolchain/library.h"

#include <dlfcn.h>

#include "base/check.h"

namespace magneto::toolchain {

Library::Library(const std::string& path, bool stays)
    : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (stays ? RTLD_NODELETE : 0))) {
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
