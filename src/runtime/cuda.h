// runtime/cuda.h: GPUs through NVIDIA's driver, which is opened at run time. Nothing of CUDA is needed to build.
//
// Whoever owns the process's CUDA state (torch) has made the primary context of a device current; then that one is
// used. Where none is current, `enter` retains the primary one and makes it current, so that plain C++ programs work as
// well.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"

namespace magneto::runtime {

class Cuda;

/// The device has not enough memory, for code or for a launch.
class NoMemory : public base::Fault {
 public:
  using base::Fault::Fault;
};

/// The driver, opened at the first call; null when there is none or it has no GPU.
const Cuda* cuda();
/// Why there is none; "" when there is one.
const std::string& why_no_cuda();

/// Machine code on a GPU. Its functions live as long as this does.
class CudaModule {
 public:
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  struct Function;                               ///< the driver's
  Function* get(const std::string& name) const;  ///< throws base::Fault when there is none
  const Cuda& cuda() const { return cuda_; }

 private:
  friend class Cuda;
  CudaModule(const Cuda& cuda, void* module) : cuda_(cuda), module_(module) {}
  const Cuda& cuda_;
  void* module_;
};

class Cuda {
 public:
  ~Cuda();
  Cuda(const Cuda&) = delete;

  /// Sees to it that the calling thread has a current context: its own, or the primary one of `device`. The other
  /// functions need one.
  void enter(int device = 0) const;

  std::string architecture() const;  ///< of the current device: "sm_90"
  int multiprocessors() const;
  int shared_bytes() const;  ///< that one block may have at most

  std::unique_ptr<CudaModule> load(const std::string& cubin) const;

  /// Allows blocks of so many bytes of dynamic shared memory. Throws base::Fault when the device has less.
  void allow_shared(CudaModule::Function* function, int64_t bytes) const;
  /// Starts `blocks` blocks on a stream (null: the default one); `arguments` holds the address of each. The caller does
  /// not wait. Throws base::Fault when the driver refuses, also for what an earlier kernel did.
  void launch(CudaModule::Function* function, int64_t blocks, int threads, int64_t shared, void* stream,
              void** arguments) const;

  /// A function of the driver by its name; throws base::Fault when there is none.
  template <class Function>
  void get(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find(name));
  }
  /// Throws base::Fault (NoMemory where that is it) with the driver's words unless `status` is 0.
  void check(int status, const char* what) const {
    if (status != 0) [[unlikely]]
      refuse(status, what);
  }

 private:
  friend class CudaModule;
  friend const Cuda* cuda();
  struct Driver;
  Cuda();
  void* find(const char* name) const;
  [[noreturn]] void refuse(int status, const char* what) const;
  int attribute(int which) const;
  std::unique_ptr<Driver> driver_;
};

}  // namespace magneto::runtime
