// bindings/testing_trace.cpp: traces and programs for tests in Python. Not part of what users import.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "aten/program.h"
#include "aten/testing.h"
#include "aten/trace.h"
#include "aten/training.h"
#include "base/check.h"
#include "base/report.h"
#include "capture/faults.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/op.h"

namespace py = pybind11;

namespace magneto::bindings {

namespace {

using aten::Trace;
using graph::ValueId;

void wait_without_gil(void (*wait)(void*), void* argument) {
  if (!PyGILState_Check()) return wait(argument);
  py::gil_scoped_release release;
  wait(argument);
}

std::optional<size_t> find(const Trace& trace, const at::Tensor& tensor) {
  const auto value = trace.find(tensor);
  return value ? std::optional<size_t>(value->index()) : std::nullopt;
}

// A program with the inputs of the trace that made it, by value id.
struct Replay {
  std::shared_ptr<aten::Program> program;
  std::vector<size_t> inputs;
};

Replay finish(const Trace& trace, const std::vector<at::Tensor>& outputs) {
  std::vector<ValueId> ids, inputs;
  for (const at::Tensor& output : outputs) {
    const auto id = trace.find(output);
    base::check(id.has_value(), "finish: the trace does not know output ", ids.size());
    ids.push_back(*id);
  }
  Replay replay;
  replay.program = trace.finish(ids, &inputs);
  for (ValueId input : inputs) replay.inputs.push_back(input.index());
  return replay;
}

std::vector<at::Tensor> run(const aten::Executable& executable, std::vector<at::Tensor> inputs,
                            const std::vector<int64_t>& symbols) {
  c10::SmallVector<at::Tensor, 8> outputs;
  aten::Executable::Failure failure;
  {
    py::gil_scoped_release release;
    failure = executable.run(inputs, symbols, outputs);
    inputs.clear();
  }
  if (failure.error) std::rethrow_exception(failure.error);
  return {outputs.begin(), outputs.end()};
}

// The same program with one autograd node, each half run operator by operator; nothing and a reason where it cannot be.
struct Training {
  std::shared_ptr<aten::Executable> executable;
  std::string reason;
};

Training make_training(const Replay& replay, const std::vector<at::Tensor>& examples) {
  Training training;
  training.executable = aten::make_training(replay.program, examples, &aten::compile_by_operators, &training.reason);
  return training;
}

py::list facts(const Training& training) {
  py::list list;
  for (const aten::TrainingFacts* facts : aten::training_facts(*training.executable)) {
    py::dict result;
    result["saved_bytes"] = facts->saved_bytes;
    result["saved"] = facts->saved;
    result["joint_ms"] = facts->joint_ms;
    result["functionalise_ms"] = facts->functionalise_ms;
    result["partition_ms"] = facts->partition_ms;
    result["forward"] = graph::print(facts->forward);
    result["backward"] = graph::print(facts->backward);
    list.append(result);
  }
  return list;
}

std::vector<std::string> verify(const Training& training) {
  std::vector<std::string> broken;
  for (const aten::TrainingFacts* facts : aten::training_facts(*training.executable)) {
    for (std::string& sentence : graph::verify(facts->forward)) broken.push_back("forward: " + sentence);
    for (std::string& sentence : graph::verify(facts->backward)) broken.push_back("backward: " + sentence);
  }
  return broken;
}

py::tuple run_until_failure(const Replay& replay, std::vector<at::Tensor> inputs) {
  c10::SmallVector<at::Tensor, 8> outputs;
  const auto failure = replay.program->run(inputs, {}, outputs);
  return py::make_tuple(static_cast<bool>(failure.error), failure.node, failure.changed);
}

/// A graph from its text, on these tensors: operator by operator, or as kernels. Throws what does not compile.
std::vector<at::Tensor> run_text(const std::string& text, std::vector<at::Tensor> inputs,
                                 std::vector<at::Tensor> constants, bool as_kernels) {
  auto program = std::make_shared<aten::Program>(graph::parse(text), std::move(constants));
  std::shared_ptr<aten::Executable> executable = program;
  if (as_kernels) {
    base::GraphNote note;
    executable = driver::Pipeline::instance().build(program, inputs, note);
    base::check(note.fallback.empty(), note.fallback);
  }
  c10::SmallVector<at::Tensor, 8> outputs;
  const auto failure = executable->run(inputs, {}, outputs);
  if (failure.error) std::rethrow_exception(failure.error);
  return {outputs.begin(), outputs.end()};
}

py::dict counters() {
  const aten::Counters now = aten::counters();
  py::dict result;
  result["living"] = now.living;
  result["lies"] = now.lies;
  result["last_lie"] = now.last_lie;
  return result;
}

}  // namespace

void add_trace_testing(py::module_& m) {
  m.def("throw_at", [](std::optional<std::string> where, long countdown) {
    capture::throw_at(where ? where->c_str() : nullptr, countdown);
  });
  m.def("has_thrown", &capture::has_thrown);
  aten::set_wait_runner(&wait_without_gil);
  py::class_<Trace>(m, "Trace")
      .def(py::init<>())
      .def("enter", &Trace::enter)
      .def("leave", &Trace::leave)
      .def("entered", &Trace::entered)
      .def(
          "flush", [](Trace& t, const std::string& why) { t.flush(why); }, py::arg("why") = "test",
          py::call_guard<py::gil_scoped_release>())
      .def("find", &find)
      .def("made_here", &Trace::made_here)
      .def("add_input",
           [](Trace& t, const at::Tensor& x, std::string name) { return t.add_input(x, std::move(name)).index(); })
      .def("input_tensor", [](const Trace& t, size_t id) { return t.input_tensor(ValueId(id)); })
      .def("take_unclaimed",
           [](Trace& t) {
             std::vector<size_t> ids;
             for (ValueId id : t.take_unclaimed()) ids.push_back(id.index());
             return ids;
           })
      .def("data_reads", &Trace::data_reads)
      .def("last_data_read", &Trace::last_data_read)
      .def("mark", [](const Trace& t) { return t.mark().nodes; })
      .def("rewind", [](Trace& t, size_t nodes) { t.rewind({nodes}); })
      .def("set_place", &Trace::set_place)
      .def("text", [](const Trace& t) { return graph::print(t.graph()); })
      .def("verify", [](const Trace& t) { return graph::verify(t.graph()); })
      .def("ops",
           [](const Trace& t) {
             std::vector<std::string> names;
             for (const graph::Node& node : t.graph().nodes()) names.push_back(node.op);
             return names;
           })
      .def("finish", &finish);
  m.def("run_text", &run_text, py::arg("text"), py::arg("inputs"), py::arg("constants") = std::vector<at::Tensor>(),
        py::arg("as_kernels") = true);
  py::class_<Replay>(m, "Replay")
      .def_readonly("inputs", &Replay::inputs)
      .def(
          "run",
          [](const Replay& r, std::vector<at::Tensor> inputs, const std::vector<int64_t>& symbols) {
            return run(*r.program, std::move(inputs), symbols);
          },
          py::arg("inputs"), py::arg("symbols") = std::vector<int64_t>())
      .def("training", &make_training)
      .def("run_until_failure", &run_until_failure)
      .def("writes_inputs", [](const Replay& r) { return r.program->writes_inputs(); })
      .def("verify", [](const Replay& r) { return graph::verify(r.program->graph()); })
      .def("text", [](const Replay& r) { return graph::print(r.program->graph()); });
  py::class_<Training>(m, "Training")
      .def_readonly("reason", &Training::reason)
      .def("facts", &facts)
      .def("verify", &verify)
      .def(
          "run",
          [](const Training& t, std::vector<at::Tensor> inputs, const std::vector<int64_t>& symbols) {
            return run(*t.executable, std::move(inputs), symbols);
          },
          py::arg("inputs"), py::arg("symbols") = std::vector<int64_t>());
  m.def("parse", [](const std::string& text) {
    return Replay{std::make_shared<aten::Program>(graph::parse(text), std::vector<at::Tensor>()), {}};
  });
  m.def("lowered", [] {  // the operators that a kernel computes
    std::vector<std::string> names;
    for (const ops::Op* op : ops::all())
      if (op->body || op->equation) names.emplace_back(op->name);
    return names;
  });
  m.def("counters", &counters);
  // Kernels compute `instead` where a graph says `op`, unless `pass` is left out. None: no more.
  m.def(
      "spoil",
      [](std::optional<std::string> op, std::string instead, std::string pass, bool only_symbolic) {
        auto& spoiled = driver::Pipeline::instance().spoiled;
        spoiled.reset();
        if (op) spoiled = driver::Pipeline::Spoiled{*op, std::move(instead), std::move(pass), only_symbolic};
      },
      py::arg("op"), py::arg("instead") = "", py::arg("skip") = "", py::arg("only_symbolic") = false);
  m.def("in_trace", [] { return aten::current_trace() != nullptr; });
  m.def("is_pending", &aten::is_pending);
  m.def("refuse_memory", &aten::refuse_memory, py::arg("bytes"), py::arg("spared") = 0, py::arg("refused") = 0);
  m.def("asked_for_memory", &aten::asked_for_memory);
  m.def("keys", [](const at::Tensor& t) { return c10::toString(t.unsafeGetTensorImpl()->key_set()); });
  // What a user's C++ extension does.
  m.def("sum_through_pointer", [](const at::Tensor& t) {
    const float* data = t.const_data_ptr<float>();
    double sum = 0;
    for (int64_t i = 0; i < t.numel(); ++i) sum += data[i];
    return sum;
  });
}

}  // namespace magneto::bindings
