// aten/kernels.h: a plan of kernels and extern calls on torch's tensors, below autograd.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "plan/plan.h"
#include "runtime/run.h"
#include "types/device.h"
#include "types/dtype.h"

namespace magneto::aten {

/// Makes a device the current one as long as it lives, and gives this thread its context.
class OnDevice {
 public:
  explicit OnDevice(types::Device device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;  ///< none for the CPU
};

/// torch.get_default_dtype().
types::Dtype default_dtype();

/// Gives memory that torch keeps for later back to the device: others want some, the driver's code among them.
void give_memory_back(types::Device device);

/// How the user is told something, in any thread, with or without the GIL. Must not throw.
void set_warner(void (*warn)(const std::string& what));
void warn(const std::string& what);

class Kernels : public Executable {
 public:
  struct Around {
    types::Device device;                  ///< of kernels
    std::vector<at::Tensor> constants;     ///< of the graph
    std::vector<int> bumps;                ///< of each input: how often its version is counted up; empty: never
    std::vector<int> output_bumps;         ///< of each output whose memory is new: the same
    std::vector<OutputView> output_views;  ///< of each output; empty: all that are a part are views
    std::vector<bool> leaves;              ///< inputs that need gradients; empty: none
    std::vector<bool> by_strides;          ///< inputs whose whole storage may be read, or written to
    /// Computes the same graph: it serves inputs that overlap where one is written to, calls that fail, so that errors
    /// are eager's, and calls for which there is no memory: it needs what eager needs, where we want it in one piece.
    std::shared_ptr<const Executable> fallback;
    std::shared_ptr<const void> code;  ///< what keeps the functions that are launched
    /// Inputs go with their last reader: a backward need not hold what the forward saved to its end. It cannot be
    /// repeated then, where it fails.
    bool lets_inputs_go = false;
  };
  Kernels(plan::Plan plan, plan::Signature signature, const runtime::MakeLauncher& launcher, Around around);
  ~Kernels() override;

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override;
  bool writes_inputs() const override;

 private:
  struct Body;
  /// `no_memory`: it failed for that reason.
  Failure attempt(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
                  bool& no_memory) const;
  std::unique_ptr<Body> body_;
};

}  // namespace magneto::aten
