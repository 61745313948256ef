// Faults of toolchains, injected: compilers that are scripts, a GPU's driver and NVRTC that are stand-ins.
#include "driver/code.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "../codegen/site_packages.h"
#include "base/check.h"
#include "base/text.h"
#include "loop/text.h"
#include "runtime/cuda.h"
#include "runtime/run.h"
#include "toolchain/compiler.h"
#include "toolchain/llvm.h"
#include "toolchain/nvrtc.h"

namespace magneto::driver {
namespace {

/// A folder that is gone after the test.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "magneto-test-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string complaint_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "";
}

void build(const std::string& path, const std::string& source, const std::string& flags = "") {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path + ".c") << source;
  ASSERT_EQ(std::system(("g++ -x c++ -shared -fPIC " + flags + " -o " + path + " " + path + ".c").c_str()), 0);
}

const char* const kProgram = R"(loop {
  in x: f32[64]
  out y: f32[64]
  kernel k(i < 64) {
    store y[i] = x[i] + 1.0
  }
}
)";

// It has memory for code when `refused` is 0, and counts down.
const char* const kDriver = R"(
extern "C" {
int refused = 0;
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int) { *c = &refused; return 0; }
int cuCtxGetCurrent(void** c) { *c = &refused; return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxGetDevice(int* d) { *d = 0; return 0; }
int cuDeviceGetAttribute(int* v, int, int) { *v = 9; return 0; }
int cuFuncGetAttribute(int* v, int, void*) { *v = 0; return 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuLaunchKernel() { return refused ? 2 : 0; }
int cuModuleLoadData(void** m, const void*) { *m = &refused; return refused ? (--refused, 2) : 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** f, void*, const char*) { *f = &refused; return 0; }
int cuGetErrorString(int, const char** s) { *s = "out of memory"; return 0; }
})";

const char* const kNvrtc = R"(
#include <cstddef>
extern "C" {
int nvrtcCreateProgram(void** p, const char*, const char*, int, const char* const*, const char* const*) { *p = p; return 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcGetProgramLogSize(void*, size_t* n) { *n = 0; return 0; }
int nvrtcGetProgramLog(void*, char*) { return 0; }
int nvrtcGetCUBINSize(void*, size_t* n) { *n = 1; return 0; }
int nvrtcGetCUBIN(void*, char* c) { *c = 'x'; return 0; }
})";

TEST(Code, AGpuWithoutNvrtcOrWithoutMemory) {
  const Folder folder;
  build(folder / "libcuda.so.1", kDriver, "-Wl,-soname,libcuda.so.1");
  void* const driver = dlopen((folder / "libcuda.so.1").c_str(), RTLD_NOW);  // whoever asks for that name gets this one
  ASSERT_NE(driver, nullptr);
  int& refused = *static_cast<int*>(dlsym(driver, "refused"));

  const loop::Program program = loop::parse(kProgram);
  const auto units = codegen::units_of(program);
  Toolchains toolchains;
  toolchains.site_packages = {folder.path()};
  int freed = 0;
  const auto make = [&] { return make_cuda_code(units, toolchains, [&] { ++freed; }); };

  const std::string nvrtc = folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
  if (toolchain::find_nvrtc({}).empty()) {
    EXPECT_EQ(complaint_of(make), "NVRTC is not installed");
  }
  std::filesystem::create_directories(std::filesystem::path(nvrtc).parent_path());
  std::ofstream(nvrtc) << "garbage";
  EXPECT_NE(complaint_of(make).find("toolchain: "), std::string::npos);
  build(nvrtc, kNvrtc);

  refused = 1;  // torch's allocator has it, and gives it back
  const auto code = make();
  EXPECT_NE(code->find("k"), nullptr);
  EXPECT_EQ(freed, 1);
  refused = 2;
  EXPECT_THROW(make(), runtime::NoMemory);
  EXPECT_EQ(freed, 2);
  refused = 1;
  EXPECT_THROW(
      runtime::cuda()->launch(static_cast<runtime::CudaModule::Function*>(code->find("k")), 1, 32, 0, nullptr, nullptr),
      runtime::NoMemory);
}

TEST(Code, WhoeverAsksCanEndIt) {
  const loop::Program program = loop::parse(kProgram);
  const std::vector<codegen::Unit> units = codegen::units_of(program);
  Toolchains toolchains;
  toolchains.order = {"c++"};
  const auto stop = [] { throw base::Interrupted(); };
  EXPECT_THROW(make_code(units, codegen::host_machine(), toolchains, stop), base::Interrupted);
  EXPECT_EQ(make_code(units, codegen::host_machine(), toolchains)->by, "c++");
}

TEST(Code, ThreadsCompileAtOnce) {
  Toolchains toolchains;
  toolchains.order = {"llvm"};
  toolchains.site_packages = codegen::site_packages();
  if (toolchain::find_llvmlite(toolchains.site_packages).empty()) GTEST_SKIP() << "llvmlite is not installed";
  std::string text = "loop {\n in x: f32[64]\n";
  constexpr int kKernels = 40;
  for (int k = 0; k < kKernels; ++k) text += base::concat("out y", k, ": f32[64]\n");
  for (int k = 0; k < kKernels; ++k)
    text += base::concat("kernel k", k, "(i < 64) {\n store y", k, "[i] = x[i] + ", k, ".0\n }\n");
  const loop::Program program = loop::parse(text + "}\n");
  const auto work = [&](int number) {
    const auto code = make_code(codegen::units_of(program), codegen::host_machine(), toolchains);
    for (int k = 0; k < kKernels; ++k) {
      float x[64] = {static_cast<float>(number)}, y[64] = {};
      void* const buffers[] = {x, y};
      int32_t fault = 0;
      const int64_t no_symbols = 0;
      reinterpret_cast<runtime::Kernel*>(code->find(base::concat("k", k)))(buffers, &no_symbols, 0, 64, nullptr,
                                                                           &fault);
      EXPECT_EQ(y[0], static_cast<float>(number + k));
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
}

TEST(Compiler, OneThatHangsIsEndedInTime) {
  const Folder folder;
  std::ofstream(folder / "slow") << "#!/bin/sh\nsleep 1000\n";
  std::filesystem::permissions(folder / "slow", std::filesystem::perms::owner_all);
  toolchain::Patience patience;
  patience.time = std::chrono::milliseconds(200);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(toolchain::compile_cpp("", {}, folder / "slow", patience), toolchain::TooSlow);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(complaint_of([&] { toolchain::compile_cpp("", {}, folder / "none"); }).find("cannot start"),
            std::string::npos);
}

TEST(Library, OneThatWasCutOffIsRefused) {
  const Folder folder;
  const std::string path = folder / "whole.so";
  build(path, "int numbers[100000] = {1}; extern \"C\" int one() { return numbers[0]; }");
  EXPECT_NE(toolchain::Library(path).find("one"), nullptr);
  const auto size = std::filesystem::file_size(path);
  for (const size_t left : {size_t{10}, size_t{100}, size_t(size / 2), size_t(size / 100)}) {
    std::filesystem::resize_file(path, left);
    EXPECT_THROW(toolchain::Library{path}, base::Fault) << left;
  }
}

}  // namespace
}  // namespace magneto::driver
