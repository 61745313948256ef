// capture/state_word.h: the global state that changes what operators do without any Python read: grad mode, autocast,
// default dtype, modes ... Every record relies on all of it, so it is one comparison of a small struct.
#pragma once
#include <cstdint>
#include <string>

namespace magneto::capture {

struct StateWord {
  uint64_t flags = 0;
  uint64_t autocast = 0;                ///< enabled devices and their dtypes
  uint64_t included = 0, excluded = 0;  ///< thread-local dispatch keys
  int32_t threads = 0;
  int16_t default_dtype = 0;
  friend bool operator==(const StateWord&, const StateWord&) = default;
  static StateWord now();
  /// Which part differs, in words.
  static std::string difference(const StateWord& before, const StateWord& now);
};

/// A mode that only eager knows (functorch transform, dispatch mode, function mode, tracing, anomaly detection ...);
/// nullptr: recording and replay are possible.
const char* foreign_mode();

}  // namespace magneto::capture
