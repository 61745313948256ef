// bindings/backend.h: backends of others. What was recorded becomes a torch.fx.GraphModule of torch.ops, the backend
// gets it with example inputs, and what it returns runs in the place of our kernels.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <vector>

#include "aten/program.h"

namespace magneto::bindings {

/// A graph whose sizes are all known. Throws pybind11::error_already_set.
pybind11::object fx_module(const graph::Graph& graph, const std::vector<at::Tensor>& constants);

/// capture::BackendCompiler. For other values of the symbols the backend is called again when they come.
std::shared_ptr<aten::Executable> compile_by_backend(PyObject* backend, const std::shared_ptr<aten::Program>& program,
                                                     std::span<const at::Tensor> examples,
                                                     std::span<const int64_t> symbols);

}  // namespace magneto::bindings
