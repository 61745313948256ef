// tests/codegen/device.h: a GPU, if there is one, through the driver's C functions.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "codegen/abi.h"
#include "memory.h"
#include "toolchain/library.h"

namespace magneto::codegen {

class Device {
 public:
  static std::unique_ptr<Device> open() {
    try {
      auto device = std::unique_ptr<Device>(new Device());
      return device->start() ? std::move(device) : nullptr;
    } catch (const base::Fault&) {
      return nullptr;
    }
  }

  void load(const std::string& cubin) { check(load_data_(&module_, cubin.data()), "cuModuleLoadData"); }

  /// Runs the kernels of a program on copies of its memory and copies the outputs back. False: a fault.
  bool run(const loop::Program& program, const std::vector<int64_t>& symbols, loop::Memory& memory,
           const std::function<std::string(const loop::Kernel&)>& name) {
    std::vector<uint64_t> on_device(program.buffers() + 1);
    const std::vector<void*> pointers = memory.pointers();
    const auto bytes = [&](size_t b) {
      const loop::BufferId id(b);
      return memory.count(id) * types::item_size(program.buffer(id).type.dtype) + 8;
    };
    for (size_t b = 0; b < program.buffers(); ++b) {
      if (!pointers[b]) continue;
      check(allocate_(&on_device[b], bytes(b)), "cuMemAlloc");
      check(to_device_(on_device[b], pointers[b], bytes(b)), "cuMemcpyHtoD");
    }
    int32_t fault = 0;
    check(allocate_(&on_device.back(), sizeof fault), "cuMemAlloc");
    check(to_device_(on_device.back(), &fault, sizeof fault), "cuMemcpyHtoD");
    for (const loop::Kernel& kernel : program.kernels) {
      void* function = nullptr;
      check(get_function_(&function, module_, name(kernel).c_str()), "cuModuleGetFunction");
      std::vector<uint64_t> values;
      for (const loop::BufferId id : arguments_of(program, kernel)) values.push_back(on_device[id.index()]);
      for (const uint32_t symbol : symbols_of(program, kernel))
        values.push_back(static_cast<uint64_t>(symbols[symbol]));
      values.push_back(on_device.back());
      std::vector<void*> arguments;
      for (uint64_t& value : values) arguments.push_back(&value);
      const auto points = static_cast<unsigned>(points_of(program, kernel).evaluate(symbols));
      const auto shared = static_cast<unsigned>(scratch_bytes(program, kernel).evaluate(symbols));
      if (points == 0) continue;
      check(launch_(function, points, 1, 1, static_cast<unsigned>(kernel.threads), 1, 1, shared, nullptr,
                    arguments.data(), nullptr),
            "cuLaunchKernel");
    }
    check(synchronize_(), "cuCtxSynchronize");
    check(to_host_(&fault, on_device.back(), sizeof fault), "cuMemcpyDtoH");
    for (size_t b = 0; b < program.buffers(); ++b)
      if (pointers[b]) check(to_host_(pointers[b], on_device[b], bytes(b)), "cuMemcpyDtoH");
    for (const uint64_t pointer : on_device)
      if (pointer) free_(pointer);
    return fault == 0;
  }

 private:
  Device() : library_("libcuda.so.1") {
    library_.get(init_, "cuInit");
    library_.get(get_device_, "cuDeviceGet");
    library_.get(retain_, "cuDevicePrimaryCtxRetain");
    library_.get(set_current_, "cuCtxSetCurrent");
    library_.get(load_data_, "cuModuleLoadData");
    library_.get(get_function_, "cuModuleGetFunction");
    library_.get(allocate_, "cuMemAlloc_v2");
    library_.get(free_, "cuMemFree_v2");
    library_.get(to_device_, "cuMemcpyHtoD_v2");
    library_.get(to_host_, "cuMemcpyDtoH_v2");
    library_.get(launch_, "cuLaunchKernel");
    library_.get(synchronize_, "cuCtxSynchronize");
  }

  bool start() {
    int device = 0;
    void* context = nullptr;
    return init_(0) == 0 && get_device_(&device, 0) == 0 && retain_(&context, device) == 0 &&
           set_current_(context) == 0;
  }

  static void check(int status, const char* what) { base::check(status == 0, what, " gave ", status); }

  toolchain::Library library_;
  int (*init_)(unsigned) = nullptr;
  int (*get_device_)(int*, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*load_data_)(void**, const void*) = nullptr;
  int (*get_function_)(void**, void*, const char*) = nullptr;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*to_device_)(uint64_t, const void*, size_t) = nullptr;
  int (*to_host_)(void*, uint64_t, size_t) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
  int (*synchronize_)() = nullptr;
  void* module_ = nullptr;
};

}  // namespace magneto::codegen
