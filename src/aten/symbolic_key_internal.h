// aten/symbolic_key_internal.h: the key under which a symbolic trace sees operators before torch takes them apart.
#pragma once
#include <c10/core/DispatchKey.h>

namespace magneto::aten {

/// In thread-local state while a symbolic trace is entered. torch itself has no use for it, and it stands above
/// autograd.
inline constexpr c10::DispatchKey kSymbolicKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace magneto::aten
