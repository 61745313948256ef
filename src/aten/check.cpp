#include "aten/check.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <atomic>
#include <mutex>

#include "aten/generators_internal.h"
#include "aten/script_internal.h"
#include "aten/shrink_internal.h"
#include "aten/sight_internal.h"

namespace magneto::aten {

namespace {

class Checked final : public Executable {
 public:
  Checked(std::shared_ptr<Program> program, std::shared_ptr<Executable> executable, Check check)
      : program_(std::move(program)),
        executable_(std::move(executable)),
        check_(std::move(check)),
        random_on_(random_devices(program_->graph())) {}

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override {
    if (is_wrong_) return program_->run(inputs, symbols, outputs);
    const bool is_due = check_.every == Check::kFirst ? runs_ == 0 : runs_ % static_cast<size_t>(check_.every) == 0;
    const size_t number = runs_++;
    if (!is_due || sees_everything()) return executable_->run(inputs, symbols, outputs);
    return run_checked(inputs, symbols, outputs, number);
  }
  bool writes_inputs() const override { return program_->writes_inputs(); }

 private:
  /// Somebody would see what runs on copies.
  static bool sees_everything() {
    return torch::autograd::AnomalyMode::is_enabled() || at::SavedTensorDefaultHooks::get_hooks();
  }

  Failure run_checked(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
                      size_t number) const {
    Case at{.graph = program_->graph(),
            .constants = program_->constants(),
            .inputs = {},
            .symbols = {symbols.begin(), symbols.end()},
            .random_on = random_on_,
            .generators = generator_states(random_on_),
            .number = check_.every == Check::kFirst ? 0 : number / static_cast<size_t>(check_.every)};
    Sight ours, eager;
    try {
      at.inputs = copies_of(inputs);
      ours = look(*executable_, at);
      if (ours.has_gradients) eager = look(*program_, at);
    } catch (const std::exception&) {  // no memory for a second run, most likely
      return executable_->run(inputs, symbols, outputs);
    }
    const std::vector<at::Tensor> own(inputs.begin(), inputs.end());
    std::vector<uint32_t> versions;
    for (const at::Tensor& input : own)
      versions.push_back(input.is_inference() ? 0 : static_cast<uint32_t>(input._version()));
    const size_t first = outputs.size();
    Failure failure = program_->run(inputs, symbols, outputs);
    try {
      if (failure.error)
        eager.error = failure.error;
      else if (!eager.has_gradients)
        eager = seen(own, versions, std::span(outputs.begin() + static_cast<ptrdiff_t>(first), outputs.end()), at);
      std::string what = difference(eager, ours, at);
      if (check_.checked) check_.checked();
      if (!what.empty()) tell(std::move(at), std::move(what));
    } catch (const std::exception&) {  // no memory to compare
    }
    return failure;
  }

  void tell(Case at, std::string what) const {
    if (is_wrong_.exchange(true)) return;
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * check_.seconds));
    Shrunk shrunk;
    try {
      shrunk = shrink(at, what, check_.build, check_.passes, deadline);
    } catch (const std::exception&) {  // no memory for it: then it is told as large as it is
      shrunk.is_seeded.resize(at.inputs.size());
      shrunk.at = std::move(at);
      shrunk.what = std::move(what);
    }
    Finding finding;
    finding.what = shrunk.what;
    finding.pass = shrunk.pass;
    for (const graph::Node& node : shrunk.at.graph.nodes()) {
      finding.operators.push_back(node.op);
      if (const graph::Place& place = shrunk.at.graph.places().at(node.place); !place.file.empty())
        finding.place = place;
    }
    Script script = script_of(shrunk, check_.title);
    finding.script = std::move(script.text);
    finding.files = std::move(script.files);
    if (check_.found) check_.found(finding);
  }

  const std::shared_ptr<Program> program_;
  const std::shared_ptr<Executable> executable_;
  const Check check_;
  const std::vector<c10::Device> random_on_;
  mutable std::atomic<size_t> runs_ = 0;
  mutable std::atomic<bool> is_wrong_ = false;
};

}  // namespace

std::shared_ptr<Executable> make_checked(std::shared_ptr<Program> program, std::shared_ptr<Executable> executable,
                                         Check check) {
  return std::make_shared<Checked>(std::move(program), std::move(executable), std::move(check));
}

}  // namespace magneto::aten
