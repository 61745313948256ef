// bindings/module.cpp: a handful of functions for Python.
#include <torch/csrc/utils/pybind.h>

#include "aten/history.h"
#include "aten/kernels.h"
#include "aten/trace.h"
#include "base/logs.h"
#include "base/report.h"
#include "bindings/backend.h"
#include "capture/call_rules.h"
#include "capture/compiled.h"
#include "capture/session.h"
#include "capture/substitutes.h"
#include "driver/pipeline.h"
#include "evaluator/hook.h"
#include "explain/logs.h"
#include "explain/text.h"

namespace py = pybind11;

namespace magneto::bindings {

void add_evaluator_testing(PyObject* module);
void add_trace_testing(py::module_& module);

namespace {

py::object compile_function(py::object function, py::object self, bool fullgraph, int limit,
                            std::optional<bool> dynamic, py::object backend, int check, bool keeps_texts) {
  capture::CompileOptions options;
  options.fullgraph = fullgraph;
  options.limit = limit;
  options.dynamic = dynamic;
  if (!py::isinstance<py::str>(backend))
    options.backend = capture::Ref::share(backend.ptr());
  else
    options.compiles = backend.cast<std::string>() != "eager";
  options.keeps_texts = keeps_texts;
  options.check = check;
  const auto given = [](const py::object& object) { return object.is_none() ? nullptr : object.ptr(); };
  PyObject* compiled = capture::new_compiled(given(function), given(self), options);
  if (!compiled) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(compiled);
}

void add_logs(py::module_& m) {
  constexpr int kDebug = 10, kInfo = 20;  // Python's
  base::logs().set_sink([](base::Log log, base::Logs::Level level, const std::string& text) {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    const std::string name(base::log_names()[static_cast<size_t>(log)].name);
    capture::log("magneto." + name, level == base::Logs::Level::kMore ? kDebug : kInfo, text);
  });
  explain::tell_the_report();
  m.def("set_logs", [](const std::string& names) { return base::logs().set(names); });
  m.def("clear_logs", [] { base::logs().clear(); });
  m.def("log_names", [] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const base::LogName& one : base::log_names()) all.emplace_back(one.name, one.meaning);
    return all;
  });
}

void add_report(py::module_& m) {
  auto line = [](auto cls, auto where) {
    using Note = typename decltype(cls)::type;
    cls.def_property_readonly("file", [where](const Note& n) { return (n.*where).file; })
        .def_property_readonly("line", [where](const Note& n) { return (n.*where).line; })
        .def_property_readonly("function", [where](const Note& n) { return (n.*where).function; })
        .def_property_readonly("source", [where](const Note& n) { return base::source_line(n.*where); });
    return cls;
  };
  line(py::class_<base::CallNote>(m, "Call"), &base::CallNote::where)
      .def_readonly("op", &base::CallNote::op)
      .def_readonly("reason", &base::CallNote::reason)
      .def("__repr__", [](const base::CallNote& n) { return n.op + ": " + n.reason; });
  py::class_<base::KernelNote>(m, "Kernel")
      .def_readonly("name", &base::KernelNote::name)
      .def_readonly("runs", &base::KernelNote::runs)
      .def_readonly("operators", &base::KernelNote::operators)
      .def_property_readonly("lines",
                             [](const base::KernelNote& n) {
                               std::vector<std::pair<std::string, int>> lines;
                               for (const base::Line& where : n.lines) lines.emplace_back(where.file, where.line);
                               return lines;
                             })
      .def("__repr__", [](const base::KernelNote& n) { return n.name; });
  py::class_<base::CodeNote>(m, "Code")
      .def_readonly("part", &base::CodeNote::part)
      .def_readonly("toolchain", &base::CodeNote::by)
      .def_readonly("kernels", &base::CodeNote::kernels)
      .def_readonly("calls", &base::CodeNote::calls)
      .def_readonly("bytes_before", &base::CodeNote::bytes_before)
      .def_readonly("bytes_after", &base::CodeNote::bytes_after)
      .def_readonly("times", &base::CodeNote::times)
      .def_property_readonly("texts", [](const base::CodeNote& n) {
        return std::map<std::string, std::string>(n.texts.begin(), n.texts.end());
      });
  line(py::class_<base::GraphNote>(m, "Graph"), &base::GraphNote::where)
      .def_readonly("text", &base::GraphNote::text)
      .def_readonly("nodes", &base::GraphNote::nodes)
      .def_readonly("guards", &base::GraphNote::guards)
      .def_readonly("fixed_sizes", &base::GraphNote::fixed_sizes)
      .def_readonly("backend", &base::GraphNote::backend)
      .def_readonly("fallback", &base::GraphNote::fallback)
      .def_readonly("code", &base::GraphNote::code)
      .def("__str__", [](const base::GraphNote& n) { return n.text; });
  line(py::class_<base::BreakNote>(m, "Break"), &base::BreakNote::where)
      .def_readonly("reason", &base::BreakNote::what)
      .def_readonly("cure", &base::BreakNote::cure)
      .def_readonly("count", &base::BreakNote::count)
      .def("__repr__",
           [](const base::BreakNote& n) { return n.where.file + ":" + std::to_string(n.where.line) + "  " + n.what; });
  line(py::class_<base::RecompileNote>(m, "Recompile"), &base::RecompileNote::where)
      .def_readonly("reason", &base::RecompileNote::reason)
      .def("__repr__", [](const base::RecompileNote& n) { return n.where.function + ": " + n.reason; });
  line(py::class_<base::FallbackNote>(m, "Fallback"), &base::FallbackNote::where)
      .def_readonly("reason", &base::FallbackNote::reason)
      .def_readonly("cure", &base::FallbackNote::cure)
      .def("__repr__", [](const base::FallbackNote& n) { return n.where.function + ": " + n.reason; });
  line(py::class_<base::CheckNote>(m, "Check"), &base::CheckNote::where)
      .def_readonly("what", &base::CheckNote::what)
      .def_readonly("operators", &base::CheckNote::operators)
      .def_property_readonly("pass_", [](const base::CheckNote& n) { return n.pass; })
      .def_readonly("script", &base::CheckNote::script)
      .def("__repr__",
           [](const base::CheckNote& n) { return n.where.file + ":" + std::to_string(n.where.line) + "  " + n.what; });
  using Content = base::Report::Content;
  py::class_<Content>(m, "Report")
      .def_readonly("graphs", &Content::graphs)
      .def_readonly("breaks", &Content::breaks)
      .def_readonly("recompiles", &Content::recompiles)
      .def_readonly("fallbacks", &Content::fallbacks)
      .def_readonly("checks", &Content::checks)
      .def_readonly("checked", &Content::checked)
      .def_property_readonly("graph_count", [](const Content& c) { return c.graphs.size(); })
      .def_property_readonly("break_count", [](const Content& c) { return c.breaks.size(); })
      .def_property_readonly("guards",
                             [](const Content& c) {
                               std::vector<std::string> all;
                               for (const auto& graph : c.graphs)
                                 all.insert(all.end(), graph.guards.begin(), graph.guards.end());
                               return all;
                             })
      .def_property_readonly("code", [](const Content& c) { return explain::texts(c); })
      .def("__str__", [](const Content& c) { return explain::describe(c, true); })
      .def("__repr__", [](const Content& c) { return explain::describe(c, false); });
  m.def("report", [] { return base::process_report().content(); });
  m.def("report_of",
        [](py::object compiled) { return base::process_report().content(capture::compiled_id(compiled.ptr())); });
}

// A thread that waits for another one's flush must not hold the GIL: the other may need it.
void wait_without_gil(void (*wait)(void*), void* argument) {
  if (!PyGILState_Check()) return wait(argument);
  py::gil_scoped_release release;
  wait(argument);
}

}  // namespace

}  // namespace magneto::bindings

PYBIND11_MODULE(_C, m) {
  using namespace magneto;
  capture::prepare();
  m.def("compile_function", &bindings::compile_function, py::arg("function"), py::arg("self"), py::arg("fullgraph"),
        py::arg("limit"), py::arg("dynamic"), py::arg("backend"), py::arg("check") = 0, py::arg("keeps_texts") = false);
  m.def("is_compiled", [](py::object object) { return capture::is_compiled(object.ptr()); });
  m.def("target_of", [](py::object compiled) {
    const auto or_none = [](PyObject* object) {
      return object ? py::reinterpret_borrow<py::object>(object) : py::object(py::none());
    };
    return py::make_tuple(or_none(capture::compiled_function(compiled.ptr())),
                          or_none(capture::compiled_self(compiled.ptr())));
  });
  m.def("settings_of", [](py::object compiled) {
    const capture::CompileOptions& options = capture::compile_options(compiled.ptr());
    const py::object backend = options.backend ? py::reinterpret_borrow<py::object>(options.backend.get())
                                               : py::object(py::str(options.compiles ? "magneto" : "eager"));
    return py::make_tuple(options.fullgraph, options.limit, options.dynamic, backend, options.check);
  });
  m.def("reset", [] {
    capture::reset_all();
    base::process_report().clear();
  });
  m.def("unsupported", []() -> py::object {
    const char* reason = evaluator::unsupported_interpreter();
    return reason ? py::object(py::str(reason)) : py::object(py::none());
  });
  m.def("disable_all", &capture::disable_all);
  m.def("substitute",
        [](py::object original, py::object replacement) { capture::substitute(original.ptr(), replacement.ptr()); });
  m.def("free_history", &aten::free_history);
  m.def("enter_checkpoint", [] {});  // what they mean, only a recording knows
  m.def("leave_checkpoint", [] {});
  capture::set_call_rule(m.attr("enter_checkpoint").ptr(),
                         {capture::CallClass::kCheckpoint, static_cast<uint32_t>(capture::CallTrait::kEnters)});
  capture::set_call_rule(m.attr("leave_checkpoint").ptr(), {capture::CallClass::kCheckpoint});
  bindings::add_report(m);
  driver::Pipeline::instance().toolchains.site_packages =
      py::module_::import("sys").attr("path").cast<std::vector<std::string>>();
  capture::set_compiler([](const auto& program, auto examples, base::GraphNote& note, const base::Poll& poll) {
    return driver::Pipeline::instance().build(program, examples, note, poll);
  });
  capture::set_backend_compiler(&bindings::compile_by_backend);
  aten::set_wait_runner(&bindings::wait_without_gil);
  aten::set_warner([](const std::string& what) {
    py::gil_scoped_acquire gil;
    capture::warn(what);
  });
  bindings::add_logs(m);
  py::module_ testing = m.def_submodule("_testing");
  bindings::add_evaluator_testing(testing.ptr());
  py::module_ testing_trace = m.def_submodule("_testing_trace");
  bindings::add_trace_testing(testing_trace);
}
