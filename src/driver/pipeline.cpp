#include "driver/pipeline.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "aten/kernels.h"
#include "base/check.h"
#include "driver/compile.h"
#include "driver/notes.h"
#include "graph/text.h"
#include "loop/text.h"
#include "runtime/cuda.h"
#include "runtime/launch.h"

namespace magneto::driver {

namespace {

std::set<std::string, std::less<>> names_from(const char* variable) {
  const char* text = std::getenv(variable);
  return parse_names(text ? text : "");
}

/// The one device of all tensors.
types::Device device_of(const graph::Graph& graph) {
  types::Device device;
  bool known = false;
  for (const graph::Value& value : graph.values()) {
    base::check(!known || value.type.device == device, "tensors are on different devices");
    device = value.type.device;
    known = true;
  }
  return device;
}

}  // namespace

Pipeline& Pipeline::instance() {
  static Pipeline pipeline;
  return pipeline;
}

Pipeline::Pipeline() : skip(names_from("MAGNETO_SKIP_PASSES")), logs(names_from("MAGNETO_LOGS")) {
  const std::set<std::string, std::less<>> order = names_from("MAGNETO_TOOLCHAINS");
  if (!order.empty())
    std::erase_if(toolchains.order, [&](const std::string& name) { return order.find(name) == order.end(); });
}

std::shared_ptr<aten::Executable> Pipeline::build(const std::shared_ptr<aten::Program>& program,
                                                  std::span<const at::Tensor> examples, base::GraphNote& note) {
  const graph::Graph& graph = program->graph();
  const bool trains = std::any_of(examples.begin(), examples.end(), [](const auto& t) { return t.requires_grad(); }) &&
                      std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& n) { return n.grad; });
  try {
    if (!trains) return kernels(program, "", note);
    note.fallback = "training runs through torch's own autograd graph";
  } catch (const std::exception& reason) {
    note.fallback = reason.what();
  }
  return program;
}

std::shared_ptr<aten::Executable> Pipeline::kernels(const std::shared_ptr<aten::Program>& program,
                                                    const std::string& part, base::GraphNote& note) {
  const graph::Graph& graph = program->graph();
  const types::Device device = device_of(graph);
  const bool on_gpu = device.kind == types::Device::Kind::kCuda;
  const codegen::Machine machine = codegen::host_machine();
  Passes passes;
  passes.skip = skip;
  Request request;
  request.device = device.kind;
  if (on_gpu)
    request.shape = schedule::gpu_shape();
  else
    request.shape.vector = machine.vector_bytes() / 4;
  request.keeps_texts = !logs.empty() || note.keeps_texts;
  std::unique_ptr<Compilation> made = compile(graph, request, passes);
  std::shared_ptr<const Code> code;
  const aten::OnDevice here(device);
  if (!made->units.empty())
    passes.time("code", [&] {
      code = on_gpu ? make_cuda_code(made->units, toolchains) : make_code(made->units, machine, toolchains);
    });
  base::CodeNote& told = note.code.emplace_back(describe(*made, passes));
  told.part = part;
  if (code) told.by = code->by;
  if (request.keeps_texts) {
    told.texts = {{"graph", graph::print(made->functional)},
                  {"loop", made->equations},
                  {"fusion", loop::print(made->program)},
                  {"plan", plan::print(made->plan)},
                  {"output_code", code ? code->text : ""}};
    for (const auto& [name, text] : told.texts)
      if (logs.contains(name)) std::cerr << "# magneto: " << name << (part.empty() ? "" : ", ") << part << "\n" << text;
    if (!note.keeps_texts) told.texts.clear();
  }
  const auto launcher = [&](const plan::Plan& plan) -> std::unique_ptr<runtime::Launcher> {
    if (on_gpu && code)
      return runtime::cuda_launcher(plan, *runtime::cuda(), [&](const std::string& name) {
        return static_cast<runtime::CudaModule::Function*>(code->find(name));
      });
    return runtime::cpu_launcher(
        plan, [&](const std::string& name) { return reinterpret_cast<runtime::Kernel*>(code->find(name)); });
  };
  return std::make_shared<aten::Kernels>(std::move(made->plan), std::move(made->signature), launcher, code, program);
}

}  // namespace magneto::driver
