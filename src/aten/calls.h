// aten/calls.h: the extern calls of a plan: operators of torch on whole tensors.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "aten/executable.h"

namespace magneto::aten {

/// One operator, prepared: all but tensors and sizes is converted once.
class Call {
 public:
  /// `arguments` as lower writes them: the graph's text with $k for the k-th tensor that is read, and its type after
  /// it where a view of that tensor is meant. Throws base::Fault when torch has no such operator.
  Call(const std::string& op, std::string_view arguments);
  ~Call();
  Call(Call&&) noexcept;

  /// Below autograd. Appends the results that the graph knows: those of lists one after the other, no undefined ones.
  /// Throws what the operator throws.
  void run(std::span<const at::Tensor> reads, std::span<const int64_t> symbols, Tensors& results) const;

  bool random() const;  ///< draws from a generator

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace magneto::aten
