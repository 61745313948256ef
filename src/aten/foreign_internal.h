// aten/foreign_internal.h: operators of other libraries whose gradient is not torch's own.
//
// The kernel of such an operator for autograd is code of its library: torch::autograd::Function in C++, the Python code
// around torch.library.register_autograd, a function given to Library.impl. It runs above us, and what we see is what
// it does below: the operator once more, with grad mode off.
//
//   y = roi_align(x, boxes)    the kernel for autograd: grad mode off, roi_align(x, boxes) below autograd, a node
//
// So we are called once more before it, for each operator that is not aten's, and look at what was recorded when it has
// returned. Was it the operator itself, with the arguments and results of the caller, then the call is in the graph
// with the grad mode of the caller: whoever repeats it above autograd gets its gradient, too. Was it something else
// that a graph of operators tells (a composite), that stands in the graph. Anything else ends the segment.
#pragma once
#include "aten/trace.h"

namespace magneto::aten {

/// In thread-local state while a trace is entered. Above autograd, autocast and the transforms of torch.func.
inline constexpr c10::DispatchKey kForeignKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Sees to it that all operators of other libraries that exist by now come to us. Cheap where there is no new one.
void meet_foreign_operators();

}  // namespace magneto::aten
