// autograd/verify_functional.h: what must hold of a functional graph, and of one and the graph it was made of.
#pragma once
#include <string>
#include <vector>

#include "autograd/functionalise.h"

namespace magneto::autograd {

/// What does not hold, one sentence each: what graph/verify.h asks of every graph, which may be a part of a program; no
/// operator writes its arguments; results have the sizes and dtypes that the table gives them, and views the strides
/// and offsets, too.
std::vector<std::string> verify_functional(const graph::Graph& graph, types::Dtype default_dtype = types::Dtype::kF32);

/// The same of what functionalise made of `recorded`, and: inputs, constants, conditions and outputs are those that
/// were recorded, an output's sizes, strides and dtype included; an input is stored to exactly where an operator wrote
/// to it or to a view of it; what an output is said to share its memory with is what it is a view of, and two outputs
/// share theirs where the recorded ones did; operators that draw random numbers, and those that nobody knows, are all
/// there, in order.
std::vector<std::string> verify_functional(const graph::Graph& recorded, const Functional& made,
                                           types::Dtype default_dtype = types::Dtype::kF32);

}  // namespace magneto::autograd
