// schedule/share.h: finds equal kernels.
#pragma once
#include <vector>

#include "loop/program.h"

namespace magneto::schedule {

/// Kernels are equal when they differ only in the names of buffers, values and axes: same structure, types, sizes and
/// strides. Twelve equal layers have the kernels of one.
struct Sharing {
  std::vector<size_t> same_as;                       ///< for each kernel the first one that is equal to it
  std::vector<std::vector<loop::BufferId>> buffers;  ///< of each kernel, in an order that equal kernels agree on
};
Sharing share(const loop::Program& program);

}  // namespace magneto::schedule
