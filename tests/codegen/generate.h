// tests/codegen/generate.h: random programs with one kernel, valid by construction, tame enough that f32 and double
// agree.
#pragma once
#include "loop/program.h"

namespace magneto::loop {

struct Generated {
  Program program;
  std::vector<int64_t> symbols;
};

Generated generate(unsigned seed);

}  // namespace magneto::loop
