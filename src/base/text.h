// base/text.h: pieces of text put together.
#pragma once
#include <concepts>
#include <string>
#include <string_view>

namespace magneto::base {

inline void append(std::string& text, std::string_view piece) { text.append(piece); }
inline void append(std::string& text, char piece) { text.push_back(piece); }
template <std::integral Number>
void append(std::string& text, Number piece) {
  text.append(std::to_string(piece));
}

/// The pieces (texts, characters, integers) one after the other.
template <class... Pieces>
std::string concat(const Pieces&... pieces) {
  std::string text;
  (append(text, pieces), ...);
  return text;
}

}  // namespace magneto::base
