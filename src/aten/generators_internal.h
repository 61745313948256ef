// aten/generators_internal.h: the random numbers of a program: which generators it draws from, and their states.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

/// The devices whose generators an operator, or any of a graph, draws from.
std::vector<c10::Device> random_devices(const graph::Graph& graph, const graph::Node& node);
std::vector<c10::Device> random_devices(const graph::Graph& graph);

/// The states of the generators of these devices; undefined where they cannot be had.
std::vector<at::Tensor> generator_states(const std::vector<c10::Device>& devices);
void set_generator_states(const std::vector<c10::Device>& devices, const std::vector<at::Tensor>& states);

/// What was drawn, to be taken back: the call that drew failed, and eager repeats it.
class Drawn {
 public:
  /// Before something draws there.
  void note(c10::Device device) {
    if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return;
    devices_.push_back(device);
    states_.push_back(generator_states({device})[0]);
  }
  /// Whether all of it was taken back.
  bool take_back() const {
    set_generator_states(devices_, states_);
    return std::all_of(states_.begin(), states_.end(), [](const at::Tensor& state) { return state.defined(); });
  }

 private:
  std::vector<c10::Device> devices_;
  std::vector<at::Tensor> states_;
};

/// The generators' states of another time; those of now come back at the end.
class GeneratorsAsTheyWere {
 public:
  GeneratorsAsTheyWere(const std::vector<c10::Device>& devices, const std::vector<at::Tensor>& states)
      : devices_(devices), now_(generator_states(devices)) {
    set_generator_states(devices, states);
  }
  ~GeneratorsAsTheyWere() { set_generator_states(devices_, now_); }
  GeneratorsAsTheyWere(const GeneratorsAsTheyWere&) = delete;

 private:
  const std::vector<c10::Device>& devices_;
  const std::vector<at::Tensor> now_;
};

}  // namespace magneto::aten
