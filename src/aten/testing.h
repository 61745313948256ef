// aten/testing.h: what tests may ask the recorder.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace magneto::aten {

struct Counters {
  int64_t living = 0;  ///< tensors made by traces that are alive
  int64_t lies = 0;    ///< results whose type, or whose memory, was not as recorded: bugs of ours
  std::string last_lie;
};
Counters counters();

/// Its data, or a write to its data, wait for a flush.
bool is_pending(const at::Tensor& tensor);

}  // namespace magneto::aten
