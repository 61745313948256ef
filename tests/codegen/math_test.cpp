// The accuracy of our vector math, in units of the last place, over random bit patterns and the special ones.
#include "codegen/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "codegen/cpp/print.h"
#include "loop/semantics.h"
#include "loop/text.h"
#include "programs.h"
#include "toolchain/compiler.h"

namespace magneto::codegen {
namespace {

struct Function {
  const char* name;
  double (*exact)(double);
  double ulps;   ///< promised in math.h
  double limit;  ///< of |x|, where the promise holds
};

double ulps_between(float given, double exact) {
  if (std::isnan(exact)) return std::isnan(given) ? 0 : INFINITY;
  const auto nearest = static_cast<float>(exact);
  if (given == nearest) return 0;
  if (std::isinf(nearest) || std::isinf(given) || std::isnan(given)) return INFINITY;
  const int exponent = std::max(std::ilogb(nearest == 0 ? 1e-45 : static_cast<double>(nearest)), -126);
  return std::fabs(static_cast<double>(given) - exact) / std::ldexp(1.0, exponent - 23);
}

toolchain::Library compiled(const std::string& text) {
  return toolchain::compile_cpp(cpp::print(units_of(loop::parse(text)), host_machine()),
                                compiler_flags(host_machine()));
}

void call(const toolchain::Library& library, const char* name, std::initializer_list<std::vector<float>*> buffers) {
  std::vector<void*> pointers;
  for (std::vector<float>* buffer : buffers) pointers.push_back(buffer->data());
  const auto count = static_cast<int64_t>((*buffers.begin())->size());
  int32_t fault = 0;
  CpuKernel* function = nullptr;
  library.get(function, (std::string("f_") + name).c_str());
  function(pointers.data(), &count, 0, 1, nullptr, &fault);
}

/// All bit patterns of a half type through f32 and back, and roundings of numbers between them, in vectors and one by
/// one.
TEST(Math, HalvesAreConvertedExactly) {
  for (const std::string half : {"f16", "bf16"}) {
    const loop::Program program =
        loop::parse("loop {\n in x: " + half + "[s0]\n in z: f32[s0]\n out y: f32[s0]\n out b: " + half +
                    "[s0]\n kernel k() {\n phase j < s0, vector 16 {\n store y[j] = f32(x[j])\n store b[j] = " + half +
                    "(z[j])\n }\n }\n}\n");
    const std::vector<int64_t> symbols = {65536 + 5};
    for (const Machine& machine : {host_machine(), Machine{}}) {
      const toolchain::Library library =
          toolchain::compile_cpp(cpp::print(units_of(program), machine), compiler_flags(machine));
      loop::Memory expected(program, symbols, 1), given(program, symbols, 1);
      std::mt19937 random(3);
      const loop::BufferId x(0), z(1);
      for (int64_t k = 0; k < symbols[0]; ++k) {
        const auto pattern = static_cast<uint16_t>(k);
        const float f = std::bit_cast<float>(static_cast<uint32_t>(random()) & (k % 2 ? ~0u : 0xffff8000u));
        for (loop::Memory* memory : {&expected, &given}) {
          memory->set(x, static_cast<size_t>(k), loop::read(program.buffer(x).type.dtype, &pattern));
          memory->set(z, static_cast<size_t>(k), loop::Number::of(static_cast<double>(f)));
        }
      }
      loop::interpret(program, symbols, expected.pointers());
      run(program, symbols, given, [&](const loop::Kernel&) { return reinterpret_cast<CpuKernel*>(library.get("k")); });
      for (size_t k = 0; k < static_cast<size_t>(symbols[0]); ++k)
        for (const loop::BufferId id : {loop::BufferId(2), loop::BufferId(3)}) {
          const double a = expected.number(id, k).real, b = given.number(id, k).real;
          ASSERT_TRUE((a == b && std::signbit(a) == std::signbit(b)) || (a != a && b != b))
              << half << " " << k << ": " << a << ", " << b;
        }
    }
  }
}

TEST(Math, IsAsAccurateAsPromised) {
  const double inf = INFINITY;
  const Function functions[] = {
      {"exp", [](double x) { return std::exp(x); }, 1.2, inf},
      {"expm1", [](double x) { return std::expm1(x); }, 1.6, inf},
      {"log", [](double x) { return std::log(x); }, 1.2, inf},
      {"log1p", [](double x) { return std::log1p(x); }, 1.8, inf},
      {"log2", [](double x) { return std::log2(x); }, 1.8, inf},
      {"tanh", [](double x) { return std::tanh(x); }, 2.2, inf},
      {"erf", [](double x) { return std::erf(x); }, 1.6, inf},
      {"sin", [](double x) { return std::sin(x); }, 0.6, 1e8},
      {"cos", [](double x) { return std::cos(x); }, 0.6, 1e8},
      {"tan", [](double x) { return std::tan(x); }, 0.6, 1e8},
      {"atan", [](double x) { return std::atan(x); }, 2, inf},
      {"asin", [](double x) { return std::asin(x); }, 2.5, inf},
      {"acos", [](double x) { return std::acos(x); }, 2, inf},
      {"sinh", [](double x) { return std::sinh(x); }, 2.5, inf},
      {"cosh", [](double x) { return std::cosh(x); }, 2, inf},
  };
  std::vector<float> x(400'001), y(x.size());  // odd: the last ones are computed one by one
  std::mt19937 random(7);
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (k % 2) x[k] = std::uniform_real_distribution<float>(-100, 100)(random);  // where most of life happens
    if (k % 4 == 3) x[k] = std::uniform_real_distribution<float>(-1.5, 1.5)(random);
  }
  const float special[] = {0.0f,    -0.0f,   1.0f,     -1.0f,    INFINITY, -INFINITY, NAN,
                           1e-45f,  -1e-45f, 1e-38f,   88.7228f, 88.73f,   -87.4f,    -103.9f,
                           -104.1f, 3.4e38f, -3.4e38f, 0.625f,   0.92f,    4.0f,      -0.99999994f,
                           0.5f,    -0.5f,   0.50001f, 89.4f,    89.42f,   -89.4f,    1.00001f};
  std::copy(std::begin(special), std::end(special), x.begin() + 1000);
  std::copy(std::begin(special), std::end(special), x.end() - std::size(special));

  std::string text = "loop {\n  in x: f32[s0]\n  out y: f32[s0]\n";
  for (const Function& f : functions)
    text += std::string("  kernel f_") + f.name +
            "() {\n    phase j < s0, vector 16, unroll 2 {\n      store y[j] = " + f.name + "(x[j])\n    }\n  }\n";
  const toolchain::Library library = compiled(text + "}\n");
  for (const Function& f : functions) {
    call(library, f.name, {&x, &y});
    double worst = 0;
    float at = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      if (std::fabs(x[k]) > f.limit) continue;
      const double off = ulps_between(y[k], f.exact(static_cast<double>(x[k])));
      if (off > worst) {
        worst = off;
        at = x[k];
      }
      if (x[k] == 0 && f.exact(0) == 0) {
        EXPECT_EQ(std::signbit(y[k]), std::signbit(x[k])) << f.name;
      }
    }
    EXPECT_LE(worst, f.ulps) << f.name << " at " << at;
    RecordProperty(f.name, std::to_string(worst));
    std::printf("  %-6s %.2f ulp\n", f.name, worst);
  }
}

struct FunctionOfTwo {
  const char* name;
  double (*exact)(double, double);
  double ulps;
};

TEST(Math, OfTwoNumbersIsAsAccurateAsPromised) {
  const FunctionOfTwo functions[] = {
      {"pow", [](double x, double y) { return std::pow(x, y); }, 0.6},
      {"atan2", [](double x, double y) { return std::atan2(x, y); }, 3},
      {"fmod", [](double x, double y) { return std::fmod(x, y); }, 0},
  };
  const float special[] = {0.0f,        -0.0f,        1.0f,        -1.0f,      0.5f,        -0.5f,     2.0f,
                           -2.0f,       3.0f,         -3.0f,       0.25f,      INFINITY,    -INFINITY, NAN,
                           1e-45f,      -1e-45f,      1e-38f,      -1e-38f,    1e38f,       -1e38f,    16777215.0f,
                           16777216.0f, -16777215.0f, 0.99999994f, 1.0000001f, -1.0000001f, 150.0f};
  std::vector<float> x, y;
  for (const float a : special)
    for (const float b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  std::mt19937 random(11);
  std::uniform_real_distribution<float> number(-20, 20), size(0, 4);
  for (int k = 0; k < 400'001; ++k) {
    const bool any = k % 4 == 0;  // any bits, numbers of life, or whole exponents
    x.push_back(any          ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                : k % 4 == 1 ? number(random)
                             : size(random));
    y.push_back(any ? std::bit_cast<float>(static_cast<uint32_t>(random())) : number(random));
    if (k % 3 == 0) y.back() = std::floor(y.back());
  }
  std::string text = "loop {\n  in x: f32[s0]\n  in y: f32[s0]\n  out z: f32[s0]\n";
  for (const FunctionOfTwo& f : functions)
    text += std::string("  kernel f_") + f.name + "() {\n    phase j < s0, vector 16 {\n      store z[j] = " + f.name +
            "(x[j], y[j])\n    }\n  }\n";
  const toolchain::Library library = compiled(text + "}\n");
  std::vector<float> z(x.size());
  for (const FunctionOfTwo& f : functions) {
    call(library, f.name, {&x, &y, &z});
    double worst = 0;
    size_t at = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      const double exact = f.exact(static_cast<double>(x[k]), static_cast<double>(y[k]));
      const double off = ulps_between(z[k], exact);
      if (off > worst) {
        worst = off;
        at = k;
      }
      if (!std::isnan(exact)) {
        EXPECT_EQ(std::signbit(z[k]), std::signbit(exact)) << f.name << " of " << x[k] << ", " << y[k];
      }
    }
    EXPECT_LE(worst, f.ulps) << f.name << " of " << x[at] << ", " << y[at] << ": " << z[at];
    std::printf("  %-6s %.2f ulp\n", f.name, worst);
  }
}

}  // namespace
}  // namespace magneto::codegen
