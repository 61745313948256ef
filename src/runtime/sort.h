// runtime/sort.h: sorts lines of a tensor: the call "magneto::sort" of a plan.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace magneto::runtime {

/// Sorts along one dimension, stable, NaN as the greatest, as torch does. The arguments of the step are the types of
/// source, result and positions (if wanted), then "along d" and "descending". Throws base::Fault when they are not.
void sort(const plan::Step& step, void* const* buffers, const std::vector<int64_t>& symbols);

}  // namespace magneto::runtime
