// capture/evaluator.h: the words of the evaluator, in which all of capture is written.
#pragma once
#include "evaluator/activation.h"
#include "evaluator/hook.h"
#include "evaluator/ref.h"
#include "evaluator/semantics.h"

namespace magneto::capture {
using namespace evaluator;
}  // namespace magneto::capture
