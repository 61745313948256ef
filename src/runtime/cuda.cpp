#include "runtime/cuda.h"

#include <dlfcn.h>

#include "base/check.h"
#include "base/text.h"

namespace magneto::runtime {

namespace {

constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16, kSharedOfBlock = 97;  // attributes of a device
constexpr int kDynamicShared = 8, kStaticShared = 1;                                 // of a function
constexpr int kOutOfMemory = 2;                                                      // of the driver's results
constexpr int64_t kMostBlocks = 0x7fffffff;

struct Opened {
  std::unique_ptr<const Cuda> cuda;
  std::string why;
};
Opened& opened() {
  static auto* one = new Opened;  // outlives everything: modules may be unloaded late
  return *one;
}

}  // namespace

struct Cuda::Driver {
  void* library = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*get_current)(void**) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*function_attribute)(int*, int, void*) = nullptr;
  int (*set_function_attribute)(void*, int, int) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*unload)(void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*error_string)(int, const char**) = nullptr;
};

Cuda::Cuda() : driver_(std::make_unique<Driver>()) {
  driver_->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver_->library) {
    const char* why = dlerror();
    throw base::Fault(base::concat("cuda: no driver: ", why ? why : "libcuda.so.1 cannot be opened"));
  }
  int (*init)(unsigned);
  int (*count)(int*);
  get(init, "cuInit");
  get(count, "cuDeviceGetCount");
  get(driver_->retain, "cuDevicePrimaryCtxRetain");
  get(driver_->launch, "cuLaunchKernel");
  get(driver_->get_current, "cuCtxGetCurrent");
  get(driver_->set_current, "cuCtxSetCurrent");
  get(driver_->get_device, "cuCtxGetDevice");
  get(driver_->device_attribute, "cuDeviceGetAttribute");
  get(driver_->function_attribute, "cuFuncGetAttribute");
  get(driver_->set_function_attribute, "cuFuncSetAttribute");
  get(driver_->load, "cuModuleLoadData");
  get(driver_->unload, "cuModuleUnload");
  get(driver_->get_function, "cuModuleGetFunction");
  get(driver_->error_string, "cuGetErrorString");
  check(init(0), "cuInit");
  int devices = 0;
  check(count(&devices), "cuDeviceGetCount");
  base::check(devices > 0, "cuda: the driver has no GPU");
}

Cuda::~Cuda() = default;

const Cuda* cuda() {
  static const bool tried = [] {
    try {
      opened().cuda.reset(new Cuda);
    } catch (const base::Fault& fault) {
      opened().why = fault.what();
    }
    return true;
  }();
  return tried ? opened().cuda.get() : nullptr;
}

const std::string& why_no_cuda() {
  cuda();
  return opened().why;
}

void* Cuda::find(const char* name) const {
  void* found = dlsym(driver_->library, name);
  base::check(found != nullptr, "cuda: the driver has no ", name);
  return found;
}

void Cuda::refuse(int status, const char* what) const {
  const char* words = nullptr;
  if (!driver_->error_string || driver_->error_string(status, &words) != 0 || !words) words = "unknown error";
  const std::string text = base::concat("cuda: ", what, ": ", words, " (", status, ")");
  if (status == kOutOfMemory) throw NoMemory(text);
  throw base::Fault(text);
}

void Cuda::enter(int device) const {
  void* context = nullptr;
  check(driver_->get_current(&context), "cuCtxGetCurrent");
  if (context) return;
  check(driver_->retain(&context, device), "cuDevicePrimaryCtxRetain");  // and kept: modules live in it
  check(driver_->set_current(context), "cuCtxSetCurrent");
}

int Cuda::attribute(int which) const {
  enter();
  int device = 0, value = 0;
  check(driver_->get_device(&device), "cuCtxGetDevice");
  check(driver_->device_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

std::string Cuda::architecture() const { return base::concat("sm_", attribute(kMajor), attribute(kMinor)); }
int Cuda::multiprocessors() const { return attribute(kMultiprocessors); }
int Cuda::shared_bytes() const { return attribute(kSharedOfBlock); }

std::unique_ptr<CudaModule> Cuda::load(const std::string& cubin) const {
  void* module = nullptr;
  check(driver_->load(&module, cubin.data()), "cuModuleLoadData");
  return std::unique_ptr<CudaModule>(new CudaModule(*this, module));
}

CudaModule::~CudaModule() { cuda_.driver_->unload(module_); }  // at the end of the process the context may be gone

CudaModule::Function* CudaModule::get(const std::string& name) const {
  void* function = nullptr;
  cuda_.check(cuda_.driver_->get_function(&function, module_, name.c_str()), name.c_str());
  return static_cast<Function*>(function);
}

void Cuda::allow_shared(CudaModule::Function* function, int64_t bytes) const {
  int own = 0;
  check(driver_->function_attribute(&own, kStaticShared, function), "cuFuncGetAttribute");
  base::check(own + bytes <= shared_bytes(), "cuda: a block wants ", own + bytes,
              " bytes of shared memory and may have ", shared_bytes());
  check(driver_->set_function_attribute(function, kDynamicShared, static_cast<int>(bytes)), "cuFuncSetAttribute");
}

void Cuda::launch(CudaModule::Function* function, int64_t blocks, int threads, int64_t shared, void* stream,
                  void** arguments) const {
  if (blocks <= 0) return;
  base::check(blocks <= kMostBlocks, "cuda: ", blocks, " blocks are more than a grid has");
  check(driver_->launch(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1,
                        static_cast<unsigned>(shared), stream, arguments, nullptr),
        "cuLaunchKernel");
}

}  // namespace magneto::runtime
