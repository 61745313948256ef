// capture/references.h: what recordings own, for Python's garbage collector. A module that keeps its own compiled
// method is held by the guards of that method: a cycle that ends here.
#pragma once
#include <Python.h>

namespace magneto::capture {

struct FrameCache;

/// Visits each owned reference once, as tp_traverse asks for. The collector counts them: one too many frees an object
/// that is in use.
int visit_references(const FrameCache& cache, visitproc visit, void* arg);

}  // namespace magneto::capture
