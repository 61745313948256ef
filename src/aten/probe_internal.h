// aten/probe_internal.h: the types of an operator's results where sizes are symbols and ops/ has no rule.
#pragma once
#include <span>

#include "aten/shapes_internal.h"
#include "aten/symbols.h"
#include "graph/graph.h"

namespace magneto::aten {

/// torch's own kernel is asked for the sizes of now and for others that the conditions allow, and an expression is
/// found that has all its answers (types/fit.h). That is no proof: who runs such a call looks at what comes back.
/// Nothing: an operator that writes, or is not torch's own; no kernel that can be asked; no such expression. The trace
/// must be internal.
Results results_by_probing(const Operator& op, std::span<const graph::Arg> args, const graph::Graph& graph,
                           Symbols& symbols);

}  // namespace magneto::aten
