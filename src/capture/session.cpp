#include "capture/session.h"

#include <opcode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/text.h"
#include "capture/faults.h"
#include "capture/recorder_ends_internal.h"
#include "capture/stance.h"
#include "capture/state_word.h"
#include "capture/substitutes.h"
#include "graph/text.h"

namespace magneto::capture {

// ---------------------------------------------------------------------------------------------------- replay

static bool repeat(const Effect& effect, BuildContext& built) {
  switch (effect.kind) {
    case Effect::Kind::kCall: {
      std::vector<Ref> args;
      std::vector<PyObject*> pointers{nullptr};
      for (const Recipe& arg : effect.args) {
        args.push_back(Ref::take(build(arg, built)));
        if (!args.back()) return false;
        pointers.push_back(args.back().get());
      }
      Ref result = Ref::take(PyObject_Vectorcall(effect.callable.get(), pointers.data() + 1,
                                                 args.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      built.effect_results.push_back(result);
      return static_cast<bool>(result);
    }
    default:
      break;
  }
  Ref target = Ref::take(build(effect.target, built));
  Ref key = Ref::take(build(effect.key, built));
  Ref value = Ref::take(build(effect.value, built));
  built.effect_results.emplace_back();
  if (!target || (effect.value.kind != Recipe::Kind::kNull && !value)) return false;
  switch (effect.kind) {
    case Effect::Kind::kSetAttr:
      return (effect.generic ? PyObject_GenericSetAttr(target.get(), key.get(), value.get())
                             : PyObject_SetAttr(target.get(), key.get(), value.get())) == 0;
    case Effect::Kind::kSetItem:
      if (PyODict_Check(target.get()))
        return (value ? PyODict_SetItem(target.get(), key.get(), value.get())
                      : PyODict_DelItem(target.get(), key.get())) == 0;
      if (PyDict_Check(target.get()))
        return (value ? PyDict_SetItem(target.get(), key.get(), value.get())
                      : PyDict_DelItem(target.get(), key.get())) == 0;
      return (value ? PyObject_SetItem(target.get(), key.get(), value.get())
                    : PyObject_DelItem(target.get(), key.get())) == 0;
    case Effect::Kind::kSetCell:
      return PyCell_Set(target.get(), value.get()) == 0;
    case Effect::Kind::kCall:
      break;
  }
  return false;
}

/// Whatever ends the scope, the lock is held again after it.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

/// The words of a fault of our own; empty: it is an error that eager will raise.
static std::string fault_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const base::Fault& fault) {
    return fault.what();
  } catch (...) {
    return {};
  }
}

static Outcome replay(Segment& segment, GuardContext& context, BuildContext& built, bool* changed) {
  fault_point("replay");
  built.guards = &context;
  built.memo.assign(segment.memo_count, nullptr);
  // The guards found them and hold none. An effect takes an object away from where it was found, another thread may do
  // so while the graph runs, and a recipe still means that object.
  for (SourceId source : segment.kept) built.keep.push_back(Ref::share(context.at(source)));
  if (segment.executable) {
    c10::SmallVector<at::Tensor, 8> inputs, outputs;
    for (const Segment::Input& input : segment.inputs)
      inputs.push_back(tensor_of(input.weak ? PyWeakref_GET_OBJECT(input.weak.get()) : context.at(input.source)));
    aten::Executable::Failure failure;
    *changed = segment.executable->writes_inputs();
    try {
      torch::PyWarningHandler warnings;
      {
        const WithoutGil others_may_run;
        failure = segment.executable->run({inputs.data(), inputs.size()}, context.symbols, outputs);
      }
      if (failure.error) warnings.set_in_exception();
    } catch (const python_error&) {
      return Outcome::kRaised;  // a warning that was turned into an error
    }
    if (failure.error) {
      // Nothing has happened yet: eager raises it at its own line. Otherwise the error is raised as it is.
      if (!failure.changed) {
        built.fault = fault_of(failure.error);
        return built.fault.empty() ? Outcome::kEager : Outcome::kFault;
      }
      torch::translate_exception_to_python(failure.error);
      return Outcome::kRaised;
    }
    for (at::Tensor& output : outputs) built.outputs.push_back(Ref::take(THPVariable_Wrap(std::move(output))));
  }
  *changed = *changed || !segment.effects.empty();
  for (const Effect& effect : segment.effects)
    if (!repeat(effect, built)) return Outcome::kRaised;
  return Outcome::kDone;
}

Outcome run_segment(Segment& segment, GuardContext& context, BuildContext& built) {
  bool changed = false;
  try {
    return replay(segment, context, built, &changed);
  } catch (const std::exception& fault) {
    PyErr_Clear();
    built.fault = fault.what();
    if (!changed) return Outcome::kFault;
    // A part was done, and eager must not do it again.
    PyErr_Format(PyExc_RuntimeError, "magneto: a fault of its own: %s. Please report this.", fault.what());
    return Outcome::kRaised;
  }
}

void warn_of_fault(CaptureState& state, const base::Line& where, const std::string& what) {
  if (state.warned_of_fault) return;
  state.warned_of_fault = true;
  const ErrorAside aside;
  Hooked nobody(nullptr);
  if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                       "magneto: a fault of its own at %s:%d in %s: %s. The line runs in eager. Please report this.",
                       where.file.c_str(), where.line, where.function.c_str(), what.c_str()) < 0)
    PyErr_Clear();  // warnings are errors here; the call still returns what eager returns
}

void warn(const std::string& what) {
  const ErrorAside aside;
  Hooked nobody(nullptr);
  if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: %s", what.c_str()) < 0) PyErr_Clear();
}

// Not by Logger.log, which walks up the stack to find its caller: the text says where.
void log(const std::string& logger, int level, const std::string& text) {
  const ErrorAside aside;
  Hooked nobody(nullptr);
  const Ref logging = Ref::take(PyImport_ImportModule("logging"));
  const Ref found = Ref::take(logging ? PyObject_CallMethod(logging.get(), "getLogger", "s", logger.c_str()) : nullptr);
  const Ref is_on = Ref::take(found ? PyObject_CallMethod(found.get(), "isEnabledFor", "i", level) : nullptr);
  if (is_on && is_on.get() == Py_True) {
    const Ref record = Ref::take(PyObject_CallMethod(found.get(), "makeRecord", "sisisOO", logger.c_str(), level,
                                                     "magneto", 0, text.c_str(), Py_None, Py_None));
    const Ref done = Ref::take(record ? PyObject_CallMethod(found.get(), "handle", "O", record.get()) : nullptr);
  }
  PyErr_Clear();
}

static bool same_names(PyObject* a, PyObject* b) {
  Py_ssize_t na = a ? PyTuple_GET_SIZE(a) : 0, nb = b ? PyTuple_GET_SIZE(b) : 0;
  if (na != nb) return false;
  for (Py_ssize_t i = 0; i < na; ++i)
    if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i) && !same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i)))
      return false;
  return true;
}

std::shared_ptr<Segment> find_segment(FrameCache::Entry& entry, GuardContext& context, size_t positional,
                                      PyObject* kwnames) {
  for (size_t i = 0; i < entry.segments.size(); ++i) {
    std::shared_ptr<Segment> segment = entry.segments[i];
    if (segment->positional != positional || !same_names(segment->kwnames.get(), kwnames)) continue;
    if (!segment->guards.check(context)) continue;
    if (i > 0 && i < entry.segments.size() && entry.segments[i] == segment) {
      entry.segments.erase(entry.segments.begin() + static_cast<ptrdiff_t>(i));
      entry.segments.insert(entry.segments.begin(), segment);
    }
    return segment;
  }
  return nullptr;
}

// ---------------------------------------------------------------------------------------------------- a call

// Sessions of all threads, and what they may still look at though it was forgotten. Under the GIL.
static size_t g_running = 0;
static std::vector<std::unique_ptr<FrameCache>> g_forgotten;

// The end of an object may run code that forgets more.
static void bury() {
  while (g_running == 0 && !g_forgotten.empty()) std::exchange(g_forgotten, {}).clear();
}

void CaptureState::forget(PyCodeObject* code) {
  g_forgotten.push_back(std::exchange(root, std::make_unique<FrameCache>(code)));
  changing.clear();
  bury();
}

Session::Session(CaptureState& state, PyObject* function, PyObject* self, PyObject* const* args, size_t positional,
                 PyObject* kwnames)
    : state_(state), function_(function), self_(self), args_(args), positional_(positional), kwnames_(kwnames) {
  ++g_running;
}

Session::~Session() {
  if (--g_running == 0) bury();
}

static void hide_compiler(CaptureState& state, PyObject* error) {
  state.hides_compiler = true;
  const auto* code = reinterpret_cast<PyCodeObject*>(state.root->code.get());
  const char* name = error && PyType_Check(error) ? reinterpret_cast<PyTypeObject*>(error)->tp_name : "an error";
  base::process_report().add(base::FallbackNote{
      state.id,
      {PyUnicode_AsUTF8(code->co_filename), code->co_firstlineno, PyUnicode_AsUTF8(code->co_qualname)},
      base::concat("what it does for compilers raised ", name, ": torch.compiler.is_compiling() is False in it now"),
      "ask for torch.compiler.is_compiling() only where both ways give the same"});
}

PyObject* Session::run() {
  size_t count = positional_ + (kwnames_ ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames_)) : 0);
  call_args_.assign({nullptr});
  if (self_) call_args_.push_back(self_);
  call_args_.insert(call_args_.end(), args_, args_ + count);
  PyObject* result;
  {
    Hooked hooked(this);
    result = PyObject_Vectorcall(function_, call_args_.data() + 1,
                                 (positional_ + (self_ ? 1 : 0)) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames_);
  }
  if (!result && begins_again_) return run_in_eager();
  if (failed_type_) {  // an operator failed after its line: while the result was computed
    Py_XDECREF(result);
    PyErr_Restore(failed_type_.release(), failed_value_.release(), failed_traceback_.release());
    return nullptr;
  }
  return result;
}

PyObject* Session::run_in_eager() {
  const Ref error = [] {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(value);
    Py_XDECREF(traceback);  // with it go the frames, and their tensors
    return Ref::take(type);
  }();
  Hooked nobody(nullptr);
  PyObject* result = PyObject_Vectorcall(function_, call_args_.data() + 1,
                                         (positional_ + (self_ ? 1 : 0)) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames_);
  if (result) hide_compiler(state_, error.get());  // otherwise the error is the program's own
  return result;
}

static PyCodeObject* code_of(Frame* frame) { return frame_code(frame); }

bool Session::wants(PyThreadState*, Frame* frame) {
  if (recording()) return true;
  if (expecting_)
    return reinterpret_cast<PyObject*>(code_of(frame)) == reinterpret_cast<PyFunctionObject*>(function_)->func_code;
  if (top_ && top_->stepping >= 0) return top_->cache->children.count({top_->stepping, code_of(frame)}) > 0;
  return false;
}

static PyObject* handled_exception(PyThreadState* thread) {
  PyObject* value = thread->exc_info->exc_value;
  return value == Py_None ? nullptr : value;
}

bool Session::entered(Activation& activation) {
  if (recording()) {
    Recorder& recorder = *top_->recorder;
    activation.set_semantics(recorder);
    bool generator = activation.code()->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
    if (!generator || activation.next() == 0)
      recorder.enter_frame(activation);
    else if (activation.code()->co_flags & CO_GENERATOR)
      recorder.resumed(activation);
    return false;
  }
  auto* root = new Root;
  root->activation = &activation;
  root->outer = top_;
  root->handled = handled_exception(activation.thread());
  if (expecting_) {
    expecting_ = false;
    root->top = true;
    root->cache = state_.root.get();
  } else {
    root->cache = &top_->cache->child(top_->stepping, activation.code());
  }
  activation.note = root;
  top_ = root;
  return true;
}

bool Session::collect_roots(Root& root, std::vector<PyObject*>& roots) const {
  Activation& activation = *root.activation;
  if (root.top && activation.next() == 0) {
    size_t count = positional_ + (kwnames_ ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames_)) : 0);
    roots.assign(args_, args_ + count);
    return true;
  }
  for (int i = 0; i < activation.local_count(); ++i) roots.push_back(activation.local(i));
  for (int i = 0; i < activation.stack_depth(); ++i) roots.push_back(activation.stack(i));
  if (!root.top) roots.push_back(reinterpret_cast<PyObject*>(activation.function()));
  return false;
}

Director::Go Session::step_over(Root& root) {
  root.stepping = root.activation->next();
  auto first = root.cache->children.lower_bound({root.stepping, nullptr});
  bool descends = first != root.cache->children.end() && first->first.first == root.stepping;
  if (!descends && !root.quiet) root.quiet.emplace(nullptr);
  return Go::kStepOver;
}

/// Somebody holds the frame object (a traceback, a frame that it called): its locals can be seen after its end.
static bool is_held(Frame* frame) {
  return frame->frame_obj != nullptr && Py_REFCNT(reinterpret_cast<PyObject*>(frame->frame_obj)) > 1;
}

/// The floating objects that a recipe names.
static void each_named(const Recipe& recipe, GuardContext& context, LetGo& search) {
  if (recipe.kind == Recipe::Kind::kSource) search.keep(context.at(recipe.source));
  for (const Recipe& part : recipe.parts) each_named(part, context, search);
}

/// What stands where the effect puts something; nullptr: nothing, or something that is not looked at.
static PyObject* replaced(const Effect& effect, PyObject* target, PyObject* key) {
  if (effect.kind == Effect::Kind::kSetCell) return PyCell_Check(target) ? PyCell_GET(target) : nullptr;
  if (!key) return nullptr;
  if (effect.kind == Effect::Kind::kSetAttr) return attribute_there(target, key);
  if (PyDict_Check(target)) {
    PyObject* value = PyDict_GetItemWithError(target, key);
    PyErr_Clear();
    return value;
  }
  if (!PyList_Check(target) || !PyLong_CheckExact(key)) return nullptr;
  Py_ssize_t index = PyLong_AsSsize_t(key);
  PyErr_Clear();
  if (index < 0) index += PyList_GET_SIZE(target);
  return index >= 0 && index < PyList_GET_SIZE(target) ? PyList_GET_ITEM(target, index) : nullptr;
}

static void drop_replaced(const Segment& segment, GuardContext& context, LetGo& search) {
  const auto found = [&](const Recipe& recipe) {
    if (recipe.kind == Recipe::Kind::kSource) return context.at(recipe.source);
    return recipe.kind == Recipe::Kind::kConstant ? recipe.object.get() : nullptr;
  };
  c10::SmallVector<std::pair<PyObject*, PyObject*>, 8> places;  // each loses what it holds once
  for (const Effect& effect : segment.effects) {
    const bool is_call = effect.kind == Effect::Kind::kCall;
    if (is_call && !effect.takes_out) continue;
    PyObject* target = found(is_call ? effect.args[0] : effect.target);
    PyObject* key = is_call ? nullptr : found(effect.key);
    if (!target) continue;
    if (std::find(places.begin(), places.end(), std::pair(target, key)) != places.end()) continue;
    places.emplace_back(target, key);
    if (is_call)
      search.parts_of(target);
    else
      search.drop(replaced(effect, target, key));
  }
}

bool lets_an_end_go(const Segment& segment, GuardContext& context, const Activation* activation) {
  if (segment.effects.empty() && !activation) return false;
  LetGo search([&](PyObject* object) {
    return std::count_if(context.keep.begin(), context.keep.end(),
                         [&](const Ref& kept) { return kept.get() == object; });
  });
  drop_replaced(segment, context, search);
  if (activation) {
    each_named(segment.result, context, search);
    for (const auto& [slot, recipe] : segment.locals) each_named(recipe, context, search);
    for (const Recipe& recipe : segment.stack) each_named(recipe, context, search);
    for (const auto& [slot, recipe] : segment.locals) search.drop(activation->local(slot));
    for (int i = 0; i < activation->stack_depth(); ++i) search.drop(activation->stack(i));
  }
  return !search.is_empty() && search.runs_code();
}

Director::Go Session::at_boundary(Activation& activation) {
  Root* root = static_cast<Root*>(activation.note);
  fault_point("boundary");
  if (recording() && top_->recorder->has_failed_rehearsal() && top_->recorder->fail_rehearsal()) return Go::kRaise;
  if (!root) return Go::kRun;  // a frame inside a recording that was given up: it runs on plainly
  root->quiet.reset();
  root->stepping = -1;
  if (root->recorder) end_recording(*root);
  activation.set_semantics(plain_semantics());
  if (root->gave_up) return Go::kRun;
  // Inside an except block, or at its door: which exception is handled is no slot.
  if (handled_exception(activation.thread()) != root->handled ||
      activation.text().units[2 * activation.next()] == PUSH_EXC_INFO)
    return step_over(*root);
  // A segment that returns leaves the locals as they are, and who holds the frame sees them: they would live on.
  if (is_held(activation.frame())) {
    constexpr int kEndOfClause = 3;  // instructions that let the exception of an except clause go
    if (++root->held == kEndOfClause + 1) note_break(activation, Stop::kFrameHeld, "");
    return step_over(*root);
  }
  if (const char* mode = foreign_mode()) {
    note_fallback(activation, std::string(mode) + " is active", "leave the mode before calling the compiled function");
    return Go::kHandOver;
  }
  if (auto mark = root->cache->marks.find(activation.next()); mark != root->cache->marks.end()) {
    if (state_.fullgraph) note_break(activation, mark->second.stop, mark->second.detail);
    return step_over(*root);
  }
  FrameCache::Entry& entry = root->cache->entry(activation.next());
  if (entry.given_up) return Go::kHandOver;

  if (first_segment_) {
    auto segment = std::move(first_segment_);
    if (!lets_an_end_go(*segment, first_context_, &activation)) return apply(*root, *segment, first_context_);
  }
  std::vector<PyObject*> roots;
  bool arguments = collect_roots(*root, roots);
  GuardContext context;
  context.roots = roots.data();
  context.root_count = roots.size();
  if (auto segment = find_segment(entry, context, arguments ? positional_ : 0, arguments ? kwnames_ : nullptr)) {
    if (!lets_an_end_go(*segment, context, &activation)) return apply(*root, *segment, context);
    std::erase(entry.segments, segment);  // the next recording marks the instruction
    return begin_recording(*root, entry);
  }
  if (const Stance stance = current_stance(); stance == Stance::kEagerOnRecompile)
    return Go::kHandOver;
  else if (stance == Stance::kFailOnRecompile)
    return refuse_recording(activation, why_none_fits(entry, arguments, context));
  if (!entry.segments.empty()) {
    std::vector<std::string> changed;
    const std::string why = why_none_fits(entry, arguments, context, &changed);
    if (!state_.dynamic.value_or(true))
      std::erase_if(changed, [](const std::string& path) { return !is_offset(path); });
    state_.changing.insert(changed.begin(), changed.end());
    base::process_report().add(base::RecompileNote{state_.id, line_of(activation), why});
    if (static_cast<int>(entry.segments.size()) >= state_.limit) {
      entry.given_up = true;
      std::string reason =
          "compiled " + std::to_string(state_.limit) + " times for other inputs; the last reason: " + why;
      note_fallback(activation, reason, "pass the changing value as a tensor, or raise the limit");
      base::Line line = line_of(activation);
      if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: %s runs in eager from now on: it was %s (%s:%d)",
                           state_.name.c_str(), reason.c_str(), line.file.c_str(), line.line) < 0)
        PyErr_Clear();  // warnings are errors here; the call still returns what eager returns
      return Go::kHandOver;
    }
  }
  return begin_recording(*root, entry);
}

// The newest segment for such a call says most. `changed` as GuardProgram::check.
std::string Session::why_none_fits(const FrameCache::Entry& entry, bool arguments, GuardContext& context,
                                   std::vector<std::string>* changed) const {
  std::string why = entry.segments.empty() ? "nothing was compiled here yet" : "the call has other arguments";
  for (const auto& segment : entry.segments) {
    if (arguments && (segment->positional != positional_ || !same_names(segment->kwnames.get(), kwnames_))) continue;
    why.clear();
    segment->guards.check(context, &why, changed);
    break;
  }
  return why;
}

// torch.compiler.set_stance("fail_on_recompile").
Director::Go Session::refuse_recording(Activation& where, const std::string& why) {
  base::Line line = line_of(where);
  if (line.line <= 0) line.line = where.code()->co_firstlineno;  // before the first line of the function
  PyErr_Format(PyExc_RuntimeError,
               "magneto: detected a recompile of %s while the stance is 'fail_on_recompile'\n  where: %s:%d\n"
               "  why: %s\n  cure: call it with such inputs before the stance is set, or use 'eager_on_recompile'",
               state_.name.c_str(), line.file.c_str(), line.line, why.c_str());
  return Go::kRaise;
}

Director::Go Session::apply(Root& root, Segment& segment, GuardContext& context) {
  Activation& activation = *root.activation;
  BuildContext built;
  Outcome outcome;
  {
    Hooked nobody(nullptr);
    outcome = run_segment(segment, context, built);
  }
  if (outcome == Outcome::kRaised) return Go::kRaise;
  if (outcome == Outcome::kFault) note_break(activation, Stop::kFault, built.fault);
  if (outcome == Outcome::kEager || outcome == Outcome::kFault) return Go::kHandOver;
  if (segment.returns) {
    PyObject* result = build(segment.result, built);
    if (!result) return Go::kRaise;
    activation.set_result(result);
    root.gave_up = true;
    return Go::kReturn;
  }
  std::vector<PyObject*> locals, stack;
  for (auto& [slot, recipe] : segment.locals) {
    PyObject* object = build(recipe, built);
    if (!object && PyErr_Occurred()) return Go::kRaise;
    locals.push_back(object);
  }
  for (const Recipe& recipe : segment.stack) {
    PyObject* object = build(recipe, built);
    if (!object && PyErr_Occurred()) return Go::kRaise;
    stack.push_back(object);
  }
  for (size_t i = 0; i < locals.size(); ++i) activation.set_local(segment.locals[i].first, locals[i]);
  activation.set_stack(stack);
  activation.set_next(segment.next);
  if (state_.fullgraph) note_break(activation, segment.stop, segment.detail);
  return step_over(root);
}

// ---------------------------------------------------------------------------------------------------- recording

Director::Go Session::begin_recording(Root& root, FrameCache::Entry& entry) {
  Activation& activation = *root.activation;
  if (!is_first_evaluator()) {
    note_fallback(activation, "another frame evaluator is active (torch.compile, or a debugger)",
                  "call the compiled function outside of it");
    return Go::kHandOver;
  }
  if (++entry.recordings > 4 * state_.limit || entry.discarded > 8) {
    entry.given_up = true;
    note_fallback(activation, "no recording of this function could be kept", "see the breaks of this function");
    return Go::kHandOver;
  }
  root.recorder = std::make_unique<Recorder>(activation, Changing{state_.changing, state_.dynamic.value_or(false)});
  Recorder& recorder = *root.recorder;
  recorder.marks = &root.cache->marks;
  recorder.tells_of_compiler = !state_.hides_compiler;
  recorder.keeps_functions = !state_.backend;  // one of the user's would not know their gradient
  activation.ask_before_each(!root.cache->marks.empty());
  recorder.invalidated = [this, &root] {
    const Recorder::StopRecord& stop_record = root.recorder->stop_record();
    note_break(*stop_record.where, stop_record.stop, stop_record.detail);
    mark_stop(root, stop_record);
  };
  root.recorded_at = activation.next();
  root.saved_before = entry.saved;
  if (PyGC_IsEnabled()) {  // finalizers of other objects are not part of the program
    PyGC_Disable();
    gc_off_ = true;
  }
  static PyObject* self_name = PyUnicode_InternFromString("self");
  if (root.top) {
    recorder.add_pinned_root(function_, reinterpret_cast<PyFunctionObject*>(function_)->func_name);
    if (self_) recorder.add_pinned_root(self_, self_name);
  }
  if (root.top && activation.next() == 0) {
    size_t count = positional_ + (kwnames_ ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames_)) : 0);
    std::vector<Ref> names;
    PyCodeObject* code = activation.code();
    for (size_t i = 0; i < count; ++i) {
      size_t slot = i + (self_ ? 1 : 0);
      if (i >= positional_)
        names.push_back(Ref::share(PyTuple_GET_ITEM(kwnames_, static_cast<Py_ssize_t>(i - positional_))));
      else if (slot < static_cast<size_t>(code->co_argcount))
        names.push_back(Ref::share(PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(slot))));
      else
        names.emplace_back();
    }
    recorder.add_argument_roots(args_, count, names);
  } else {
    recorder.add_slot_roots(root.top);
  }
  fault_point("begin");
  recorder.begin();
  recorder.enter_frame(activation);
  activation.set_semantics(recorder);
  return Go::kRun;
}

static Compiler g_compiler;

void set_compiler(Compiler compiler) { g_compiler = std::move(compiler); }

static BackendCompiler g_backend_compiler = nullptr;
void set_backend_compiler(BackendCompiler compiler) { g_backend_compiler = compiler; }

// Compiles without the GIL. A Ctrl-C during that is served at once, by the user's own handler: when it raises, the
// compiler stops.
static bool compile(Segment& segment, base::GraphNote& note) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenPolls{50};  // another thread may be slow to hand the GIL over
  Hooked nobody(nullptr);
  PyThreadState* thread = PyEval_SaveThread();
  Clock::time_point last = Clock::now();
  const auto poll = [&] {
    if (Clock::now() - last < kBetweenPolls) return;
    PyEval_RestoreThread(thread);
    const bool raised = PyErr_CheckSignals() != 0;  // in the main thread; elsewhere it does nothing
    thread = PyEval_SaveThread();
    last = Clock::now();
    if (raised) throw base::Interrupted();
  };
  bool done = true;
  try {
    segment.executable = g_compiler(segment.program, segment.examples, note, poll);
  } catch (const base::Interrupted&) {
    done = false;
  } catch (...) {
    PyEval_RestoreThread(thread);
    throw;
  }
  PyEval_RestoreThread(thread);
  if (done) PyErr_Clear();  // of Python code that torch called meanwhile, and that failed
  return done;
}

// Guards and program as text: two that are the same may be different for once, then one of them is recorded again.
static size_t key_of(const Segment& segment, const base::GraphNote& note) {
  std::string text = base::concat(segment.positional, segment.returns ? " " : " then ", segment.next, "\n", note.text);
  for (const std::string& guard : note.guards) text += guard + "\n";
  return std::hash<std::string>()(text);
}

static std::string name_of(PyObject* callable) {
  const ErrorAside aside;
  Ref name = Ref::take(PyObject_GetAttrString(callable, "__name__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  return text ? text : Py_TYPE(callable)->tp_name;
}

// Tells other threads what this one compiles.
class InWork {
 public:
  InWork(FrameCache::Entry& entry, size_t key) : entry_(entry), key_(key) { entry.in_work.push_back(key); }
  ~InWork() { std::erase(entry_.in_work, key_); }
  InWork(const InWork&) = delete;

 private:
  FrameCache::Entry& entry_;
  const size_t key_;
};

bool Session::save(Root& root, std::unique_ptr<Segment> segment) {
  if (root.top && root.recorded_at == 0) {
    segment->positional = positional_;
    segment->kwnames = Ref::share(kwnames_);
  }
  base::GraphNote note;
  note.callable = state_.id;
  note.where = {PyUnicode_AsUTF8(root.activation->code()->co_filename), root.activation->code()->co_firstlineno,
                PyUnicode_AsUTF8(root.activation->code()->co_qualname)};
  if (segment->program) {
    note.text = graph::print(segment->program->graph());
    note.nodes = segment->program->graph().nodes().size();
    note.guards = segment->guards.describe();
    note.fixed_sizes = segment->fixed_sizes;
    note.keeps_texts = state_.keeps_texts;
    note.check = state_.check;
    segment->executable = segment->program;
    segment->key = key_of(*segment, note);
  }
  FrameCache::Entry& entry = root.cache->entry(root.recorded_at);
  if (segment->program) {
    // Another thread may have recorded the same at the same time: one of them serves both.
    const auto is_same = [&](const std::shared_ptr<Segment>& other) { return other->key == segment->key; };
    if (std::count(entry.in_work.begin(), entry.in_work.end(), segment->key) > 0 ||
        (entry.saved > root.saved_before && std::any_of(entry.segments.begin(), entry.segments.end(), is_same))) {
      --entry.recordings;
      return true;
    }
    if (state_.backend) {
      const InWork mark(entry, segment->key);
      const Hooked nobody(nullptr);
      segment->executable = g_backend_compiler(state_.backend, segment->program, segment->examples, segment->hints);
      note.backend = name_of(state_.backend);
      if (!segment->executable) {
        --entry.recordings;
        return false;
      }
    } else if (state_.compiles && g_compiler) {
      const InWork mark(entry, segment->key);
      if (!compile(*segment, note)) {
        --entry.recordings;
        return false;
      }
    }
    segment->examples.clear();
    static bool warned = false;  // what is missing for one function is missing for all
    if (!note.warning.empty() && !std::exchange(warned, true)) warn(note.warning);
    segment->graph_number = base::process_report().add(std::move(note));
  }
  ++entry.saved;
  entry.segments.insert(entry.segments.begin(), std::shared_ptr<Segment>(std::move(segment)));
  return true;
}

// The recording is over, kept or not: what it held is let go.
void Session::end_recording(Root& root) {
  if (root.recorder) {
    root.recorder->abandon();
    root.recorder.reset();
  }
  if (gc_off_) {
    gc_off_ = false;
    PyGC_Enable();
  }
}

void Session::mark_stop(Root& root, const Recorder::StopRecord& stop_record) {
  FrameCache::Entry& entry = root.cache->entry(root.recorded_at);
  ++entry.discarded;
  if (stop_record.made_at >= 0) {
    root.cache->marks[stop_record.made_at] = {stop_record.stop, stop_record.detail};
    return;
  }
  std::vector<Activation*> path;
  bool inside = false;
  for (Activation* a = stop_record.where; a; a = a->outer()) {
    path.push_back(a);
    if (a == root.activation) {
      inside = true;
      break;
    }
  }
  if (!inside) {
    root.cache->marks[root.activation->next()] = {stop_record.stop, stop_record.detail};
    return;
  }
  FrameCache* cache = root.cache;
  for (size_t i = path.size(); i-- > 0;) {
    int offset = path[i]->next();
    bool innermost = i == 0;
    cache->marks[offset] = {innermost ? stop_record.stop : Stop::kInner,
                            innermost ? stop_record.detail : text_of(stop_record.stop).what.data()};
    if (!innermost) cache = &cache->child(offset, path[i - 1]->code());
  }
}

// A recording that was finished and could not be kept.
void Session::mark_failure(Root& root, const Recorder::StopRecord& failure) {
  if (failure.stop == Stop::kRaised)
    hide_compiler(state_, nullptr);  // the next one goes another way
  else
    mark_stop(root, failure);
}

Director::Go Session::stopped(Activation& activation) {
  Root* root = static_cast<Root*>(activation.note);
  Recorder* recorder = top_ && top_->recorder ? top_->recorder.get() : nullptr;
  if (!recorder || !recorder->active()) return root ? step_over(*root) : Go::kStepOver;  // it was invalidated just now
  fault_point("stop");
  if (recorder->fail_rehearsal()) return Go::kRaise;
  Recorder::StopRecord stop_record = recorder->stop_record();
  note_break(*(stop_record.where ? stop_record.where : &activation), stop_record.stop, stop_record.detail);
  if (root && root == top_) {
    std::unique_ptr<Segment> segment = recorder->finish_break();
    bool raises = recorder->failed_flush();
    if (segment) {
      segment->stop = stop_record.stop;
      segment->detail = stop_record.detail;
      raises = !save(*root, std::move(segment));
    } else if (!raises) {
      Recorder::StopRecord failure = recorder->stop_record();
      note_break(activation, failure.stop, failure.detail);
      mark_failure(*root, failure);
    }
    root->recorder.reset();
    end_recording(*root);
    activation.set_semantics(plain_semantics());
    if (!raises) return step_over(*root);
    activation.request_boundary();  // a handler of the frame may go on
    return Go::kRaise;
  }
  // Inside an inlined function: this recording cannot be kept.
  Root& owner = *top_;
  recorder->abandon();
  mark_stop(owner, stop_record);
  if (recorder->failed_flush()) return Go::kRaise;
  owner.activation->request_boundary();
  activation.set_semantics(plain_semantics());
  activation.request_boundary();
  return Go::kStepOver;
}

void Session::left(Activation& activation, Exit exit, PyObject* result) {
  Root* root = static_cast<Root*>(activation.note);
  if (recording() && activation.code()->co_flags & CO_GENERATOR && (exit == Exit::kReturned || exit == Exit::kRaised))
    top_->recorder->finished(frame_generator(activation.frame()));
  if (!root) {
    if (recording() && exit == Exit::kHandedOver) {
      Recorder::StopRecord stop_record{Stop::kHandOver, "an instruction that only CPython executes", -1, &activation};
      note_break(activation, stop_record.stop, stop_record.detail);
      top_->recorder->abandon();
      mark_stop(*top_, stop_record);
      top_->activation->request_boundary();
    }
    return;
  }
  root->quiet.reset();
  if (root->recorder && root->recorder->active()) {
    try {
      finish_recording(*root, exit, result);
    } catch (const std::exception& fault) {
      faulted(activation, fault.what());
      if (exit == Exit::kReturned && PyErr_Occurred()) keep_error();
    }
    root->recorder.reset();
  }
  end_recording(*root);
  top_ = root->outer;
  activation.note = nullptr;
  delete root;
}

void Session::keep_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  failed_type_ = Ref::take(type);
  failed_value_ = Ref::take(value);
  failed_traceback_ = Ref::take(traceback);
}

void Session::finish_recording(Root& root, Exit exit, PyObject* result) {
  Activation& activation = *root.activation;
  Recorder& recorder = *root.recorder;
  fault_point("finish");
  if (exit == Exit::kReturned) {
    std::unique_ptr<Segment> segment = recorder.finish_return(result);
    if (recorder.failed_flush()) return keep_error();
    if (segment) {
      if (!save(root, std::move(segment))) keep_error();
      return;
    }
    Recorder::StopRecord failure = recorder.stop_record();
    note_break(activation, failure.stop, failure.detail);
    mark_failure(root, failure);
    return;
  }
  PyObject* raised = PyErr_Occurred();
  // who presses Ctrl-C does so anywhere: the instruction is not to blame
  const bool interrupted = raised && PyErr_GivenExceptionMatches(raised, PyExc_KeyboardInterrupt);
  if (exit == Exit::kRaised && recorder.has_told() && !interrupted) {
    begins_again_ = root.top && root.recorded_at == 0 && recorder.abandon_unseen();
    if (begins_again_) return;
    const ErrorAside aside;
    hide_compiler(state_, raised);
  }
  Recorder::StopRecord stop_record;
  stop_record.stop = exit == Exit::kRaised ? Stop::kRaised : Stop::kHandOver;
  stop_record.detail = raised && PyType_Check(raised) ? reinterpret_cast<PyTypeObject*>(raised)->tp_name : "";
  stop_record.where = &activation;
  recorder.abandon();
  const ErrorAside aside;
  note_break(activation, stop_record.stop, stop_record.detail);
  if (!interrupted) mark_stop(root, stop_record);
}

void Session::missed(Frame* frame) {
  if (!recording()) return;
  const char* name = PyUnicode_AsUTF8(frame_code(frame)->co_qualname);
  top_->recorder->lose(name ? name : "a function");
}

bool Session::thrown(Frame* frame) { return recording() && top_->recorder->thrown(frame); }

void Session::faulted(Activation& activation, const char* what) {
  try {
    Root* owner = top_;
    if (owner && owner->recorder) {
      bool lost = owner->recorder->active();
      owner->recorder->abandon();
      if (lost) mark_stop(*owner, {Stop::kFault, what, -1, &activation});
      owner->activation->request_boundary();
    }
    activation.set_semantics(plain_semantics());
    note_break(activation, Stop::kFault, what);
  } catch (const std::exception&) {  // no memory, perhaps: the program goes on, untold
  }
}

// ---------------------------------------------------------------------------------------------------- report

base::Line line_of(Activation& activation) {
  const Activation* at = &activation;  // of the user's own code, not of what stands for a function of torch
  while (is_substitute(at->function()) && at->outer()) at = at->outer();
  return {PyUnicode_AsUTF8(at->code()->co_filename), at->current_line(), PyUnicode_AsUTF8(at->code()->co_qualname)};
}

void Session::note_break(Activation& where, Stop stop, const std::string& detail) {
  if (stop == Stop::kNone || stop == Stop::kInner) return;
  base::BreakNote note{state_.id, line_of(where), describe(stop, detail), std::string(text_of(stop).cure), 1};
  if (state_.fullgraph) breaks_.push_back(note);
  if (stop == Stop::kFault) warn_of_fault(state_, note.where, detail);
  base::process_report().add(std::move(note));
}

void Session::note_fallback(Activation& where, std::string reason, std::string cure) {
  base::process_report().add(base::FallbackNote{state_.id, line_of(where), std::move(reason), std::move(cure)});
}

}  // namespace magneto::capture
