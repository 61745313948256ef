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

/// The CPU's memory runs out: of all that torch asks for from now on, pieces of at least `bytes` bytes, the first
/// `spared` are given and the `refused` after them are not.
void refuse_memory(size_t bytes, int64_t spared, int64_t refused);
/// How often such pieces were asked for since.
int64_t asked_for_memory();

}  // namespace magneto::aten
