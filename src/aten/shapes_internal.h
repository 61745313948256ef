// aten/shapes_internal.h: the types of an operator's results without its data, where ops/ has no rule.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "aten/operators_internal.h"
#include "ops/op.h"

namespace magneto::aten {

using Results = std::optional<std::vector<ops::Result>>;

/// By torch's own C++ kernels. Nothing: there is none, or it refuses the call (which eager will refuse, too, in its own
/// words). Never runs Python. The trace must be internal.
Results results_by_kernel(const Operator& op, c10::ArrayRef<c10::IValue> arguments);

/// Whether somebody has told in Python what a foreign operator returns (torch.library.register_fake), and that does not
/// depend on data. What it says is not taken: strides are seldom right. The trace must be internal.
bool is_told(const Operator& op, c10::ArrayRef<c10::IValue> arguments);

/// By running the operator itself on zeros of the same layouts (matrices: the identity). For a graph that is recorded
/// without data, where nobody else knows; never for operators that write, draw, or look at values to refuse some. The
/// trace must be internal.
Results results_by_trial(const Operator& op, c10::ArrayRef<c10::IValue> arguments);

/// Of a view: runs torch's kernel, which makes a tensor over the same storage and reads nothing. For operators that
/// change the tensor object itself (t_, unsqueeze_) this is the change. The trace must be internal.
Results results_by_view(const Operator& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace magneto::aten
