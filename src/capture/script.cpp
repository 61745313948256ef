#include "capture/script.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <string_view>
#include <unordered_set>

#include "capture/evaluator.h"

namespace magneto::capture {

namespace jit = torch::jit;

namespace {

PyTypeObject* type_in_torch(const char* name) {
  Ref module = Ref::take(PyImport_ImportModule("torch._C"));
  PyObject* type = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  PyErr_Clear();
  return type && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type) : nullptr;
}
PyTypeObject* function_type() {
  static PyTypeObject* const type = type_in_torch("ScriptFunction");
  return type;
}
PyTypeObject* method_type() {
  static PyTypeObject* const type = type_in_torch("ScriptMethod");
  return type;
}

/// Values of this type are no tensors and hold none.
bool is_number_like(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::DictType:
      for (const c10::TypePtr& part : type.containedTypes())
        if (!is_number_like(*part)) return false;
      return true;
    default:
      return false;
  }
}

// Operators of the interpreter itself that meet tensors and only hand them on, or ask for what is guarded anyway.
bool only_hands_on(const char* name) {
  static const std::unordered_set<std::string_view> names = {
      "prim::If", "prim::Loop", "prim::TupleConstruct", "prim::TupleUnpack", "prim::TupleIndex", "prim::TupleSlice",
      "prim::ListConstruct", "prim::ListUnpack", "prim::DictConstruct", "prim::unchecked_cast",
      "prim::unchecked_unwrap_optional", "aten::_unwrap_optional", "prim::Uninitialized", "prim::isinstance",
      "aten::__is__", "aten::__isnot__",
      // lists and dicts of tensors
      "aten::__getitem__", "aten::_set_item", "aten::append", "aten::extend", "aten::insert", "aten::pop",
      "aten::reverse", "aten::copy", "aten::list", "aten::slice", "aten::add", "aten::add_", "aten::len", "aten::keys",
      "aten::values", "aten::items", "aten::get",
      // properties
      "aten::size", "aten::dim", "aten::stride", "aten::numel", "prim::device", "prim::dtype", "prim::layout",
      "prim::is_cuda", "prim::is_cpu", "prim::is_meta", "prim::is_sparse", "prim::is_quantized", "prim::is_nested",
      "prim::requires_grad", "prim::ndim", "aten::is_floating_point", "aten::to"};
  return names.count(name) > 0;
}

// The interpreter makes tensors of numbers behind the dispatcher's back. Here the same is said in operators that pass
// it. A float becomes a tensor of the default dtype first, as it does there.
bool make_by_operators(jit::Node& node) {
  auto* scalar = node.input(0);
  c10::TypeKind kind = scalar->type()->kind();
  bool from_trace = node.kind() == c10::prim::NumToTensor;
  std::optional<c10::ScalarType> dtype;
  if (kind == c10::TypeKind::IntType)
    dtype = c10::kLong;
  else if (kind == c10::TypeKind::BoolType)
    dtype = c10::kBool;
  else if (kind != c10::TypeKind::FloatType)
    return false;
  else if (from_trace)
    dtype = c10::kDouble;
  if (!from_trace) {
    if (node.inputs().size() != 4) return false;
    auto wants_gradient = jit::toIValue(node.input(3));
    if (!wants_gradient || !wants_gradient->isBool() || wants_gradient->toBool()) return false;
  }
  jit::Graph& graph = *node.owningGraph();
  jit::WithInsertPoint place(&node);
  std::vector<jit::NamedValue> options;
  if (dtype) options.emplace_back("dtype", c10::IValue(static_cast<int64_t>(*dtype)));
  jit::Value* made = graph.insert(c10::Symbol::fromQualString("aten::scalar_tensor"), {scalar}, options);
  if (!from_trace) made = graph.insert(c10::Symbol::fromQualString("aten::to"), {made, node.input(2), node.input(1)});
  made->setType(node.output()->type());
  node.output()->replaceAllUsesWith(made);
  return true;
}

class Reader {
 public:
  /// false: `stop` and `detail` say why.
  bool read(jit::Block& block) {
    for (auto at = block.nodes().begin(); at != block.nodes().end();) {
      jit::Node& node = **at;
      ++at;
      for (jit::Block* inner : node.blocks())
        if (!read(*inner)) return false;
      if (!allows(node)) {
        detail = node.kind().toQualString();
        return false;
      }
    }
    return true;
  }

  Stop stop = Stop::kOpaqueCall;
  std::string detail;

 private:
  bool allows(jit::Node& node) {
    if (node.kind() == c10::prim::Constant) {
      // A tensor that the graph knows may change; whether the function sees it depends on what its executor did with
      // it.
      return is_number_like(*node.output()->type()) || node.mustBeNone() || node.output()->uses().empty();
    }
    if (node.kind() == c10::prim::RaiseException) return true;  // an error invalidates the recording
    const jit::Operator* op = node.maybeOperator();
    if (op && op->isC10Op()) return true;
    if (std::string_view(node.kind().toQualString()) == "aten::tensor" || node.kind() == c10::prim::NumToTensor) {
      if (!make_by_operators(node)) return false;
      node.destroy();
      return true;
    }
    if (node.hasSideEffects()) return false;
    if (only_hands_on(node.kind().toQualString())) return true;
    bool tensors_in = false, tensors_out = false;
    for (jit::Value* input : node.inputs()) tensors_in = tensors_in || !is_number_like(*input->type());
    for (jit::Value* output : node.outputs()) tensors_out = tensors_out || !is_number_like(*output->type());
    if (tensors_in && !tensors_out) stop = Stop::kTensorData;
    return !tensors_in && !tensors_out;
  }
};

}  // namespace

void Script::prepare() {
  function_type();
  method_type();
}

bool Script::is_scripted(PyObject* callable) {
  return Py_TYPE(callable) == function_type() || Py_TYPE(callable) == method_type();
}

Script::Script(PyObject* callable) : callable_(callable) {
  stop_ = Stop::kOpaqueCall;
  detail_ = "a method of a scripted module";
  if (Py_TYPE(callable) != function_type()) return;  // it reads attributes that no guard sees
  const auto strong = py::handle(callable).cast<jit::StrongFunctionPtr>();
  owner_ = strong.cu_;
  function_ = strong.function_;
  detail_ = "the scripted function " + function_->name();
  auto* with_graph = jit::tryToGraphFunction(*function_);
  if (!with_graph) return;
  Reader reader;
  try {
    graph_ = with_graph->graph()->copy();
    jit::Inline(*graph_);
    if (reader.read(*graph_->block())) stop_ = Stop::kNone;
  } catch (const std::exception& error) {
    reader.detail = error.what();
  }
  if (stop_ == Stop::kNone) return;
  stop_ = reader.stop;
  detail_ += " (" + reader.detail + ")";
}

PyObject* Script::run(PyObject* const* args, size_t nargsf, PyObject* kwnames) const {
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  jit::Stack stack;
  try {
    py::tuple tuple(positional);
    for (size_t i = 0; i < positional; ++i) tuple[i] = py::reinterpret_borrow<py::object>(args[i]);
    py::kwargs keywords;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
      keywords[PyTuple_GET_ITEM(kwnames, i)] =
          py::reinterpret_borrow<py::object>(args[positional + static_cast<size_t>(i)]);
    stack = jit::createStackForSchema(function_->getSchema(), jit::tuple_slice(tuple), keywords, std::nullopt);
  } catch (const std::exception&) {
    PyErr_Clear();
    return PyObject_Vectorcall(callable_, args, nargsf, kwnames);  // torch says what is wrong with the arguments
  }
  // pybind11 turns what the interpreter throws into the exception that a call of the function raises.
  py::cpp_function interpret([&] {
    jit::InterpreterState(jit::Code(graph_, function_->name())).run(stack);
    return jit::toPyObject(std::move(stack.back()));
  });
  return PyObject_CallNoArgs(interpret.ptr());
}

}  // namespace magneto::capture
