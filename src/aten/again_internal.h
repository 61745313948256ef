// aten/again_internal.h: a program once more, above autograd, with what is still there of a call.
#pragma once
#include "aten/backward_node_internal.h"

namespace magneto::aten {

TrainingPlan::Again make_again(const TrainingPlan& plan, const TrainingPlan::There& there);

/// The stop that this one is a view of, where that is still what it was: the view can be made again. Joint::kNone:
/// none.
size_t root_that_is_there(const TrainingPlan& plan, const TrainingPlan::There& there, size_t stop);

}  // namespace magneto::aten
