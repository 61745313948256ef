// tests/schedule/judge.h: the interpreter judges a scheduled program by the equations it was made of.
#pragma once
#include <string>
#include <vector>

#include "driver/passes.h"
#include "loop/interpret.h"
#include "loop/text.h"
#include "memory.h"

namespace magneto::schedule {

/// Stands for every extern call of the tests: each output is twice the sum of the inputs, element by element.
inline void double_all(const loop::Program& program, const loop::Equation& e, const std::vector<int64_t>& symbols,
                       const std::vector<void*>& buffers) {
  for (const loop::BufferId out : e.writes) {
    const int64_t count = loop::storage_size(program.buffer(out).type, symbols);
    for (int64_t k = 0; k < count; ++k) {
      float sum = 0;
      for (const loop::BufferId in : e.reads) sum += static_cast<float*>(buffers[in.index()])[k];
      static_cast<float*>(buffers[out.index()])[k] = 2 * sum;
    }
  }
}

/// "" when `given` has the outputs of `expected`, both run by the interpreter on the same inputs.
inline std::string compare(const loop::Program& expected, const loop::Program& given,
                           const std::vector<int64_t>& symbols, unsigned seed = 5) {
  loop::Memory a(expected, symbols, seed), b(given, symbols, seed);
  const auto run = [&](const loop::Program& program, loop::Memory& memory) {
    loop::Interpretation how;
    how.call_extern = [&](const loop::Equation& e, const std::vector<void*>& buffers) {
      double_all(program, e, symbols, buffers);
    };
    std::vector<void*> pointers = memory.pointers();
    for (size_t n = 0; n < pointers.size(); ++n)
      if (program.buffer(loop::BufferId(n)).role == loop::Role::kRow) pointers[n] = nullptr;
    return loop::interpret(program, symbols, pointers, how);
  };
  const bool fine = run(expected, a);
  if (run(given, b) != fine) return "one of them has a fault";
  return loop::difference(a, b, 1e-5);
}

inline loop::Program scheduled(const loop::Program& program, const Shape& shape = {},
                               const std::set<std::string, std::less<>>& skip = {}) {
  loop::Program copy = program;
  driver::Passes passes;
  passes.skip = skip;
  driver::schedule(copy, passes, shape);
  return copy;
}

}  // namespace magneto::schedule
