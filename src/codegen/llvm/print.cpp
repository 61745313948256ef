#include "codegen/llvm/print.h"

#include <memory>

#include "base/text.h"
#include "codegen/llvm/target_internal.h"

namespace magneto::codegen::llvm {

std::string print(const std::vector<Unit>& units, const Machine& machine) {
  std::string functions;
  std::map<std::string, std::string> declarations;
  std::map<const loop::Program*, std::unique_ptr<loop::Uses>> uses;
  for (const Unit& unit : units) {
    auto& known = uses[unit.program];
    if (!known) known = std::make_unique<loop::Uses>(*unit.program);
    LlvmTarget target(*unit.program, *unit.kernel, machine, declarations);
    functions += base::concat(target.function(unit.name, *known), "\n");
  }
  for (const auto& [name, text] : declarations) functions += text;
  return functions;
}

}  // namespace magneto::codegen::llvm
