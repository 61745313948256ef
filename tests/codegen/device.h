// tests/codegen/device.h: memory of a GPU, and kernels of a program run on it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "memory.h"
#include "runtime/cuda.h"
#include "runtime/launch.h"

namespace magneto::codegen {

/// What the tests need of the driver besides kernels.
class Device {
 public:
  /// Null when there is no GPU.
  static const Device* open() {
    static const std::unique_ptr<Device> one(runtime::cuda() ? new Device(*runtime::cuda()) : nullptr);
    return one.get();
  }
  const runtime::Cuda& cuda() const { return cuda_; }

  void* allocate(size_t bytes) const {
    uint64_t at = 0;
    cuda_.check(allocate_(&at, bytes + 16), "cuMemAlloc");
    return reinterpret_cast<void*>(at);
  }
  void release(void* at) const { free_(reinterpret_cast<uint64_t>(at)); }
  void to_device(void* to, const void* from, size_t bytes) const {
    if (bytes) cuda_.check(to_device_(reinterpret_cast<uint64_t>(to), from, bytes), "cuMemcpyHtoD");
  }
  void to_host(void* to, const void* from, size_t bytes) const {
    if (bytes) cuda_.check(to_host_(to, reinterpret_cast<uint64_t>(from), bytes), "cuMemcpyDtoH");
  }
  void wait() const { cuda_.check(synchronize_(), "cuCtxSynchronize"); }

 private:
  explicit Device(const runtime::Cuda& cuda) : cuda_(cuda) {
    cuda.enter();
    cuda.get(allocate_, "cuMemAlloc_v2");
    cuda.get(free_, "cuMemFree_v2");
    cuda.get(to_device_, "cuMemcpyHtoD_v2");
    cuda.get(to_host_, "cuMemcpyDtoH_v2");
    cuda.get(synchronize_, "cuCtxSynchronize");
  }

  const runtime::Cuda& cuda_;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*to_device_)(uint64_t, const void*, size_t) = nullptr;
  int (*to_host_)(void*, uint64_t, size_t) = nullptr;
  int (*synchronize_)() = nullptr;
};

/// The memory of a program, copied to the GPU.
class OnDevice {
 public:
  /// Every buffer begins `shift` times 16 bytes behind an aligned address: no more is promised to a kernel.
  OnDevice(const Device& device, loop::Memory& memory, size_t shift = 0) : device_(device), memory_(memory) {
    const std::vector<void*> pointers = memory.pointers();
    for (size_t b = 0; b < pointers.size(); ++b) {
      blocks_.push_back(pointers[b] ? device.allocate(bytes(b) + 16 * shift) : nullptr);
      at_.push_back(pointers[b] ? static_cast<char*>(blocks_[b]) + shift * 16 : nullptr);
      if (pointers[b]) device.to_device(at_[b], pointers[b], bytes(b));
    }
  }
  ~OnDevice() {
    for (void* block : blocks_)
      if (block) device_.release(block);
  }
  OnDevice(const OnDevice&) = delete;

  void* at(loop::BufferId id) const { return at_[id.index()]; }
  void* const* place() const { return at_.data(); }

  /// Waits, and brings everything back.
  void fetch() {
    device_.wait();
    const std::vector<void*> pointers = memory_.pointers();
    for (size_t b = 0; b < pointers.size(); ++b)
      if (pointers[b]) device_.to_host(pointers[b], at_[b], bytes(b));
  }

 private:
  size_t bytes(size_t b) const {
    const loop::BufferId id(b);
    return memory_.count(id) * types::item_size(memory_.program().buffer(id).type.dtype);
  }

  const Device& device_;
  loop::Memory& memory_;
  std::vector<void*> blocks_, at_;
};

/// Runs the kernels of a program one after the other. The memory must have views where they are views of one another.
inline void run(const Device& device, const loop::Program& program, const std::vector<int64_t>& symbols,
                void* const* place, const std::function<runtime::CudaModule::Function*(const loop::Kernel&)>& find) {
  for (const loop::Kernel& kernel : program.kernels) {
    const Grid grid = grid_of(program, kernel);
    std::vector<void*> arguments;
    for (const loop::BufferId id : arguments_of(program, kernel))
      arguments.push_back(const_cast<void**>(&place[id.index()]));
    for (const uint32_t symbol : symbols_of(program, kernel))
      arguments.push_back(const_cast<int64_t*>(&symbols[symbol]));
    const int64_t shared = grid.shared.evaluate(symbols);
    auto* function = find(kernel);
    if (shared > 48 << 10) device.cuda().allow_shared(function, shared);
    device.cuda().launch(function, grid.blocks.evaluate(symbols), grid.threads, shared, nullptr, arguments.data());
  }
}

}  // namespace magneto::codegen
