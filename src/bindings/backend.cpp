#include "bindings/backend.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "aten/types.h"
#include "base/check.h"
#include "base/text.h"
#include "evaluator/hook.h"

namespace magneto::bindings {

namespace py = pybind11;
using graph::ValueId;

namespace {

/// One graph of torch.fx, node by node.
class FxBuilder {
 public:
  FxBuilder(const graph::Graph& graph, const std::vector<at::Tensor>& constants)
      : graph_(graph),
        constants_(constants),
        torch_(py::module_::import("torch")),
        fx_(py::module_::import("torch.fx")),
        getitem_(py::module_::import("operator").attr("getitem")),
        fake_(py::module_::import("torch._subclasses.fake_tensor").attr("FakeTensorMode")()),
        root_(torch_.attr("nn").attr("Module")()),
        made_(fx_.attr("Graph")()),
        nodes_(graph.values().size()) {}

  py::object build() {
    add_nodes();
    return fx_.attr("GraphModule")(root_, made_);
  }

 private:
  /// `with mode:`, as long as it lives.
  struct Entered {
    explicit Entered(py::object with) : mode(std::move(with)) { mode.attr("__enter__")(); }
    ~Entered() { mode.attr("__exit__")(py::none(), py::none(), py::none()); }
    Entered(const Entered&) = delete;
    const py::object mode;
  };

  void add_nodes() {
    const Entered fakes(fake_);  // what describes a value has no data
    for (const ValueId id : graph_.inputs()) {
      nodes_[id.index()] = made_.attr("placeholder")(legal(graph_.value(id).name, "input"));
      describe(nodes_[id.index()], id);
    }
    for (size_t c = 0; c < constants_.size(); ++c) {
      const std::string name = base::concat("_tensor_constant", c);
      const ValueId id = graph_.constants()[c];
      root_.attr("register_buffer")(name, py::cast(constants_[c]));
      nodes_[id.index()] = made_.attr("get_attr")(name);
      describe(nodes_[id.index()], id);
    }
    bool grad = graph_.nodes().empty() || graph_.nodes().front().grad;  // as it is when the module is called
    const bool at_first = grad;
    const auto set_grad = [&](bool on) {
      if (std::exchange(grad, on) != on) call(torch_.attr("_C").attr("_set_grad_enabled"), py::make_tuple(on), {});
    };
    for (const graph::Node& node : graph_.nodes()) {
      set_grad(node.grad);
      add(node);
    }
    set_grad(at_first);
    py::list outputs;
    for (const ValueId id : graph_.outputs) outputs.append(node_of(id));
    made_.attr("output")(py::tuple(outputs));
  }

  static std::string legal(const std::string& name, const char* otherwise) {
    std::string made;
    for (const char c : name)
      if (std::isalnum(static_cast<unsigned char>(c)))
        made += c;
      else if (!made.empty() && made.back() != '_')
        made += '_';
    while (!made.empty() && made.back() == '_') made.pop_back();
    return made.empty() || std::isdigit(static_cast<unsigned char>(made[0])) ? otherwise + made : made;
  }

  py::object node_of(ValueId id) const { return id.valid() ? nodes_[id.index()] : py::none(); }

  py::object call(const py::object& target, const py::tuple& args, const py::dict& kwargs) {
    return made_.attr("call_function")(target, args, kwargs);
  }

  /// A tensor without data that looks like the value: under both names that backends look for.
  void describe(const py::object& node, ValueId id) {
    const types::TensorType& type = graph_.value(id).type;
    const auto numbers = [](const types::Sizes& sizes) {
      py::list list;
      for (const types::Expr& size : sizes) list.append(size.value_or(0));
      return list;
    };
    const py::object fake = torch_.attr("empty_strided")(numbers(type.sizes), numbers(type.strides),
                                                         py::arg("dtype") = py::cast(aten::to_scalar_type(type.dtype)),
                                                         py::arg("device") = py::cast(aten::to_torch(type.device)));
    py::dict meta = node.attr("meta");
    meta["val"] = fake;
    meta["example_value"] = fake;
  }

  /// torch.ops.aten.add.Tensor
  py::object target_of(const std::string& op) {
    const size_t colons = op.find("::"), dot = op.find('.', colons);
    const std::string overload = dot == std::string::npos ? "default" : op.substr(dot + 1);
    const std::string name = op.substr(colons + 2, dot == std::string::npos ? dot : dot - colons - 2);
    return torch_.attr("ops").attr(op.substr(0, colons).c_str()).attr(name.c_str()).attr(overload.c_str());
  }

  struct ToPython {
    const FxBuilder& self;
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(ValueId id) const { return self.node_of(id); }
    py::object operator()(const types::Expr& e) const {
      base::check(e.is_constant(), "backend: a size that has no value");
      return py::int_(e.value_or(0));
    }
    template <class Item>
    py::object operator()(const std::vector<Item>& items) const {
      py::list made;
      for (const auto& item : items) made.append((*this)(static_cast<Item>(item)));
      return made;
    }
    py::object operator()(double number) const { return py::float_(number); }
    py::object operator()(bool flag) const { return py::bool_(flag); }
    py::object operator()(std::complex<double> number) const {
      return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(number.real(), number.imag()));
    }
    py::object operator()(const std::string& text) const { return py::str(text); }
    py::object operator()(types::Dtype dtype) const { return py::cast(aten::to_scalar_type(dtype)); }
    py::object operator()(types::Device device) const { return py::cast(aten::to_torch(device)); }
    py::object operator()(types::Layout) const { return self.torch_.attr("strided"); }
    py::object operator()(types::MemoryFormat format) const { return py::cast(aten::to_torch(format)); }
    py::object operator()(graph::Real) const { throw base::Fault("backend: a float that has no value"); }
  };
  py::object to_python(const graph::Arg& arg) const { return std::visit(ToPython{*this}, arg); }

  void add(const graph::Node& node) {
    const py::object target = target_of(node.op);
    const py::list arguments(target.attr("_schema").attr("arguments"));
    py::list args;
    py::dict kwargs;
    size_t last = 0;  // of the positional ones that are not what they are anyway
    for (size_t a = 0; a < node.args.size(); ++a) {
      const py::object declared = arguments[a], value = to_python(node.args[a]);
      const bool is_default = declared.attr("has_default_value")().cast<bool>() &&
                              !py::isinstance(value, fx_.attr("Node")) && !py::isinstance<py::list>(value) &&
                              value.equal(py::object(declared.attr("default_value")));
      if (declared.attr("kwarg_only").cast<bool>()) {
        if (!is_default) kwargs[declared.attr("name")] = value;
        continue;
      }
      args.append(value);
      if (!is_default) last = args.size();
    }
    const py::object made = call(target, py::tuple(args[py::slice(0, static_cast<py::ssize_t>(last), 1)]), kwargs);
    if (const graph::Place& place = graph_.places().at(node.place); !place.file.empty())
      py::dict(made.attr("meta"))["stack_trace"] =
          base::concat("  File \"", place.file, "\", line ", place.line, ", in ", place.function, "\n");
    name_results(node, target, made);
  }

  /// Results of a schema are flat in the graph: those of lists stand one after the other.
  void name_results(const graph::Node& node, const py::object& target, const py::object& made) {
    const py::list returns(target.attr("_schema").attr("returns"));
    const py::object tensor_type = torch_.attr("_C").attr("TensorType").attr("get")();
    const auto is_tensor = [&](const py::object& one) { return py::object(one.attr("type")).equal(tensor_type); };
    const auto name = [&](size_t output, const py::object& by) {
      const ValueId id = output < node.outputs.size() ? node.outputs[output] : ValueId();
      if (!id.valid()) return;
      nodes_[id.index()] = by;
      describe(by, id);
    };
    const auto item = [&](const py::object& of, size_t k) { return call(getitem_, py::make_tuple(of, k), {}); };
    if (returns.size() == 1 && is_tensor(returns[0])) return name(0, made);
    size_t output = 0, tensors = 0;
    for (const py::handle one : returns) tensors += is_tensor(py::reinterpret_borrow<py::object>(one));
    for (size_t r = 0; r < returns.size() && output < node.outputs.size(); ++r) {
      const py::object whole = returns.size() == 1 ? made : item(made, r);
      if (is_tensor(returns[r])) {
        name(output++, whole);
        continue;
      }
      if (!py::isinstance(returns[r].attr("type"), torch_.attr("_C").attr("ListType"))) continue;  // a number
      // torch has no operator with two lists of unknown lengths
      const size_t count = node.outputs.size() - tensors;
      for (size_t k = 0; k < count; ++k) name(output++, item(whole, k));
    }
  }

  const graph::Graph& graph_;
  const std::vector<at::Tensor>& constants_;
  const py::module_ torch_, fx_;
  const py::object getitem_, fake_, root_, made_;
  std::vector<py::object> nodes_;  ///< of each value
};

/// What is under way runs as it is: nothing of it is recorded, and casts stand in the graph.
struct Undisturbed {
  evaluator::Hooked nobody{nullptr};
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

[[noreturn]] void refuse(const std::string& text) {
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw py::error_already_set();
}

/// The symbols that something in the graph depends on, in order.
std::vector<uint32_t> symbols_of(const graph::Graph& graph) {
  std::vector<uint32_t> found;
  for (const graph::Value& value : graph.values()) {
    for (const auto* list : {&value.type.sizes, &value.type.strides})
      for (const types::Expr& e : *list) e.collect_symbols(found);
    value.type.offset.collect_symbols(found);
  }
  for (const graph::Node& node : graph.nodes())
    for (const graph::Arg& arg : node.args) {
      if (const auto* one = std::get_if<types::Expr>(&arg)) one->collect_symbols(found);
      if (const auto* real = std::get_if<graph::Real>(&arg)) found.push_back(real->symbol);
      if (const auto* list = std::get_if<types::Sizes>(&arg))
        for (const types::Expr& e : *list) e.collect_symbols(found);
    }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

class BackendCode final : public aten::Executable {
 public:
  BackendCode(py::object backend, std::shared_ptr<aten::Program> program)
      : backend_(std::move(backend)), program_(std::move(program)), used_(symbols_of(program_->graph())) {}
  ~BackendCode() override {
    const py::gil_scoped_acquire gil;
    code_.clear();
    backend_ = {};
  }

  /// For these values of symbols; nothing: there are so many that the graph itself runs.
  py::object code_for(std::span<const at::Tensor> inputs, std::span<const int64_t> symbols) const {
    std::vector<int64_t> key;
    for (const uint32_t symbol : used_) key.push_back(symbols[symbol]);
    if (const auto known = code_.find(key); known != code_.end()) return known->second;
    if (code_.size() >= kMost) return {};
    const graph::Graph& graph = program_->graph();
    const py::object module = fx_module(used_.empty() ? graph : graph::evaluate(graph, symbols), program_->constants());
    py::list examples;
    for (const at::Tensor& input : inputs) examples.append(py::cast(input));
    const Undisturbed undisturbed;
    py::object made = backend_(module, examples);
    if (!PyCallable_Check(made.ptr())) refuse("a backend returns a callable for the graph that it gets");
    return code_.emplace(key, std::move(made)).first->second;
  }

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, aten::Tensors& outputs) const override {
    {
      const py::gil_scoped_acquire gil;
      try {
        if (const py::object code = code_for(inputs, symbols)) return run(code, inputs, outputs);
      } catch (...) {
        return {std::current_exception(), 0, /*changed=*/true};  // as it is: nobody repeats the call in eager
      }
    }
    return program_->run(inputs, symbols, outputs);
  }

  bool writes_inputs() const override { return program_->writes_inputs(); }

 private:
  Failure run(const py::object& code, std::span<at::Tensor> inputs, aten::Tensors& outputs) const {
    py::tuple args(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) args[i] = py::cast(std::exchange(inputs[i], {}));
    const graph::Graph& graph = program_->graph();
    const Undisturbed undisturbed;
    const c10::AutoGradMode grad(graph.nodes().empty() ? c10::GradMode::is_enabled() : graph.nodes().front().grad);
    const py::object results = code(*args);
    if (!py::isinstance<py::tuple>(results) && !py::isinstance<py::list>(results))
      refuse(base::concat("what a backend returns gives a tuple of ", graph.outputs.size(), " tensors, not ",
                          Py_TYPE(results.ptr())->tp_name));
    const py::list list(results);
    if (list.size() != graph.outputs.size())
      refuse(base::concat("what a backend returns gives a tuple of ", graph.outputs.size(), " tensors, not of ",
                          list.size()));
    for (const py::handle result : list) outputs.push_back(result.is_none() ? at::Tensor() : result.cast<at::Tensor>());
    return {};
  }

  static constexpr size_t kMost = 8;
  py::object backend_;
  const std::shared_ptr<aten::Program> program_;
  const std::vector<uint32_t> used_;
  mutable std::map<std::vector<int64_t>, py::object> code_;  ///< by values of symbols; under the GIL
};

}  // namespace

py::object fx_module(const graph::Graph& graph, const std::vector<at::Tensor>& constants) {
  return FxBuilder(graph, constants).build();
}

std::shared_ptr<aten::Executable> compile_by_backend(PyObject* backend, const std::shared_ptr<aten::Program>& program,
                                                     std::span<const at::Tensor> examples,
                                                     std::span<const int64_t> symbols) {
  auto made = std::make_shared<BackendCode>(py::reinterpret_borrow<py::object>(backend), program);
  try {
    made->code_for(examples, symbols);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
  return made;
}

}  // namespace magneto::bindings
