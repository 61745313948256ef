// What the printers print for one small kernel, in full: generated code is read too. After a change that is meant,
// write the files anew with MAGNETO_WRITE_PRINTED=1 and read what changed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "codegen/cpp/print.h"
#include "codegen/cuda/print.h"
#include "codegen/llvm/print.h"
#include "loop/text.h"
#include "loop/verify.h"
#include "programs.h"

namespace magneto::codegen {
namespace {

TEST(Printed, EveryPrinterStaysAsItIs) {
  const std::string base = MAGNETO_TEST_DIR "/printed/shift";
  const loop::Program program = loop::parse(read_file(base + ".loop"));
  ASSERT_TRUE(loop::verify(program).empty());
  const Machine machine{Machine::Isa::kAvx2, false};
  const std::pair<const char*, std::string> texts[] = {{".cpp.txt", cpp::print(units_of(program), machine)},
                                                       {".ll", llvm::print(units_of(program), machine)},
                                                       {".cu", cuda::print(units_of(program))}};
  for (const auto& [ending, text] : texts) {
    if (std::getenv("MAGNETO_WRITE_PRINTED")) std::ofstream(base + ending) << text;
    EXPECT_EQ(text, read_file(base + ending)) << ending;
  }
}

}  // namespace
}  // namespace magneto::codegen
