// loop/interpret.h: runs both levels of the language on plain memory, one element at a time: the judge of every printer
// and every pass.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "loop/program.h"

namespace magneto::loop {

class TooLong : public base::Fault {
 public:
  using Fault::Fault;
};

struct Interpretation {
  /// Floats are computed in double precision and rounded where they are stored and where they are cast to a half type.
  /// With `round_each`, after every operation: then arithmetic gives the bits that a printer's code gives.
  bool round_each = false;
  int64_t most = INT64_MAX;  ///< terms that may be computed; then TooLong is thrown
  /// Called for extern equations with the memory of all buffers.
  std::function<void(const Equation&, const std::vector<void*>&)> call_extern;
};

/// Runs equations and kernels in the order of the text. `buffers` holds the memory of each buffer, element 0 of its
/// storage; null for temporaries and rows: the interpreter makes them. Symbol i has the value symbols[i]. Returns false
/// when a `checked` index was out of bounds or an integer was divided by zero.
bool interpret(const Program& program, const std::vector<int64_t>& symbols, std::vector<void*> buffers,
               const Interpretation& how = {});

/// The same for one kernel; `buffers` has what it reads and writes.
bool interpret(const Program& program, const Kernel& kernel, const std::vector<int64_t>& symbols,
               std::vector<void*> buffers, const Interpretation& how = {});

/// The elements of the storage of a buffer, from element 0 to the last one that an index reaches.
int64_t storage_size(const types::TensorType& type, const std::vector<int64_t>& symbols);

}  // namespace magneto::loop
