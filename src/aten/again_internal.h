// aten/again_internal.h: a program once more, above autograd, with what is still there of a call.
#pragma once
#include "aten/backward_node_internal.h"

namespace magneto::aten {

TrainingPlan::Again make_again(const TrainingPlan& plan, const TrainingPlan::There& there);

}  // namespace magneto::aten
