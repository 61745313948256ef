// toolchain/library.h: a shared library that was opened at run time, and functions in it.
#pragma once
#include <string>
#include <utility>

namespace magneto::toolchain {

class Library {
 public:
  Library() = default;
  /// Throws base::Fault with the linker's words. A library that `stays` is never unloaded: compilers have state and
  /// threads of their own that do not survive it.
  explicit Library(const std::string& path, bool stays = false);
  ~Library();
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void* find(const char* name) const;  ///< null when there is none
  void* get(const char* name) const;   ///< throws base::Fault when there is none
  template <class Function>
  void get(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(get(name));
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace magneto::toolchain
