#include "driver/pipeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "aten/check.h"
#include "aten/custom_function.h"
#include "aten/evaluate.h"
#include "aten/joint.h"
#include "aten/kernels.h"
#include "aten/training.h"
#include "aten/undo.h"
#include "base/check.h"
#include "base/logs.h"
#include "base/text.h"
#include "base/violation.h"
#include "driver/compile.h"
#include "driver/notes.h"
#include "driver/scripts.h"
#include "driver/validate.h"
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

/// Where kernels compute: on the one GPU among the devices of the tensors, else on the CPU.
types::Device device_of(const graph::Graph& graph) {
  types::Device device;
  for (const graph::Value& value : graph.values()) {
    if (value.type.device == types::Device{}) continue;
    base::check(value.type.device.kind == types::Device::Kind::kCuda, "a tensor is neither on a CPU nor on a GPU");
    base::check(device == types::Device{} || value.type.device == device, "tensors are on different GPUs");
    device = value.type.device;
  }
  return device;
}

graph::Graph spoil(graph::Graph graph, const Pipeline::Spoiled& how) {
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (graph::Node& node = graph.node(graph::NodeId(n)); node.op == how.op) node.op = how.instead;
  return graph;
}

/// For a warning.
std::string describe(const base::CheckNote& note) {
  std::string operators;
  for (const std::string& op : note.operators) operators += (operators.empty() ? "" : ", ") + op;
  std::string text = base::concat(note.where.file, ":", note.where.line, " in ", note.where.function,
                                  ": a compiled graph differs from eager. ", note.what, " (", operators, ")");
  if (!note.pass.empty()) text += base::concat("; not without the pass ", note.pass);
  text += ". Eager's answer is returned, and the graph runs operator by operator from now on. ";
  text += note.script.empty() ? "" : base::concat("A script that shows it: ", note.script, ". ");
  return text + "Please report this.";
}

/// The texts that a CodeNote has, in their order.
constexpr std::array kStages = {base::Log::kGraph, base::Log::kLoop, base::Log::kFusion, base::Log::kPlan,
                                base::Log::kOutputCode};

/// Why a graph runs as operators. What a verifier found is a bug of ours: the user is told, once.
std::string reason_of(const std::exception& fault, const base::Line& where) {
  static std::atomic<bool> warned = false;
  if (!dynamic_cast<const base::Violation*>(&fault)) return fault.what();
  if (base::logs().tells(base::Log::kVerify)) base::logs().tell(base::Log::kVerify, "", fault.what());
  if (!warned.exchange(true))
    aten::warn(base::concat("A bug in Magneto, which its verifier found in ", where.function, " (", where.file, ":",
                            where.line, "): ", fault.what(),
                            ". The operators of this graph run one by one, as in eager. Please report this."));
  return base::concat("a bug in Magneto: ", fault.what());
}

/// The stages of one compilation, compared with torch and with one another.
class Validation final : public Evaluator {
 public:
  Validation(const graph::Graph& graph, std::vector<at::Tensor> constants, std::span<const at::Tensor> examples,
             types::Device device)
      : constants_(std::move(constants)), random_(device) {
    std::vector<int64_t> symbols;
    std::vector<Sample> inputs = given(graph, examples, symbols);
    if (inputs.empty()) {
      std::vector<types::TensorType> types;
      for (const graph::ValueId id : graph.inputs()) types.push_back(graph.value(id).type);
      symbols = small_symbols(graph);
      inputs = random_samples(types, symbols, 1);
    }
    std::vector<Sample> constant_samples;
    for (const at::Tensor& constant : constants_) constant_samples.push_back(aten::sample_of(constant));
    validator_.emplace(*this, std::move(inputs), std::move(constant_samples), std::move(symbols));
  }

  Validator& validator() { return *validator_; }
  void code(const aten::Executable& executable) {
    begin();
    std::vector<Sample> inputs = validator_->inputs(), outputs;
    try {
      outputs = aten::evaluate(executable, validator_->symbols(), inputs);
    } catch (const std::exception&) {
      return;  // an operator fails on these data
    }
    validator_->results("code", outputs, inputs);
  }

  void begin() override { random_.restart(); }
  std::vector<Sample> run(const graph::Graph& graph, const std::vector<int64_t>& symbols,
                          std::vector<Sample>& inputs) override {
    return aten::evaluate(graph, constants_, symbols, inputs);
  }
  std::vector<Sample> call(const std::string& op, const std::string& arguments, const std::vector<Sample>& reads,
                           const std::vector<int64_t>& symbols) override {
    return aten::evaluate_call(op, arguments, reads, symbols);
  }

 private:
  /// The examples as data, and the sizes that they tell; empty when there are none, or when they do not tell all.
  static std::vector<Sample> given(const graph::Graph& graph, std::span<const at::Tensor> examples,
                                   std::vector<int64_t>& symbols) {
    std::vector<Sample> made;
    if (examples.size() != graph.inputs().size()) return {};
    for (size_t k = 0; k < examples.size(); ++k) {
      made.push_back(aten::sample_of(examples[k]));
      const types::TensorType& type = graph.value(graph.inputs()[k]).type;
      const auto tell = [&](const types::Expr& e, const types::Expr& number) {
        std::vector<uint32_t> list;
        e.collect_symbols(list);
        if (list.size() != 1 || !(e == types::Expr::symbol(list[0]))) return;
        if (symbols.size() <= list[0]) symbols.resize(list[0] + 1, -1);
        symbols[list[0]] = number.value_or(0);
      };
      for (size_t d = 0; d < type.sizes.size(); ++d) {
        tell(type.sizes[d], made.back().type.sizes[d]);
        tell(type.strides[d], made.back().type.strides[d]);
      }
      tell(type.offset, made.back().type.offset);
    }
    return know_all(graph, symbols) ? made : std::vector<Sample>();
  }

  std::vector<at::Tensor> constants_;
  aten::OwnRandom random_;
  std::optional<Validator> validator_;
};

}  // namespace

Pipeline& Pipeline::instance() {
  static Pipeline pipeline;
  return pipeline;
}

Pipeline::Pipeline() : skip(names_from("MAGNETO_SKIP_PASSES")) {
  const std::set<std::string, std::less<>> order = names_from("MAGNETO_TOOLCHAINS");
  if (!order.empty())
    std::erase_if(toolchains.order, [&](const std::string& name) { return order.find(name) == order.end(); });
  if (const char* asked = std::getenv("MAGNETO_VALIDATE")) validates = std::string_view(asked) != "0";
  if (const char* seconds = std::getenv("MAGNETO_COMPILER_SECONDS"); seconds && std::atof(seconds) > 0)
    toolchains.patience = std::chrono::milliseconds(static_cast<int64_t>(std::atof(seconds) * 1000));
}

std::shared_ptr<aten::Executable> Pipeline::build(const std::shared_ptr<aten::Program>& program,
                                                  std::span<const at::Tensor> examples, base::GraphNote& note,
                                                  const base::Poll& poll) {
  std::shared_ptr<aten::Executable> made = compile(program, examples, note, poll, skip);
  return note.check == 0 || made == program ? std::move(made) : checked(program, std::move(made), note);
}

std::shared_ptr<aten::Executable> Pipeline::checked(const std::shared_ptr<aten::Program>& program,
                                                    std::shared_ptr<aten::Executable> made,
                                                    const base::GraphNote& note) {
  aten::Check check;
  check.every = note.check;
  check.title = base::concat("Magneto and eager differ in ", note.where.function, " (", note.where.file, ":",
                             note.where.line, ").");
  check.passes = optional_passes();
  if (const char* seconds = std::getenv("MAGNETO_CHECK_SECONDS"); seconds && std::atof(seconds) > 0)
    check.seconds = std::atof(seconds);
  check.build = [this](const std::shared_ptr<aten::Program>& smaller, std::span<const at::Tensor> examples,
                       const std::string& without) {
    std::set<std::string, std::less<>> left_out = skip;
    if (!without.empty()) left_out.insert(without);
    base::GraphNote unread;
    return compile(smaller, examples, unread, {}, left_out);
  };
  check.checked = [callable = note.callable] { base::process_report().add_checked(callable); };
  check.found = [callable = note.callable, where = note.where](const aten::Finding& finding) {
    base::CheckNote told{.callable = callable,
                         .where = {finding.place.file, finding.place.line, finding.place.function},
                         .what = finding.what,
                         .operators = finding.operators,
                         .pass = finding.pass,
                         .script = write_script(finding.script, finding.files)};
    if (told.where.file.empty()) told.where = where;
    aten::warn(describe(told));
    base::process_report().add(std::move(told));
  };
  return aten::make_checked(program, std::move(made), std::move(check));
}

std::shared_ptr<aten::Executable> Pipeline::compile(const std::shared_ptr<aten::Program>& program,
                                                    std::span<const at::Tensor> examples, base::GraphNote& note,
                                                    const base::Poll& poll,
                                                    const std::set<std::string, std::less<>>& skip) {
  const graph::Graph& graph = program->graph();
  const bool has_leaves =
      std::any_of(examples.begin(), examples.end(), [](const auto& t) { return t.requires_grad(); });
  const bool trains =
      has_leaves && std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& n) { return n.grad; });
  try {
    if (trains)
      if (auto made = training(program, examples, note, poll, skip)) return made;
    std::vector<bool> leaves;
    if (has_leaves)
      for (const at::Tensor& example : examples) leaves.push_back(example.requires_grad());
    if (note.fallback.empty()) note.fallback = program->hidden_effect();
    const graph::Graph plain = aten::without_functions(graph);
    if (note.fallback.empty())
      return kernels({plain, program->constants(), program->bumps(), program->output_bumps(), program->output_views(),
                      std::move(leaves), program, aten::default_dtype(), poll, skip, examples},
                     false, "", note);
  } catch (const std::exception& reason) {
    note.fallback = reason_of(reason, note.where);
  }
  return program;
}

std::shared_ptr<aten::Executable> Pipeline::training(const std::shared_ptr<aten::Program>& program,
                                                     std::span<const at::Tensor> examples, base::GraphNote& note,
                                                     const base::Poll& poll,
                                                     const std::set<std::string, std::less<>>& skip) {
  // A backward may be asked for later, in any thread, when nobody listens any more.
  struct Listener {
    std::mutex mutex;
    base::GraphNote* note;
    base::Poll poll;
    std::shared_ptr<base::LateCode> late = std::make_shared<base::LateCode>();
    bool keeps_texts;
    base::Line where;
  };
  auto listener = std::make_shared<Listener>();
  listener->note = &note;
  listener->poll = poll;
  listener->keeps_texts = note.keeps_texts;
  listener->where = note.where;
  note.late = listener->late;
  const types::Dtype default_dtype = aten::default_dtype();
  const auto compile_half = [this, listener, default_dtype, skip](
                                graph::Graph half, std::vector<at::Tensor> constants,
                                const char* part) -> std::shared_ptr<aten::Executable> {
    base::GraphNote own;
    own.keeps_texts = listener->keeps_texts;
    own.where = listener->where;
    const std::lock_guard lock(listener->mutex);
    base::GraphNote& told = listener->note ? *listener->note : own;
    std::shared_ptr<aten::Executable> plain = aten::compile_by_operators(half, constants);
    std::shared_ptr<aten::Executable> made = plain;
    try {
      made = kernels({half, std::move(constants), {}, {}, {}, {}, plain, default_dtype, listener->poll, skip}, true,
                     part, told);
    } catch (const std::exception& reason) {
      told.fallback = base::concat(part, ": ", reason_of(reason, listener->where));
    }
    const std::lock_guard late(listener->late->mutex);
    for (base::CodeNote& code : own.code) listener->late->code.push_back(std::move(code));
    if (!own.fallback.empty()) listener->late->fallback = std::move(own.fallback);
    return made;
  };
  std::string reason;
  auto made = aten::make_training(program, examples, compile_half, &reason);
  const std::lock_guard lock(listener->mutex);
  listener->note = nullptr;
  listener->poll = nullptr;
  if (!made && reason != aten::Joint::kNoGradient)
    note.fallback = base::concat("torch's own autograd graph is used: ", reason);
  return made;
}

std::shared_ptr<aten::Executable> Pipeline::kernels(Work work, bool is_functional, const std::string& part,
                                                    base::GraphNote& note) {
  graph::Graph wrong;
  if (spoiled && spoiled->concerns(work.graph, work.skip)) wrong = spoil(work.graph, *spoiled);
  const graph::Graph& graph = wrong.nodes().empty() ? work.graph : wrong;
  const types::Device device = device_of(graph);
  const bool on_gpu = device.kind == types::Device::Kind::kCuda;
  const codegen::Machine machine = codegen::host_machine();
  Passes passes;
  passes.skip = std::move(work.skip);
  passes.poll = work.poll;
  using base::Log;
  const base::Logs& logs = base::logs();
  passes.each = validates || logs.tells_any(kStages) || logs.tells(Log::kVerify) || logs.tells(Log::kValidate);
  Request request;
  request.device = device;
  request.default_dtype = work.default_dtype;
  if (on_gpu) {
    request.shape = schedule::gpu_shape();
  } else {
    request.shape.vector = machine.vector_bytes() / 4;
    if (machine.vector_bytes() == 16) request.shape.chains = 8;  // short vectors have little under way
  }
  request.is_functional = is_functional;
  request.keeps_texts = logs.tells_any(kStages) || note.keeps_texts;
  std::optional<Validation> validation;
  if (validates) {
    try {
      validation.emplace(work.graph, work.constants, work.examples, device);
    } catch (const std::exception& reason) {  // no sizes were found, or there is no memory for copies
      if (logs.tells(Log::kValidate)) logs.tell(Log::kValidate, "", base::concat("nothing: ", reason.what()));
    }
  }
  if (validation) {
    validation->validator().graph("recorded", work.graph);
    request.validator = &validation->validator();
  }
  std::unique_ptr<Compilation> made = driver::compile(graph, request, passes);
  std::shared_ptr<const Code> code;
  const aten::OnDevice here(device);
  if (!made->units.empty())
    passes.time("code", [&] {
      try {
        code = on_gpu ? make_cuda_code(
                            made->units, toolchains, [&] { aten::give_memory_back(device); }, work.poll)
                      : make_code(made->units, machine, toolchains, work.poll);
      } catch (const std::exception& fault) {
        note.warning = base::concat("no kernels can be made, operators run one by one: ", fault.what());
        throw;
      }
    });
  if (logs.tells(Log::kVerify))
    for (const auto& [node, reason] : made->unproved)
      logs.tell(Log::kVerify, part, base::concat(made->functional.node(node).op, ": ", reason));
  base::CodeNote& told = note.code.emplace_back(describe(*made, passes));
  told.part = part;
  if (code) told.by = code->by;
  if (request.keeps_texts) {
    told.texts = {{"graph", graph::print(made->functional)},
                  {"loop", made->equations},
                  {"fusion", loop::print(made->program)},
                  {"plan", plan::print(made->plan)},
                  {"output_code", code ? code->text : ""}};
    for (size_t k = 0; k < kStages.size(); ++k)
      if (logs.tells(kStages[k])) logs.tell(kStages[k], part, told.texts[k].second);
    if (!note.keeps_texts) told.texts.clear();
  }
  base::process_report().tell(told, note.where);
  const auto launcher = [&](const plan::Plan& plan) -> std::unique_ptr<runtime::Launcher> {
    if (on_gpu && code)
      return runtime::cuda_launcher(plan, *runtime::cuda(), [&](const std::string& name) {
        return static_cast<runtime::CudaModule::Function*>(code->find(name));
      });
    return runtime::cpu_launcher(
        plan, [&](const std::string& name) { return reinterpret_cast<runtime::Kernel*>(code->find(name)); });
  };
  auto kernels = std::make_shared<aten::Kernels>(
      std::move(made->plan), std::move(made->signature), launcher,
      aten::Kernels::Around{device, std::move(work.constants), std::move(work.bumps), std::move(work.output_bumps),
                            std::move(work.output_views), std::move(work.leaves), aten::inputs_shown_by_strides(graph),
                            std::move(work.fallback), code, part == "backward"});
  if (validation) {
    validation->code(*kernels);
    if (logs.tells(Log::kValidate))
      for (const std::string& line : validation->validator().notes()) logs.tell(Log::kValidate, "", line);
  }
  return kernels;
}

}  // namespace magneto::driver
