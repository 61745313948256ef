// capture/state_word.h: the global state that changes what operators do without any Python read: grad mode, autocast,
// default dtype, modes ... Every record relies on all of it, so it is one comparison of a small struct.
#pragma once

#include <c10/core/SafePyObject.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace magneto::capture {

struct StateWord {
  uint64_t flags = 0;
  uint64_t autocast = 0;                ///< enabled devices and their dtypes
  uint64_t included = 0, excluded = 0;  ///< thread-local dispatch keys
  int32_t threads = 0;
  int16_t default_dtype = 0;
  int16_t default_device = 0;  ///< torch.set_default_device, torch.device as a context; 0: none
  friend bool operator==(const StateWord&, const StateWord&) = default;
  static StateWord now();
  /// Which part differs, in words.
  static std::string difference(const StateWord& before, const StateWord& now);
};

/// Within it, no function mode is active.
class WithoutFunctionModes {
 public:
  WithoutFunctionModes();
  ~WithoutFunctionModes();
  WithoutFunctionModes(const WithoutFunctionModes&) = delete;
  WithoutFunctionModes& operator=(const WithoutFunctionModes&) = delete;

 private:
  std::vector<std::shared_ptr<c10::SafePyObject>> modes_;  ///< the innermost first
};

/// A mode that only eager knows (functorch transform, dispatch mode, function mode, tracing, anomaly detection ...);
/// nullptr: recording and replay are possible.
const char* foreign_mode();

}  // namespace magneto::capture
