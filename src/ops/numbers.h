// ops/numbers.h: which Python numbers a dtype takes.
#pragma once
#include "types/dtype.h"

namespace magneto::ops {

/// Whether torch converts this number to an element of that dtype for certain. It refuses one that is too large, and
/// which of two conversions a kernel makes is its own affair: at the edges this says no.
bool number_fits(double value, types::Dtype dtype);

}  // namespace magneto::ops
