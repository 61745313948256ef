// aten/threads_internal.h: torch's own threads, for our kernels.
#pragma once
#include "runtime/threads.h"

namespace magneto::aten {

/// The team that torch's operators work with: its OpenMP threads, as many as torch.set_num_threads says. So kernels and
/// extern calls take turns with the same threads instead of waiting for cores that another pool keeps busy. Where torch
/// has no OpenMP, the caller works alone.
const runtime::Team& torch_team();

}  // namespace magneto::aten
