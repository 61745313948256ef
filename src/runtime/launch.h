// runtime/launch.h: starts the kernels of a plan on a GPU.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "runtime/cuda.h"
#include "runtime/run.h"

namespace magneto::runtime {

/// For Runner(plan, make): `find` gives the function of each kernel by its name; its module must outlive the runner.
/// Each step is one cuLaunchKernel on the stream of the environment, and next to nothing besides: arguments are found
/// where they lie. Throws base::Fault when a kernel wants more shared memory than the device has. `enter` must have
/// been called in this thread and in each that runs the plan.
std::unique_ptr<Launcher> cuda_launcher(const plan::Plan& plan, const Cuda& cuda,
                                        const std::function<CudaModule::Function*(const std::string&)>& find);

}  // namespace magneto::runtime
