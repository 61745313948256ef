#include "capture/compiled.h"

#include <structmember.h>

#include <memory>
#include <unordered_set>

#include "base/report.h"
#include "base/text.h"
#include "capture/faults.h"
#include "capture/guards.h"
#include "capture/references.h"
#include "capture/session.h"
#include "capture/stance.h"

namespace magneto::capture {

namespace {

struct Compiled {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  ///< of a module: what its class has as __call__; nullptr: none that is written in Python
  PyObject* self;
  PyObject* dict;
  PyObject* weak_references;
  CaptureState* state;
  CompileOptions* options;
  bool is_module;  ///< calls `self`; else `function`, with `self` in front
};

std::unordered_set<Compiled*>& registry() {  // under the GIL
  static std::unordered_set<Compiled*> all;
  return all;
}

bool g_disabled = false;
uint64_t g_next_id = 1;

Compiled* cast(PyObject* object) { return reinterpret_cast<Compiled*>(object); }

PyObject* call_name() {
  static PyObject* name = PyUnicode_InternFromString("__call__");
  return name;
}

PyCodeObject* code_of(PyObject* function) {
  return function ? reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code) : nullptr;
}

// A class may get another __call__ (a tracer patches it), and a module another class (parametrizations, FSDP).
void find_call(Compiled* self) {
  PyObject* found = _PyType_Lookup(Py_TYPE(self->self), call_name());
  if (found && is_compiled(found) && !cast(found)->self) found = cast(found)->function;  // of a compiled class
  if (found && !PyFunction_Check(found)) found = nullptr;
  if (found == self->function) return;
  PyObject* before = std::exchange(self->function, Py_XNewRef(found));
  Py_XDECREF(before);
}

PyObject* plain_call(Compiled* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!self->function) return PyObject_Vectorcall(self->self, args, nargsf, kwnames);
  if (!self->self) return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf)),
         count = positional + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  std::vector<PyObject*> all{nullptr, self->self};
  all.insert(all.end(), args, args + count);
  return PyObject_Vectorcall(self->function, all.data() + 1, (positional + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             kwnames);
}

// fullgraph=True, or error_on_graph_break(True) where the breaks are: an error that lists all of them.
PyObject* refuse_breaks(Compiled* self, const std::vector<base::BreakNote>& breaks) {
  base::Report::Content content;
  content.breaks = breaks;
  std::string text = base::concat("magneto: ", self->options->fullgraph ? "fullgraph" : "error_on_graph_break",
                                  "=True, but ", self->state->name, " has ", breaks.size(), " break(s)\n");
  for (const base::BreakNote& note : breaks)
    text += "\n" + note.where.file + ":" + std::to_string(note.where.line) + "  " + base::source_line(note.where) +
            "\n  what: " + note.what + "\n  cure: " + note.cure + "\n";
  PyErr_SetString(PyExc_RuntimeError, text.c_str());
  return nullptr;
}

PyObject* run_session(Compiled* self, PyObject* const* args, size_t positional, PyObject* kwnames,
                      std::shared_ptr<Segment> first, GuardContext* context,
                      std::shared_ptr<Segment> missed = nullptr) {
  Ref alive = Ref::share(reinterpret_cast<PyObject*>(self));
  Session session(*self->state, self->function, self->self, args, positional, kwnames);
  if (first) session.start_with(std::move(first), std::move(*context));
  if (missed) session.leave_out(std::move(missed));
  PyObject* result = session.run();
  if (!result || session.breaks().empty()) return result;
  Py_DECREF(result);
  return refuse_breaks(self, session.breaks());
}

/// Inside of another one's recording its frame becomes a part of that. One that must have no breaks watches itself.
bool is_inlined(const Compiled* self) {
  if (self->options->fullgraph) return false;
  const Director* director = current_director();
  return director && director->records();
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Compiled* self = cast(object);
  if (self->is_module && self->self) find_call(self);
  if (!self->function && !self->self) {
    PyErr_SetString(PyExc_ReferenceError, "magneto: the garbage collector has ended this compiled function");
    return nullptr;
  }
  PyCodeObject* code = code_of(self->function);
  PyThreadState* thread = PyThreadState_Get();
  // Generators and coroutines only make an object here. A debugger or profiler wants to see every frame.
  if (g_disabled || !code || code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) ||
      is_observed(thread, code) || is_inlined(self))
    return plain_call(self, args, nargsf, kwnames);
  if (reinterpret_cast<PyObject*>(code) != self->state->root->code.get()) {  // f.__code__ = other: all is new
    self->state->forget(code);
  }
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  FrameCache::Entry& entry = self->state->root->start;
  const Stance stance = current_stance();
  if (entry.given_up || stance == Stance::kForceEager) return plain_call(self, args, nargsf, kwnames);
  if (stance == Stance::kEagerThenCompile && !std::exchange(self->state->ran_in_eager, true) && entry.segments.empty())
    return plain_call(self, args, nargsf, kwnames);
  if (!entry.segments.empty()) {
    GuardContext context;
    context.roots = args;
    context.root_count = positional + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
    std::shared_ptr<Segment> segment;
    try {
      fault_point("guards");
      segment = find_segment(entry, context, positional, kwnames);
    } catch (const std::exception& fault) {
      PyErr_Clear();
      warn_of_fault(*self->state, {}, fault.what());
      return plain_call(self, args, nargsf, kwnames);
    }
    if (segment && segment->returns && lets_an_end_go(*segment, context, {})) segment = nullptr;
    if (segment && !segment->returns) {
      return run_session(self, args, positional, kwnames, std::move(segment), &context);
    }
    if (segment) {
      BuildContext built;
      switch (run_segment(*segment, context, built)) {
        case Outcome::kDone:
          return build(segment->result, built);
        case Outcome::kRaised:
          return nullptr;
        case Outcome::kMissed:
          if (note_miss(*self->state, entry, segment, built)) segment = nullptr;
          return run_session(self, args, positional, kwnames, nullptr, nullptr, std::move(segment));
        case Outcome::kFault:
          warn_of_fault(*self->state, {}, built.fault);
          [[fallthrough]];
        case Outcome::kEager:
          return plain_call(self, args, nargsf, kwnames);
      }
    }
  }
  return run_session(self, args, positional, kwnames, nullptr, nullptr);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Compiled* self = cast(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->function);
  Py_VISIT(self->self);
  Py_VISIT(self->dict);
  Py_VISIT(self->options->backend.get());
  return visit_references(*self->state->root, visit, arg);
}

int clear(PyObject* object) {
  Compiled* self = cast(object);
  self->state->forget(nullptr);
  self->state->backend = nullptr;
  self->options->backend = {};
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  Py_CLEAR(self->self);
  return 0;
}

void deallocate(PyObject* object) {
  Compiled* self = cast(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  registry().erase(self);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  delete self->state;
  delete self->options;
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  Py_CLEAR(self->self);
  type->tp_free(object);
  Py_DECREF(type);
}

// torch.fx patches the __call__ of modules and wants to see the very objects that the traced module holds.
bool is_fx_tracing() {
  static PyObject* name = PyUnicode_InternFromString("torch.fx._symbolic_trace");
  const ErrorAside aside;
  Ref module = Ref::take(PyImport_GetModule(name));
  Ref flag = module ? Ref::take(PyObject_GetAttrString(module.get(), "_is_fx_tracing_flag")) : Ref();
  return flag.get() == Py_True;
}

// The class of a compiled module may have other objects (made by calling it, by copies, of its subclasses): what has
// another state is called as it is.
bool calls_as_it_is(Compiled* self, PyObject* instance) {
  if (!instance || instance_dict(instance) != instance_dict(self->self)) return true;
  return _PyType_Lookup(Py_TYPE(self->self), call_name()) != self->function && is_fx_tracing();
}

// As a method in a class body it binds like a function; with a self of its own it is what it is.
PyObject* descriptor_get(PyObject* object, PyObject* instance, PyObject*) {
  Compiled* self = cast(object);
  if (instance == Py_None) instance = nullptr;
  if (self->is_module && self->self && calls_as_it_is(self, instance)) {
    PyTypeObject* type = Py_TYPE(self->self);
    Ref found = Ref::share(_PyType_Lookup(type, call_name()));
    descrgetfunc get = found ? Py_TYPE(found.get())->tp_descr_get : nullptr;
    if (get) return get(found.get(), instance, reinterpret_cast<PyObject*>(type));
    if (found) return found.release();
  }
  return instance && !self->self ? PyMethod_New(object, instance) : Py_NewRef(object);
}

PyObject* represent(PyObject* object) {
  Compiled* self = cast(object);
  return PyUnicode_FromFormat("<magneto compiled %R>", self->function ? self->function : Py_None);
}

PyObject* same_object(PyObject* object, PyObject*) { return Py_NewRef(object); }  // like a function

// Like a bound method: that of a copied object is the copy's.
PyObject* deep_copy(PyObject* object, PyObject* memo) {
  Compiled* self = cast(object);
  if (!self->self) return Py_NewRef(object);
  Ref module = Ref::take(PyImport_ImportModule("copy"));
  Ref twin = module ? Ref::take(PyObject_CallMethod(module.get(), "deepcopy", "OO", self->self, memo)) : Ref();
  if (!twin) return nullptr;
  Ref made = Ref::take(new_compiled(self->is_module ? nullptr : self->function, twin.get(), *self->options));
  if (made && self->dict && !(cast(made.get())->dict = PyDict_Copy(self->dict))) return nullptr;
  return made.release();
}

PyObject* reduce(PyObject* object, PyObject*) {
  Ref module = Ref::take(PyImport_ImportModule("magneto._api"));
  return module ? PyObject_CallMethod(module.get(), "_reduced", "O", object) : nullptr;
}

PyMethodDef methods[] = {{"__copy__", same_object, METH_NOARGS, nullptr},
                         {"__deepcopy__", deep_copy, METH_O, nullptr},
                         {"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, vectorcall), READONLY, nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weak_references), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef getters[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(descriptor_get)},
                       {Py_tp_repr, reinterpret_cast<void*>(represent)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getters},
                       {0, nullptr}};

PyType_Spec spec = {
    "magneto.Compiled", sizeof(Compiled), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

void prepare() { Recorder::prepare(); }

PyTypeObject* compiled_type() {
  static PyTypeObject* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

bool is_compiled(PyObject* object) { return Py_TYPE(object) == compiled_type(); }
PyObject* compiled_function(PyObject* compiled) {
  return cast(compiled)->is_module ? nullptr : cast(compiled)->function;
}
PyObject* compiled_self(PyObject* compiled) { return cast(compiled)->self; }
uint64_t compiled_id(PyObject* compiled) { return cast(compiled)->state->id; }
const CompileOptions& compile_options(PyObject* compiled) { return *cast(compiled)->options; }

PyObject* new_compiled(PyObject* function, PyObject* self, const CompileOptions& options) {
  PyTypeObject* type = compiled_type();
  if (!type) return nullptr;
  if (function ? !PyFunction_Check(function) : !self) {
    PyErr_Format(PyExc_TypeError, "magneto: %s is no Python function",
                 function ? Py_TYPE(function)->tp_name : "nothing");
    return nullptr;
  }
  Compiled* object = PyObject_GC_New(Compiled, type);
  if (!object) return nullptr;
  object->vectorcall = call;
  object->function = Py_XNewRef(function);
  object->self = Py_XNewRef(self);
  object->dict = nullptr;
  object->weak_references = nullptr;
  object->is_module = !function;
  if (!function) find_call(object);
  object->options = new CompileOptions(options);
  object->state = new CaptureState(code_of(object->function));
  object->state->id = g_next_id++;
  object->state->limit = options.limit;
  object->state->fullgraph = options.fullgraph;
  object->state->compiles = options.compiles;
  object->state->backend = options.backend.get();
  object->state->keeps_texts = options.keeps_texts;
  object->state->check = options.check;
  object->state->dynamic = options.dynamic;
  PyObject* name = object->function ? reinterpret_cast<PyFunctionObject*>(object->function)->func_qualname : nullptr;
  const char* text = name ? PyUnicode_AsUTF8(name) : Py_TYPE(self)->tp_name;
  if (!text) PyErr_Clear();
  object->state->name = text ? text : "?";
  registry().insert(object);
  PyObject_GC_Track(object);
  return reinterpret_cast<PyObject*>(object);
}

void reset_all() {
  std::vector<Ref> all;  // forgetting may end some of them
  for (Compiled* compiled : registry()) all.push_back(Ref::share(reinterpret_cast<PyObject*>(compiled)));
  for (const Ref& compiled : all) {
    CaptureState& state = *cast(compiled.get())->state;
    state.forget(reinterpret_cast<PyCodeObject*>(state.root->code.get()));
  }
}

void disable_all(std::string reason) {
  g_disabled = true;
  base::process_report().add(base::FallbackNote{0, {}, std::move(reason), "use a CPython version that is supported"});
}

}  // namespace magneto::capture
