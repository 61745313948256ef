// aten/script_internal.h: a case as a Python script that stands alone: the graph as calls of torch.ops, its inputs, and
// a comparison of eager with Magneto.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "aten/shrink_internal.h"

namespace magneto::aten {

struct Script {
  std::string text;
  /// Inputs that are too large for a text: what is added to the script's own name, and the bytes.
  std::vector<std::pair<std::string, std::string>> files;
};

/// `title` says where it comes from.
Script script_of(const Shrunk& shrunk, const std::string& title);

}  // namespace magneto::aten
