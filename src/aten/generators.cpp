#include <ATen/Context.h>

#include <algorithm>

#include "aten/convert_internal.h"
#include "aten/generators_internal.h"
#include "aten/operators_internal.h"

namespace magneto::aten {

std::vector<c10::Device> random_devices(const graph::Graph& graph, const graph::Node& node) {
  std::vector<c10::Device> devices;
  if (!operator_named(node.op).random) return devices;
  for (const graph::ValueId id : node.outputs)
    if (id.valid()) devices.push_back(to_torch(graph.value(id).type.device));
  return devices;
}

std::vector<c10::Device> random_devices(const graph::Graph& graph) {
  std::vector<c10::Device> devices;
  for (const graph::Node& node : graph.nodes())
    for (const c10::Device device : random_devices(graph, node))
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  return devices;
}

std::vector<at::Tensor> generator_states(const std::vector<c10::Device>& devices) {
  std::vector<at::Tensor> states(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    at::Generator generator = at::globalContext().defaultGenerator(devices[d]);
    std::lock_guard<std::mutex> lock(generator.mutex());
    try {
      states[d] = generator.get_state();
    } catch (const c10::Error&) {  // a CUDA graph is being captured
    }
  }
  return states;
}

void set_generator_states(const std::vector<c10::Device>& devices, const std::vector<at::Tensor>& states) {
  for (size_t d = 0; d < devices.size(); ++d) {
    if (!states[d].defined()) continue;
    at::Generator generator = at::globalContext().defaultGenerator(devices[d]);
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(states[d]);
  }
}

}  // namespace magneto::aten
