// tests/codegen/programs.h: the programs that every printer must print right: those in kernels/ and in
// tests/loop/same/, and random ones.
#pragma once
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "agree.h"
#include "generate.h"
#include "loop/text.h"

namespace magneto::codegen {

struct Case {
  std::string name;
  std::shared_ptr<loop::Program> program;
  std::vector<std::vector<int64_t>> symbols;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::vector<Case> handwritten() {
  std::vector<Case> cases;
  std::set<std::filesystem::path> files;
  for (const char* folder : {MAGNETO_TEST_DIR "/kernels", MAGNETO_TEST_DIR "/../loop/same"})
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.insert(entry.path());
  for (const auto& path : files) {
    std::string text = read_file(path) + "\n==\n";
    int part = 0;
    for (size_t at; (at = text.find("\n==\n")) != std::string::npos; text = text.substr(at + 4)) {
      auto program = std::make_shared<loop::Program>(loop::parse(text.substr(0, at)));
      if (program->kernels.empty()) continue;
      cases.push_back(
          {path.stem().string() + "_" + std::to_string(part++), program, {{5, 37}, {1, 16}, {13, 1}, {8, 200}}});
    }
  }
  return cases;
}

inline std::vector<Case> random_cases(unsigned first, unsigned count) {
  std::vector<Case> cases;
  for (unsigned seed = first; seed < first + count; ++seed) {
    loop::Generated made = loop::generate(seed);
    auto program = std::make_shared<loop::Program>(std::move(made.program));
    cases.push_back({"random_" + std::to_string(seed), program, {made.symbols, {3, 33}}});
  }
  return cases;
}

inline std::string unit_name(const Case& c, const loop::Kernel& kernel) { return c.name + "_" + kernel.name; }

inline std::vector<Unit> units_of(const std::vector<Case>& cases) {
  std::vector<Unit> units;
  for (const Case& c : cases)
    for (const loop::Kernel& kernel : c.program->kernels)
      units.push_back({c.program.get(), &kernel, unit_name(c, kernel)});
  return units;
}

}  // namespace magneto::codegen
