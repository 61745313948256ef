#include "toolchain/nvrtc.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"

namespace magneto::toolchain {

namespace {
struct ProgramObject;
}  // namespace

Nvrtc::Nvrtc(const std::string& path) : library_(path, true) {}

std::string Nvrtc::compile(const std::string& text, const std::string& architecture) const {
  int (*create)(ProgramObject**, const char* source, const char* name, int headers, const char* const*,
                const char* const*);
  int (*compile_program)(ProgramObject*, int options, const char* const*);
  int (*destroy)(ProgramObject**);
  int (*log_size)(ProgramObject*, size_t*);
  int (*get_log)(ProgramObject*, char*);
  int (*cubin_size)(ProgramObject*, size_t*);
  int (*get_cubin)(ProgramObject*, char*);
  library_.get(create, "nvrtcCreateProgram");
  library_.get(compile_program, "nvrtcCompileProgram");
  library_.get(destroy, "nvrtcDestroyProgram");
  library_.get(log_size, "nvrtcGetProgramLogSize");
  library_.get(get_log, "nvrtcGetProgramLog");
  library_.get(cubin_size, "nvrtcGetCUBINSize");
  library_.get(get_cubin, "nvrtcGetCUBIN");
  ProgramObject* program = nullptr;
  base::check(create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr) == 0,
              "toolchain: NVRTC takes no program");
  const std::string target = "-arch=" + architecture;
  // no contraction: the kernel says where it wants an fma
  const char* const options[] = {target.c_str(), "-fmad=false", "-std=c++17", "-minimal"};
  const int status = compile_program(program, 4, options);
  std::string result;
  size_t size = 0;
  if (status == 0) {
    cubin_size(program, &size);
    result.resize(size);
    get_cubin(program, result.data());
  } else {
    log_size(program, &size);
    result.resize(size);
    get_log(program, result.data());
  }
  destroy(&program);
  if (status != 0) throw base::Fault("toolchain: NVRTC: " + result.substr(0, 4000));
  return result;
}

std::string find_nvrtc(const std::vector<std::string>& site_packages) {
  std::vector<std::string> folders;
  for (const std::string& folder : site_packages)
    for (const char* below : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"}) folders.push_back(folder + below);
  for (const char* system : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"}) folders.emplace_back(system);
  for (const std::string& folder : folders) {
    std::vector<std::string> found;  // in a fixed order, whatever the disk says
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("libnvrtc.so")) found.push_back(entry.path().string());
    }
    std::sort(found.begin(), found.end());
    if (!found.empty()) return found.front();
  }
  return "";
}

}  // namespace magneto::toolchain
