// aten/executable.h: something that computes a graph on torch's tensors: operator by operator, by kernels, or by
// kernels and one autograd node.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <exception>
#include <span>

namespace magneto::aten {

using Tensors = c10::SmallVectorImpl<at::Tensor>;

/// What torch knows of an output: who writes to such a view while gradients are on may be refused.
enum class OutputView : uint8_t {
  kNone,      ///< it has no base
  kData,      ///< nor does it count its versions with its memory
  kPlain,     ///< a view
  kNoGrad,    ///< one that was made while gradients were off
  kOneOfMany  ///< one of several that an operator gives
};

class Executable {
 public:
  virtual ~Executable() = default;

  struct Failure {
    std::exception_ptr error;  ///< empty: all went well
    size_t node = 0;           ///< the node that failed, where it is known
    bool changed = false;      ///< an input was written to, or a random number drawn, before it failed
    bool missed = false;       ///< Reading: it was recorded for other numbers, or for no views
  };
  /// Inputs in the order of the graph; symbols[i] is the value of symbol i. Takes the inputs: each is let go after its
  /// last reader, so the caller holds another reference where it must live on. Appends the outputs in the order of the
  /// graph, undefined where the graph has none; none when it fails. Several threads may run it at a time.
  virtual Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const = 0;

  /// Some operator writes to memory that an input may share.
  virtual bool writes_inputs() const = 0;
};

}  // namespace magneto::aten
