#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "equations.h"
#include "judge.h"
#include "loop/bounds.h"
#include "loop/verify.h"

namespace magneto::schedule {
namespace {

const std::vector<std::vector<int64_t>> kSymbols = {{5, 37}, {1, 1}, {0, 3}, {3, 0}, {2, 16}, {17, 5}};
const Shape kNarrow{.vector = 4, .unroll = 2, .chains = 4, .columns = 2, .block = 8, .few_points = 3, .part_rows = 3};

/// A GPU with few threads.
Shape narrow_gpu() {
  Shape shape = gpu_shape();
  shape.threads = shape.flat_threads = 32;
  shape.block = 8;
  shape.few_points = 3;
  return shape;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// "" when every place of memory is proved to lie inside.
std::string outside(const loop::Program& program) {
  std::string text;
  for (const loop::Unproved& place : loop::unproved_places(program)) text += place.what + ", in " + place.where + "\n";
  return text;
}

void judge(const std::string& name, const loop::Program& program,
           const std::vector<std::vector<int64_t>>& all_symbols) {
  std::vector<std::set<std::string, std::less<>>> skips = {{}, {"sink", "inline", "split", "fuse"}};
  for (const std::string& pass : driver::optional_passes()) skips.push_back({pass});
  ASSERT_EQ(outside(program), "") << name << "\n" << loop::print(program);
  for (const Shape& shape : {Shape{}, kNarrow, narrow_gpu()})
    for (const auto& skip : skips) {
      const loop::Program given = scheduled(program, shape, skip);
      const std::string text = loop::print(given);
      ASSERT_EQ(outside(given), "") << name << "\n" << text;
      ASSERT_EQ(loop::print(loop::parse(text)), text);
      for (const auto& symbols : all_symbols) {
        const std::string found = compare(program, given, symbols);
        ASSERT_EQ(found, "") << name << " with s0 = " << symbols[0] << ", s1 = " << symbols[1] << ", without "
                             << (skip.empty() ? "nothing" : *skip.begin()) << "\n"
                             << loop::print(program) << text;
      }
    }
}

class Files : public testing::TestWithParam<std::string> {};

TEST_P(Files, ComputeWhatTheirEquationsSay) {
  const std::string text = read_file(std::string(MAGNETO_TEST_DIR "/programs/") + GetParam() + ".loop");
  const loop::Program program = loop::parse(text);
  ASSERT_TRUE(loop::verify(program).empty()) << loop::verify(program).front();
  judge(GetParam(), program, kSymbols);
  const std::pair<std::string, Shape> counted[] = {{"# kernels: ", Shape{}}, {"# on a gpu: ", gpu_shape()}};
  for (const auto& [said, shape] : counted) {
    const size_t at = text.find(said);
    if (at == std::string::npos) continue;
    const loop::Program given = scheduled(program, shape);
    EXPECT_EQ(given.kernels.size(), static_cast<size_t>(std::stoi(text.substr(at + said.size()))))
        << loop::print(given);
  }
}

TEST(Schedule, FilesThatNameTheirLoopsHaveThem) {
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/programs")) {
    const std::string text = read_file(entry.path());
    const size_t at = text.find("# walks: ");
    if (at == std::string::npos) continue;
    const std::string wanted = text.substr(at + 9, text.find('\n', at) - at - 9);
    const std::string given = loop::print(scheduled(loop::parse(text)));
    EXPECT_NE(given.find(wanted), std::string::npos) << wanted << "\n" << given;
  }
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(MAGNETO_TEST_DIR "/programs"))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Schedule, Files, testing::ValuesIn(files()), [](const auto& info) { return info.param; });

TEST(Schedule, RandomEquationsComputeTheSame) {
  int in_blocks = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const loop::Program program = random_equations(seed);
    const auto broken = loop::verify(program);
    ASSERT_TRUE(broken.empty()) << broken.front() << loop::print(program);
    judge(base::concat("random ", seed), program, {{4, 6}, {1, 9}, {0, 2}, {3, 0}});
    if (HasFatalFailure()) return;
    in_blocks += loop::print(scheduled(program, kNarrow)).find("each ") != std::string::npos;
  }
  EXPECT_GT(in_blocks, 3);  // every kind of kernel is judged
}

TEST(Schedule, APlaceIsCheckedWhoeverReadsIt) {
  for (const std::string rest : {
           "temp t: f32[1, 4]\n out y: f32[8, 4]\n t[i, j] = x[i, j] * 2.0\n y[i, j] = t[checked(n[i], 1), j]",
           "temp t: f32[1]\n out y: f32[8]\n t[i] = x[0, 1] * 2.0\n y[i] = t[checked(n[i], 1)]",
           "out t: f32[1, 4]\n out y: f32[4]\n t[i, j] = x[i, j] * 2.0\n y[j] = t[checked(n[j], 1), j]",
           "temp t: f32[5]\n out y: f32[8]\n t[i] = 3.0\n y[i] = t[checked(n[i], 5)] + 1.0",
           "temp t: i64[8]\n out y: i64[8]\n t[i] = n[checked(n[i], 8)]\n y[i] = t[i] * 0",
           "temp t: i64[8]\n out y: i64[8]\n t[i] = n[checked(n[i], 8)]\n y[i] = t[i] % 1",
           "temp t: i64[8, 1]\n out y: i64[8]\n t[i, j] = n[checked(n[i], 8)]\n y[i] = argmax(j < 1, t[i, j])",
       }) {
    const loop::Program program = loop::parse("loop {\n in x: f32[1, 4]\n in n: i64[8]\n " + rest + "\n}");
    ASSERT_TRUE(loop::verify(program).empty()) << loop::verify(program).front();
    judge(rest, program, {{1, 1}});
    const std::string text = loop::print(scheduled(program));
    EXPECT_NE(text.find("checked("), std::string::npos) << rest << "\n" << text;
  }
}

TEST(Schedule, AChainOfFiveThousandIsLinear) {
  const auto seconds = [](size_t count) {
    loop::Program program = loop::parse("loop {\n in x: f32[s0, 64]\n out y: f32[s0, 64]\n}");
    loop::BufferId last(0);
    const auto i = program.axis("i"), j = program.axis("j");
    const types::TensorType type = program.buffer(last).type;
    for (size_t n = 0; n < count; ++n) {
      loop::Equation e;
      e.target = n + 1 == count ? loop::BufferId(1) : program.add_buffer(base::concat("t", n), type, loop::Role::kTemp);
      e.axes = {i, j};
      const auto x = program.load(last, {program.axis_value(i), program.axis_value(j)});
      e.value = program.binary(loop::Op::kMul, x, n % 3 ? x : program.unary(loop::Op::kTanh, x));
      last = e.target;
      program.equations.push_back(std::move(e));
    }
    driver::Passes passes;
    driver::schedule(program, passes, Shape{});
    double sum = 0;
    for (const driver::PassTime& pass : passes.times()) {
      sum += pass.seconds;
      if (count == 5000) printf("%s %.1f ms\n", pass.name.c_str(), 1e3 * pass.seconds);
    }
    EXPECT_LT(program.kernels.size(), count / 20);
    return sum;
  };
  const double small = seconds(1250), large = seconds(5000);
  EXPECT_LT(large, 4 * 3 * small) << small << " s for a quarter of it";
  EXPECT_LT(large, 5.0);
}

}  // namespace
}  // namespace magneto::schedule
