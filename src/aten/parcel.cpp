// The nodes inside of compiled autograd (torch._dynamo.compiled_autograd). It does not run nodes: it asks each of them
// for the tensors that it saved, makes them inputs of a graph, lets the nodes go, and runs the graph later, in which a
// node of ours is one call. All that such a call needs goes with one tensor, a parcel: its memory owns a twin of the
// node, which has what was saved, and its one element is where that twin is.
#include <ATen/Functions.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "aten/backward_node_internal.h"
#include "aten/output_node_internal.h"

namespace magneto::aten {

namespace autograd = torch::autograd;
namespace compiled = torch::dynamo::autograd;
using autograd::variable_list;

namespace {

struct Parcel {
  NodePtr owner;
  int64_t address = 0;
};

void refuse_if_looked_at(const MagnetoBackward& node) {
  TORCH_CHECK_NOT_IMPLEMENTED(!node.is_any_looked_at(),
                              "magneto: somebody looks at the gradient of an output of a compiled function that others "
                              "were computed from (a hook, retain_grad or autograd.grad), which compiled autograd does "
                              "not allow. Cure: leave compiled autograd off for this backward");
}

}  // namespace

bool MagnetoBackward::is_any_looked_at() const {
  for (size_t s = 0; s < stops.size(); ++s)
    if (is_looked_at(s)) return true;
  return false;
}

at::Tensor MagnetoBackward::make_parcel(size_t set) {
  auto parcel = std::make_shared<Parcel>();
  MagnetoBackward* twin = nullptr;
  parcel->owner = make_backward_node(plan_, &twin);
  parcel->address = reinterpret_cast<int64_t>(twin);
  twin->set_next_edges(autograd::edge_list(next_edges()));
  twin->only_set_ = set;
  std::lock_guard<std::mutex> lock(mutex_);
  twin->symbols = symbols;
  twin->watched = watched;
  twin->shares = shares;
  twin->originals = originals;
  twin->generator_states = generator_states;
  twin->kept.resize(kept.size());
  for (size_t k = 0; k < kept.size(); ++k) {
    TORCH_CHECK(!kept[k].is_gone, autograd::ERR_BACKWARD_TWICE);
    twin->kept[k].tensor =
        kept[k].is_variable ? kept[k].variable.unpack(kept[k].is_output ? getptr() : nullptr) : kept[k].tensor;
  }
  return at::from_blob(
      &parcel->address, {1}, [parcel](void*) {}, at::TensorOptions(at::kLong));
}

// One backward for each parcel: what is in it goes with the call.
static variable_list open_parcel(const variable_list& tangents, const std::vector<c10::IValue>& arguments) {
  auto* twin = reinterpret_cast<MagnetoBackward*>(arguments.at(0).toTensor().const_data_ptr<int64_t>()[0]);
  return twin->run_once(tangents);
}

static variable_list call_parcel(at::Tensor& parcel, const autograd::Node& node, const variable_list& tangents,
                                 autograd::SwapSavedVariables& saved) {
  saved.before(parcel);
  const auto types = compiled::IValuePacker<std::vector<std::optional<autograd::InputMetadata>>>::pack(
      compiled::get_input_metadata(node.next_edges()));
  const auto& compiler = compiled::getPyCompilerInterface();
  const std::string function =
      compiler->bind_function(saved.get_py_compiler(), node.name(), open_parcel, {at::TensorType::get()},
                              /*is_custom_function=*/true, /*is_traceable=*/false);
  variable_list gradients = compiler->call_function(saved.get_py_compiler(), "apply_functional", function, tangents,
                                                    {c10::IValue(parcel)}, types);
  saved.after(parcel);
  return gradients;
}

variable_list MagnetoBackward::run_once(variable_list tangents) {
  variable_list results;
  if (only_set_ == kNoSet) {
    results = apply(std::move(tangents));
  } else {
    const TrainingPlan::Set& set = plan_->sets[only_set_];
    variable_list given(plan_->tangents.size());
    for (size_t k = 0; k < set.tangents.size(); ++k) given[set.tangents[k]] = std::move(tangents[k]);
    std::vector<bool> gives(plan_->wanted.size());
    for (const size_t g : set.gives) gives[g] = true;
    const variable_list all = gradients({}, std::move(given), gives, /*last=*/true);
    for (const size_t g : set.gives) results.push_back(all[g]);
  }
  kept.clear();
  originals.clear();
  return results;
}

void MagnetoBackward::compiled_args(autograd::CompiledNodeArgs& args) const {
  refuse_if_looked_at(*this);
  parcel_ = const_cast<MagnetoBackward*>(this)->make_parcel();
  args.collect(reinterpret_cast<uint64_t>(plan_.get()));
  args.collect(parcel_);
}

variable_list MagnetoBackward::apply_with_saved(const variable_list& tangents, autograd::SwapSavedVariables& saved) {
  return call_parcel(parcel_, *this, tangents, saved);
}

void SetNode::compiled_args(autograd::CompiledNodeArgs& args) const {
  refuse_if_looked_at(whole());
  parcel_ = whole().make_parcel(set_);
  args.collect(reinterpret_cast<uint64_t>(plan_.get()));
  args.collect(static_cast<uint64_t>(set_));
  args.collect(parcel_);
}

variable_list SetNode::apply_with_saved(const variable_list& tangents, autograd::SwapSavedVariables& saved) {
  return call_parcel(parcel_, *this, tangents, saved);
}

// As long as nobody looks at a stop, the node of an output only hands its gradient on.
void OutputNode::compiled_args(autograd::CompiledNodeArgs& args) const {
  refuse_if_looked_at(whole());
  args.collect(reinterpret_cast<uint64_t>(plan_.get()));
  for (const size_t tangent : tangents_) args.collect(static_cast<uint64_t>(tangent));
}

variable_list OutputNode::apply_with_saved(const variable_list& gradients, autograd::SwapSavedVariables&) {
  return hand_on(gradients);
}

}  // namespace magneto::aten
