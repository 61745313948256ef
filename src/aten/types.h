// aten/types.h: torch's words for dtypes, devices and formats of the graph language.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "types/device.h"
#include "types/dtype.h"

namespace magneto::aten {

c10::ScalarType to_scalar_type(types::Dtype dtype);
c10::Device to_torch(types::Device device);
c10::MemoryFormat to_torch(types::MemoryFormat format);

}  // namespace magneto::aten
