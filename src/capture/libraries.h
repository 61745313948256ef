// capture/libraries.h: where the code of torch and of the standard library lies, to tell it from the program's.
#pragma once
#include <string>
#include <string_view>

namespace magneto::capture {

/// With a slash at the end; empty, if it cannot be told. They look things up in Python the first time.
const std::string& torch_folder();
const std::string& standard_folder();

inline bool is_in_folder(std::string_view file, const std::string& folder) {
  return !folder.empty() && file.starts_with(folder);
}

}  // namespace magneto::capture
