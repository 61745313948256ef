// tests/runtime/cases.h: equations that become plans: those of the scheduler's tests, and random ones.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../schedule/equations.h"
#include "../schedule/judge.h"
#include "base/text.h"
#include "driver/assemble.h"
#include "runtime/sort.h"

namespace magneto::runtime {

struct Case {
  std::string name;
  loop::Program equations;
  std::unique_ptr<loop::Program> scheduled;
  driver::Assembled made;
};

inline Case prepare(const std::string& name, const loop::Program& equations, const schedule::Shape& shape,
                    const schedule::Memory& memory = {}) {
  using Kind = types::Device::Kind;
  Case c{name, equations, std::make_unique<loop::Program>(schedule::scheduled(equations, shape)), {}};
  c.made = driver::assemble(*c.scheduled, {.device = shape.on_gpu() ? Kind::kCuda : Kind::kCpu, .memory = memory});
  const std::vector<std::string> broken = plan::verify(c.made.plan);
  EXPECT_TRUE(broken.empty()) << name << ": " << broken.front() << "\n" << plan::print(c.made.plan);
  EXPECT_EQ(plan::print(plan::parse(plan::print(c.made.plan))), plan::print(c.made.plan));
  return c;
}

inline std::vector<Case> cases(const schedule::Shape& shape, unsigned random) {
  std::vector<Case> list;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/../schedule/programs")) {
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    list.push_back(prepare(entry.path().stem().string(), loop::parse(text.str()), shape));
  }
  for (unsigned seed = 1000; seed < 1000 + random; ++seed)
    list.push_back(prepare(base::concat("random", seed), schedule::random_equations(seed), shape));
  return list;
}

inline std::string symbol_of(const Case& c, const std::string& kernel) { return base::concat(c.name, "__", kernel); }

inline std::vector<codegen::Unit> units_of(const std::vector<Case>& list) {
  std::vector<codegen::Unit> units;
  for (const Case& c : list)
    for (codegen::Unit unit : c.made.units) {
      unit.name = symbol_of(c, unit.name);
      units.push_back(unit);
    }
  return units;
}

/// Layers of a norm, an extern call and an activation, one behind the other.
inline loop::Program layers(int count) {
  std::string text = "loop {\n  in x: f32[s0, 64]\n", equations;
  std::string last = "x";
  for (int k = 0; k < count; ++k) {
    const std::string n = std::to_string(k);
    text += "  in w" + n + ": f32[64]\n  temp m" + n + "_: f32[s0]\n  temp v" + n + "_: f32[s0]\n  temp n" + n +
            "_: f32[s0, 64]\n  temp p" + n + "_: f32[s0, 64]\n  " + (k + 1 == count ? "out" : "temp") + " y" + n +
            "_: f32[s0, 64]\n";
    equations += "  m" + n + "_[i] = sum(j < 64, " + last + "[i, j]) / 64.0\n" + "  v" + n + "_[i] = sum(j < 64, (" +
                 last + "[i, j] - m" + n + "_[i]) * (" + last + "[i, j] - m" + n + "_[i])) / 64.0\n" + "  n" + n +
                 "_[i, j] = (" + last + "[i, j] - m" + n + "_[i]) * rsqrt(v" + n + "_[i] + 1e-05) * w" + n + "[j]\n" +
                 "  extern \"double\" (n" + n + "_) -> (p" + n + "_) \"\"\n" + "  y" + n + "_[i, j] = " + last +
                 "[i, j] * 0.5 + tanh(p" + n + "_[i, j])\n";
    last = "y" + n + "_";
  }
  return loop::parse(text + equations + "}\n");
}

/// Rows of fixed lengths: softmax, a mean, a column sum, elements of two types.
inline std::vector<Case> rows_of(const std::vector<int>& lengths) {
  std::vector<Case> list;
  for (const int n : lengths) {
    const std::string text = base::concat(R"(loop {
  in x: f32[24, )",
                                          n, R"(]
  in h: bf16[24, )",
                                          n, R"(]
  in w: f32[)",
                                          n, R"(]
  temp m: f32[24, 1]
  temp e: f32[24, )",
                                          n, R"(]
  temp s: f32[24, 1]
  out y: f32[24, )",
                                          n, R"(]
  out z: bf16[24, )",
                                          n, R"(]
  out c: f32[)",
                                          n, R"(]
  out t: f32[24]
  m[i, k] = max(j < )",
                                          n, R"(, x[i, j])
  e[i, j] = exp(x[i, j] - m[i, 0])
  s[i, k] = sum(j < )",
                                          n, R"(, e[i, j])
  y[i, j] = e[i, j] / s[i, 0] * w[j]
  z[i, j] = bf16(f32(h[i, j]) * 0.5 + 1.0)
  c[j] = sum(i < 24, x[i, j] * w[j])
  t[i] = sum(j < )",
                                          n, R"(, x[i, j]) / )", n, R"(.0
})");
    list.push_back(prepare(base::concat("rows_of_", n), loop::parse(text), schedule::gpu_shape()));
  }
  return list;
}

/// The only extern calls of these plans: a sort, and twice the elements of s0 rows of s1, or of as many times more as
/// its argument says.
inline void call_extern(const plan::Step& step, void* const* buffers, const std::vector<int64_t>& symbols) {
  if (step.name == "magneto::sort") return sort(step, buffers, symbols);
  ASSERT_EQ(step.name, "double");
  const int64_t times = step.arguments.empty() ? 1 : std::stoll(step.arguments);
  for (int64_t k = 0; k < symbols[0] * symbols[1] * times; ++k)
    static_cast<float*>(buffers[1])[k] = 2 * static_cast<float*>(buffers[0])[k];
}

/// A case with sizes: what the interpreter makes of it, and the same memory once more, for a plan.
struct Trial {
  Trial(const Case& c, const std::vector<int64_t>& symbols)
      : expected(c.equations, symbols, 7), given(c.equations, symbols, 7) {
    loop::Interpretation how;
    how.call_extern = [&](const loop::Equation& e, const std::vector<void*>& buffers) {
      schedule::double_all(c.equations, e, symbols, buffers);
    };
    sound = loop::interpret(c.equations, symbols, expected.pointers(), how);
  }

  /// For each buffer of the plan what `at` says of it; null where it is no buffer of the equations.
  template <class At>
  static std::vector<void*> memory_of(const Case& c, const At& at) {
    std::vector<void*> memory;
    for (const plan::Buffer& b : c.made.plan.buffers) {
      const loop::BufferId id = loop::find_buffer(c.equations, b.name);
      memory.push_back(id.valid() ? at(id) : nullptr);
    }
    return memory;
  }
  std::vector<void*> memory(const Case& c) {
    const std::vector<void*> pointers = given.pointers();
    return memory_of(c, [&](loop::BufferId id) { return pointers[id.index()]; });
  }
  std::string difference() const { return loop::difference(expected, given, 2e-4); }

  loop::Memory expected, given;
  bool sound = false;  ///< no index out of bounds
};

inline std::string texts_of(const Case& c, const std::vector<int64_t>& symbols) {
  return base::concat(c.name, " with s0 = ", symbols[0], ", s1 = ", symbols[1], "\n", loop::print(c.equations),
                      loop::print(*c.scheduled), plan::print(c.made.plan));
}

const std::vector<std::vector<int64_t>> kSymbols = {{5, 37}, {1, 1}, {0, 3}, {3, 0}, {64, 130}};

}  // namespace magneto::runtime
