// CUDA text on any machine (emulate.h), against the interpreter.
#include <gtest/gtest.h>

#include <cstring>

#include "emulate.h"
#include "programs.h"

namespace magneto::codegen {
namespace {

void agree(const std::vector<Case>& cases, size_t shift) {
  const Emulated code(units_of(cases));
  for (const Case& c : cases)
    for (const std::vector<int64_t>& symbols : c.symbols) {
      loop::Memory expected(*c.program, symbols, 3), given(*c.program, symbols, 3);
      loop::Interpretation how;
      how.round_each = true;
      const bool sound = loop::interpret(*c.program, symbols, expected.pointers(), how);
      if (!sound && c.name != "faults_are_reported_0") continue;  // nobody looks at a division by zero
      // `shift` times 16 bytes behind an aligned address
      std::vector<std::vector<char>> moved;
      std::vector<void*> place;
      const std::vector<void*> pointers = given.pointers();
      for (size_t b = 0; b < pointers.size(); ++b) {
        const loop::BufferId id(b);
        const size_t item = types::item_size(c.program->buffer(id).type.dtype), bytes = given.count(id) * item;
        moved.emplace_back(bytes + shift * 16 + 16);
        place.push_back(moved.back().data() + shift * 16);
        if (pointers[b]) std::memcpy(place[b], pointers[b], bytes);
      }
      bool fine = true;
      for (const loop::Kernel& kernel : c.program->kernels) {
        const Grid grid = grid_of(*c.program, kernel);
        std::vector<void*> arguments;
        for (const loop::BufferId id : arguments_of(*c.program, kernel)) arguments.push_back(&place[id.index()]);
        for (const uint32_t symbol : symbols_of(*c.program, kernel))
          arguments.push_back(const_cast<int64_t*>(&symbols[symbol]));
        fine &= code.get(unit_name(c, kernel))(arguments.data(), grid.blocks.evaluate(symbols),
                                               static_cast<unsigned>(grid.threads));
      }
      for (size_t b = 0; b < pointers.size(); ++b) {
        const loop::BufferId id(b);
        const size_t item = types::item_size(c.program->buffer(id).type.dtype);
        if (pointers[b]) std::memcpy(pointers[b], place[b], given.count(id) * item);
      }
      const std::string found =
          fine == sound ? (sound ? loop::difference(expected, given, 2e-4) : "") : "one of them has a fault";
      ASSERT_EQ(found, "") << c.name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << "\n"
                           << loop::print(*c.program) << cuda::print(codegen::units_of(*c.program));
    }
}

TEST(CudaEmulated, HandwrittenKernelsAgree) {
  agree(handwritten(), 0);
  agree(handwritten(), 1);
}

TEST(CudaEmulated, RandomKernelsAgree) { agree(random_cases(0, 40), 0); }

TEST(CudaEmulated, RandomKernelsAgreeWhereverMemoryLies) { agree(random_cases(40, 20), 1); }

}  // namespace
}  // namespace magneto::codegen
