// types/sample.h: a tensor in plain memory, for those who run programs to compare them.
#pragma once
#include <vector>

#include "types/tensor_type.h"

namespace magneto::types {

struct Sample {
  TensorType type{};         ///< numbers only
  std::vector<char> memory;  ///< of its storage, from element 0 to the last one that is used
  bool defined = true;       ///< else it is an undefined tensor
};

}  // namespace magneto::types
