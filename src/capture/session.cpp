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
#include "evaluator/opcodes.h"
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

// Without the GIL, which the numbers that are computed from others need.
static aten::Executable::Failure read_and_run(const Segment& segment, std::span<at::Tensor> inputs,
                                              GuardContext& context, aten::Tensors& outputs, BuildContext& built) {
  return segment.reading->run(inputs, context.symbols, outputs, [&](size_t read, std::span<const int64_t> numbers) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    const bool holds =
        segment.guards.take_read(context, read, segment.reads[read].symbols, numbers, &built.missed_because);
    PyGILState_Release(gil);
    if (!holds) built.missed_read = read;
    return holds;
  });
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
        const std::span<at::Tensor> given{inputs.data(), inputs.size()};
        failure = segment.reading ? read_and_run(segment, given, context, outputs, built)
                                  : segment.executable->run(given, context.symbols, outputs);
      }
      if (failure.error) warnings.set_in_exception();
    } catch (const python_error&) {
      return Outcome::kRaised;  // a warning that was turned into an error
    }
    if (failure.error) {
      if (failure.missed && !failure.changed) return Outcome::kMissed;
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
                                      PyObject* kwnames, const std::shared_ptr<Segment>& likely,
                                      std::span<const std::shared_ptr<Segment>> missed) {
  const auto is_missed = [&](const std::shared_ptr<Segment>& segment) {
    return std::find(missed.begin(), missed.end(), segment) != missed.end();
  };
  if (likely && std::find(entry.segments.begin(), entry.segments.end(), likely) != entry.segments.end() &&
      !is_missed(likely) && likely->positional == positional && same_names(likely->kwnames.get(), kwnames) &&
      likely->guards.check(context))
    return likely;
  for (size_t i = 0; i < entry.segments.size(); ++i) {
    std::shared_ptr<Segment> segment = entry.segments[i];
    if (segment == likely || is_missed(segment) || segment->positional != positional ||
        !same_names(segment->kwnames.get(), kwnames))
      continue;
    if (!segment->guards.check(context)) continue;
    if (i > 0 && i < entry.segments.size() && entry.segments[i] == segment) {
      entry.segments.erase(entry.segments.begin() + static_cast<ptrdiff_t>(i));
      entry.segments.insert(entry.segments.begin(), segment);
    }
    return segment;
  }
  return nullptr;
}

bool note_miss(CaptureState& state, FrameCache::Entry& entry, const std::shared_ptr<Segment>& segment,
               const BuildContext& built) {
  if (built.missed_read == BuildContext::kNoRead) {  // it fits calls that have no such view
    segment->missed_because = "it writes to a view that needs a gradient before it reads a tensor";
    return false;
  }
  const Segment::Read& read = segment->reads[built.missed_read];
  segment->missed_because = read.is_branch ? "the branch depends on a tensor's value, and goes the other way"
                                           : base::concat(read.name, " reads a tensor: ", built.missed_because);
  const std::vector<ReadCheck>& checks = segment->guards.after_read[built.missed_read].read_checks;
  // 0 and 1 are sizes of their own. And where there must be no break each way of a branch is one.
  const bool is_small = std::any_of(checks.begin(), checks.end(), [&](const ReadCheck& check) {
    return check.kind != ReadCheck::kSame && !check.holds(built.guards->symbols);
  });
  std::erase(entry.segments, segment);
  if (is_small || (read.is_branch && state.fullgraph)) {
    entry.segments.push_back(segment);
    return false;
  }
  base::process_report().add(base::RecompileNote{state.id, read.line, segment->missed_because});
  const auto changes = [](const Segment::Read& one) {
    return FrameCache::at(one.place).changing_reads.insert(one.place.instruction).second;
  };
  // A number that has changed once is a symbol; if that does not help either, the segment ends there. Where one
  // changes, so will the others: but for ints, of which many are the same at each call.
  if (read.is_branch || !changes(read)) {
    FrameCache::mark(read.place, read.is_branch ? Stop::kTensorBranch : Stop::kTensorData, read.name);
    return true;
  }
  state.reads_change = true;
  const std::vector<bool>& reals = segment->guards.reals;
  for (const Segment::Read& other : segment->reads)
    if (other.is_size || (other.symbols[0] < reals.size() && reals[other.symbols[0]])) changes(other);
  return true;
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
  if (transition_) {
    const bool enters = transition_->entered > 0 && transition_->entered < transition_->frames.size();
    return enters &&
           transition_->segment->frames[transition_->entered].code.get() == reinterpret_cast<PyObject*>(code_of(frame));
  }
  if (recording()) return true;
  if (expecting_)
    return reinterpret_cast<PyObject*>(code_of(frame)) == reinterpret_cast<PyFunctionObject*>(function_)->func_code;
  return top_ && top_->stepping >= 0 && top_->cache->find_child(top_->stepping, false, code_of(frame));
}

static PyObject* handled_exception(PyThreadState* thread) {
  PyObject* value = thread->exc_info->exc_value;
  return value == Py_None ? nullptr : value;
}

bool Session::entered(Activation& activation) {
  if (!transition_ && recording()) {
    Recorder& recorder = *recording_.recorder;
    activation.set_semantics(recorder);
    bool generator = activation.code()->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
    if (!generator || activation.next() == 0)
      recorder.enter_frame(activation);
    else if (activation.code()->co_flags & CO_GENERATOR)
      recorder.resumed(activation);
    if (FrameNote* const note = note_inlined(activation)) activation.ask_before_each(!note->cache->marks.empty());
    return false;
  }
  note_frame(activation, transition_ != nullptr);
  return true;
}

void Session::note_frame(Activation& activation, bool linked) {
  auto* note = new FrameNote;
  note->activation = &activation;
  note->outer = top_;
  note->handled = handled_exception(activation.thread());
  note->linked = linked;
  if (expecting_) {
    expecting_ = false;
    note->top = true;
    note->cache = state_.root.get();
  } else {
    note->cache = &top_->cache->child(top_->activation->next(), linked, activation.code());
  }
  activation.note = note;
  top_ = note;
}

/// Nothing stands between the instruction that `outer` executes and this frame: who executes it again, with the same
/// operands, enters such a frame first, and whatever that returns is its result.
static bool calls_directly(const Activation& outer, const Activation& inner) {
  constexpr int kNotCalled = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  return inner.outer() == &outer && &inner.director() == &outer.director() && outer.callee() == inner.function() &&
         !(inner.code()->co_flags & kNotCalled);
}

// A frame that a recording enters where a frame of an earlier one was linked: nullptr: none was.
Session::FrameNote* Session::note_inlined(Activation& activation) {
  Activation* const outer = activation.outer();
  if (!outer || &outer->director() != this || !outer->note) return nullptr;
  auto* const caller = static_cast<FrameNote*>(outer->note);
  FrameCache* const cache = caller->cache->find_child(outer->next(), true, activation.code());
  if (!cache || !calls_directly(*outer, activation)) return nullptr;
  auto* note = new FrameNote;
  note->activation = &activation;
  note->cache = cache;
  note->outer = caller;
  note->inlined = note->linked = true;
  activation.note = note;
  return note;
}

// The frames of a recording from the innermost boundary to this one, as a chain. False: something stands between them.
bool Session::link_frames(Activation& innermost, std::vector<Activation*>& entered) {
  Activation* frame = &innermost;
  for (; frame && frame != top_->activation; frame = frame->outer()) {
    if (!frame->outer() || !calls_directly(*frame->outer(), *frame)) return false;
    entered.push_back(frame);
  }
  if (!frame) return false;
  std::reverse(entered.begin(), entered.end());
  for (Activation* activation : entered) {
    delete static_cast<FrameNote*>(std::exchange(activation->note, nullptr));
    note_frame(*activation, true);
  }
  return true;
}

std::vector<Session::FrameNote*> Session::chain_of(FrameNote& innermost) {
  std::vector<FrameNote*> chain{&innermost};
  while (chain.back()->linked) chain.push_back(chain.back()->outer);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

/// Entries of the stack that are the frame's own: not the operands of the call that is under way.
static int own_stack(const Activation& activation, bool is_innermost) {
  return activation.stack_depth() - (is_innermost ? 0 : activation.call_operands());
}

bool Session::collect_roots(FrameNote& innermost, std::vector<PyObject*>& roots) const {
  if (innermost.top && innermost.activation->next() == 0) {
    size_t count = positional_ + (kwnames_ ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames_)) : 0);
    roots.assign(args_, args_ + count);
    return true;
  }
  for (FrameNote* note : chain_of(innermost)) {
    Activation& activation = *note->activation;
    for (int i = 0; i < activation.local_count(); ++i) roots.push_back(activation.local(i));
    const int stack = own_stack(activation, note == &innermost);
    for (int i = 0; i < stack; ++i) roots.push_back(activation.stack(i));
    if (!note->top) roots.push_back(reinterpret_cast<PyObject*>(activation.function()));
  }
  return false;
}

Director::Go Session::step_over(FrameNote& note) {
  note.stepping = note.activation->next();
  if (!note.cache->has_unlinked_child(note.stepping) && !note.quiet) note.quiet.emplace(nullptr);
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

bool lets_an_end_go(const Segment& segment, GuardContext& context, std::span<Activation* const> chain) {
  if (segment.effects.empty() && chain.empty()) return false;
  LetGo search([&](PyObject* object) {
    return std::count_if(context.keep.begin(), context.keep.end(),
                         [&](const Ref& kept) { return kept.get() == object; });
  });
  drop_replaced(segment, context, search);
  if (!chain.empty()) {
    each_named(segment.result, context, search);
    for (const FrameState& frame : segment.frames) {
      for (const auto& [slot, recipe] : frame.locals) each_named(recipe, context, search);
      for (const Recipe& recipe : frame.stack) each_named(recipe, context, search);
    }
    const size_t there = chain.size() - segment.left;
    for (const auto& [slot, recipe] : segment.frames.front().locals) search.drop(chain[there - 1]->local(slot));
    for (size_t n = there; n < chain.size(); ++n)
      for (int slot = 0; slot < chain[n]->local_count(); ++slot) search.drop(chain[n]->local(slot));
    for (size_t n = there - 1; n < chain.size(); ++n)
      for (int i = 0; i < chain[n]->stack_depth(); ++i) search.drop(chain[n]->stack(i));
  }
  return !search.is_empty() && search.runs_code();
}

/// From 3.13 on a test and its jump are two instructions: a break at the first lets the second follow, as before.
static bool is_jump_of_test(const Activation& activation, int test) {
  const Instruction* const all = activation.text().instructions;
  return std::string_view(all[test].row->name) == "TO_BOOL" && all[test].after == activation.next() &&
         std::string_view(all[activation.next()].row->name).starts_with("POP_JUMP_IF_");
}

// Another iteration of a loop that is not compiled as a whole is no other input: each has its own segments. Of a long
// loop, all later ones together.
constexpr size_t kLongLoop = 32;

Director::Go Session::at_boundary(Activation& activation) {
  auto* const note = static_cast<FrameNote*>(activation.note);
  fault_point("boundary");
  if (recording() && recording_.recorder->has_failed_rehearsal() && recording_.recorder->fail_rehearsal())
    return Go::kRaise;
  if (!note || note->inlined) return Go::kRun;  // a frame inside a recording that was given up: it runs on plainly
  note->quiet.reset();
  const int stepped = std::exchange(note->stepping, -1);
  if (transition_) return proceed(*note);
  if (recording()) {  // a frame that it began in has returned to this one
    recording_.recorder->after_instruction(activation);
    if (recording()) return Go::kRun;
  }
  end_recording();
  activation.set_semantics(plain_semantics());
  if (note->gave_up) return Go::kRun;
  // Inside an except block, or at its door: which exception is handled is no slot.
  if (handled_exception(activation.thread()) != note->handled ||
      activation.text().units[2 * activation.next()] == PUSH_EXC_INFO)
    return step_over(*note);
  // A segment that returns leaves the locals as they are, and who holds the frame sees them: they would live on.
  std::vector<Activation*> chain;
  for (FrameNote* link : chain_of(*note)) chain.push_back(link->activation);
  if (std::any_of(chain.begin(), chain.end(), [](Activation* frame) { return is_held(frame->frame()); })) {
    constexpr int kEndOfClause = 3;  // instructions that let the exception of an except clause go
    if (++note->held == kEndOfClause + 1) note_break(activation, Stop::kFrameHeld, "");
    return step_over(*note);
  }
  if (stepped >= 0 && is_jump_of_test(activation, stepped)) return step_over(*note);
  if (const char* mode = foreign_mode()) {
    note_fallback(activation, std::string(mode) + " is active", "leave the mode before calling the compiled function");
    return Go::kHandOver;
  }
  if (auto mark = note->cache->marks.find(activation.next()); mark != note->cache->marks.end()) {
    if (refuses_breaks()) note_break(activation, mark->second.stop, mark->second.detail);
    return step_over(*note);
  }
  FrameCache::Entry& entry = note->cache->entry(activation.next());
  if (entry.given_up) return Go::kHandOver;

  if (first_segment_) {
    auto segment = std::move(first_segment_);
    if (!lets_an_end_go(*segment, first_context_, chain)) return apply(*note, segment, first_context_);
  }
  size_t& visits = visits_[{note->cache, activation.next()}];
  if (visits == 0 || missed_.empty()) ++visits;
  const size_t visit = std::min(visits - 1, kLongLoop);
  std::vector<PyObject*> roots;
  bool arguments = collect_roots(*note, roots);
  GuardContext context;
  context.roots = roots.data();
  context.root_count = roots.size();
  const std::shared_ptr<Segment> likely = last_ ? last_->successor.lock() : nullptr;
  if (auto segment =
          find_segment(entry, context, arguments ? positional_ : 0, arguments ? kwnames_ : nullptr, likely, missed_)) {
    if (!lets_an_end_go(*segment, context, chain)) return apply(*note, segment, context);
    std::erase(entry.segments, segment);  // the next recording marks the instruction
    return begin_recording(*note, entry, visit);
  }
  if (const Stance stance = current_stance(); stance == Stance::kEagerOnRecompile)
    return Go::kHandOver;
  else if (stance == Stance::kFailOnRecompile)
    return refuse_recording(activation, why_none_fits(entry, arguments, context, visit));
  const auto here = std::count_if(entry.segments.begin(), entry.segments.end(),
                                  [&](const std::shared_ptr<Segment>& segment) { return segment->visit == visit; });
  if (here > 0 || visit >= static_cast<size_t>(state_.limit)) {
    std::vector<std::string> changed;
    std::string why = why_none_fits(entry, arguments, context, visit, &changed);
    if (why.empty() && !missed_.empty()) why = missed_.back()->missed_because;
    if (!state_.dynamic.value_or(true))
      std::erase_if(changed, [](const std::string& path) { return !is_offset(path); });
    state_.changing.insert(changed.begin(), changed.end());
    if (here > 0) base::process_report().add(base::RecompileNote{state_.id, line_of(activation), why});
    if (here >= state_.limit) {
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
  return begin_recording(*note, entry, visit);
}

// The newest segment for such a call says most, one of the same iteration more. `changed` as GuardProgram::check.
std::string Session::why_none_fits(const FrameCache::Entry& entry, bool arguments, GuardContext& context, size_t visit,
                                   std::vector<std::string>* changed) const {
  Segment* newest = nullptr;
  for (const auto& segment : entry.segments) {
    if (arguments && (segment->positional != positional_ || !same_names(segment->kwnames.get(), kwnames_))) continue;
    if (!newest || (newest->visit != visit && segment->visit == visit)) newest = segment.get();
  }
  std::string why = entry.segments.empty() ? "nothing was compiled here yet" : "the call has other arguments";
  if (!newest) return why;
  why.clear();
  newest->guards.check(context, &why, changed);
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

Director::Go Session::apply(FrameNote& note, const std::shared_ptr<Segment>& segment, GuardContext& context) {
  Activation& activation = *note.activation;
  BuildContext built;
  Outcome outcome;
  {
    Hooked nobody(nullptr);
    outcome = run_segment(*segment, context, built);
  }
  if (outcome == Outcome::kRaised) return Go::kRaise;
  if (outcome == Outcome::kMissed) {
    if (!note_miss(state_, note.cache->entry(activation.next()), segment, built)) missed_.push_back(segment);
    return at_boundary(activation);
  }
  if (outcome == Outcome::kFault) note_break(activation, Stop::kFault, built.fault);
  if (outcome == Outcome::kEager || outcome == Outcome::kFault) return Go::kHandOver;
  missed_.clear();
  if (last_) last_->successor = segment;
  last_ = segment;
  auto transition = std::make_unique<Transition>();
  transition->segment = segment;
  transition->left = segment->left;
  if (segment->returns) {
    transition->result = Ref::take(build(segment->result, built));
    if (!transition->result) return Go::kRaise;
  } else {
    for (const FrameState& frame : segment->frames) {
      Transition::Slots& slots = transition->frames.emplace_back();
      for (const auto& [slot, recipe] : frame.locals) slots.locals.push_back(Ref::take(build(recipe, built)));
      for (const Recipe& recipe : frame.stack) slots.stack.push_back(Ref::take(build(recipe, built)));
    }
    if (PyErr_Occurred()) return Go::kRaise;
  }
  transition_ = std::move(transition);
  return proceed(note);
}

Director::Go Session::proceed(FrameNote& note) {
  Activation& activation = *note.activation;
  Transition& way = *transition_;
  if (way.left > 0) {
    --way.left;
    note.gave_up = true;
    activation.set_result(activation.some_result());  // nobody sees it: the caller's stack is written again
    return Go::kReturn;
  }
  if (way.segment->returns) {
    activation.set_result(way.result.release());
    transition_.reset();
    note.gave_up = true;
    return Go::kReturn;
  }
  const FrameState& state = way.segment->frames[way.entered];
  const bool is_expected = state.code.get() == reinterpret_cast<PyObject*>(activation.code());
  if (!is_expected ||
      (way.entered > 0 && activation.next() != 0)) {  // a call of the chain has raised: no stack is left
    transition_.reset();
    return Go::kHandOver;
  }
  Transition::Slots& slots = way.frames[way.entered];
  for (size_t i = 0; i < state.locals.size(); ++i)
    activation.set_local(state.locals[i].first, slots.locals[i].release());
  std::vector<PyObject*> stack;
  for (Ref& object : slots.stack) stack.push_back(object.release());
  activation.set_stack(stack);
  activation.set_next(state.next);
  if (++way.entered < way.frames.size()) {
    note.stepping = state.next;
    return Go::kStepOver;
  }
  const auto segment = std::move(way.segment);
  transition_.reset();
  if (refuses_breaks()) note_break(activation, segment->stop, segment->detail);
  return step_over(note);
}

// ---------------------------------------------------------------------------------------------------- recording

Director::Go Session::begin_recording(FrameNote& note, FrameCache::Entry& entry, size_t visit) {
  Activation& activation = *note.activation;
  missed_.clear();
  if (!is_first_evaluator()) {
    note_fallback(activation, "another frame evaluator is active (torch.compile, or a debugger)",
                  "call the compiled function outside of it");
    return Go::kHandOver;
  }
  if (++entry.recordings > 4 * state_.limit + static_cast<int>(kLongLoop) || entry.discarded > 8) {
    entry.given_up = true;
    note_fallback(activation, "no recording of this function could be kept", "see the breaks of this function");
    return Go::kHandOver;
  }
  const std::vector<FrameNote*> chain = chain_of(note);
  std::vector<Recorder::RootFrame> frames;
  for (FrameNote* link : chain)
    frames.push_back({link->activation, link->cache, own_stack(*link->activation, link == &note), link->top});
  recording_ = {std::make_unique<Recorder>(
                    std::move(frames), Changing{state_.changing, state_.dynamic.value_or(false), state_.reads_change}),
                note.cache,
                activation.next(),
                note.top && activation.next() == 0,
                visit,
                entry.saved,
                Ref::share(reinterpret_cast<PyObject*>(activation.code()))};
  Recorder& recorder = *recording_.recorder;
  recorder.tells_of_compiler = !state_.hides_compiler;
  recorder.iterations = visit;
  recorder.keeps_functions = !state_.backend;  // one of the user's would not know their gradient
  recorder.mark_at = [](Activation& frame) -> const FrameCache::Mark* {
    const auto* known = static_cast<const FrameNote*>(frame.note);
    if (!known) return nullptr;
    const auto found = known->cache->marks.find(frame.next());
    return found == known->cache->marks.end() ? nullptr : &found->second;
  };
  recorder.reads_data = !state_.backend;  // one of the user's has no place for what is read in between
  recorder.may_end = !refuses_breaks();
  recorder.reads_symbol_at = [](Activation& frame) {
    const auto* known = static_cast<const FrameNote*>(frame.note);
    return known && known->cache->changing_reads.count(frame.next()) > 0;
  };
  recorder.path_of = [this](Activation& frame) { return path_of(&frame); };
  recorder.invalidated = [this] {
    const Recorder::StopRecord& stop_record = recording_.recorder->stop_record();
    note_break(*stop_record.where, stop_record.stop, stop_record.detail);
    mark_stop(stop_record);
  };
  if (PyGC_IsEnabled()) {  // finalizers of other objects are not part of the program
    PyGC_Disable();
    gc_off_ = true;
  }
  static PyObject* self_name = PyUnicode_InternFromString("self");
  if (chain.front()->top) {
    recorder.add_pinned_root(function_, reinterpret_cast<PyFunctionObject*>(function_)->func_name);
    if (self_) recorder.add_pinned_root(self_, self_name);
  }
  if (recording_.takes_arguments) {
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
    recorder.add_slot_roots();
  }
  fault_point("begin");
  recorder.begin();
  for (FrameNote* link : chain) {
    recorder.enter_frame(*link->activation);
    link->activation->ask_before_each(!link->cache->marks.empty());
    link->activation->set_semantics(recorder);
  }
  return Go::kRun;
}

static Compiler g_compiler;

void set_compiler(Compiler compiler) { g_compiler = std::move(compiler); }

static BackendCompiler g_backend_compiler = nullptr;
void set_backend_compiler(BackendCompiler compiler) { g_backend_compiler = compiler; }

// A segment that reads numbers from tensors runs in pieces.
static void make_reading(Segment& segment, const aten::CompilePiece& compile) {
  segment.reading =
      aten::make_reading(segment.program, segment.examples, segment.hints, segment.guards.read_at, compile);
  segment.executable = segment.reading;
}

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
    if (segment.reads.empty()) {
      segment.executable = g_compiler(segment.program, segment.examples, note, poll);
    } else {
      make_reading(segment, [&](const std::shared_ptr<aten::Program>& piece, std::span<const at::Tensor> examples) {
        base::GraphNote own;
        own.callable = note.callable;
        own.where = note.where;
        own.keeps_texts = note.keeps_texts;
        own.check = note.check;
        auto made = g_compiler(piece, examples, own, poll);
        std::move(own.code.begin(), own.code.end(), std::back_inserter(note.code));
        if (note.fallback.empty()) note.fallback = own.fallback;
        if (note.warning.empty()) note.warning = own.warning;
        if (!note.late) note.late = own.late;
        return made;
      });
    }
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
  std::string text = base::concat(segment.positional, segment.returns ? " " : " then ", segment.left, "\n", note.text);
  for (const FrameState& frame : segment.frames) text += base::concat(frame.next, "\n");
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

bool Session::save(std::unique_ptr<Segment> segment) {
  if (recording_.takes_arguments) {
    segment->positional = positional_;
    segment->kwnames = Ref::share(kwnames_);
  }
  segment->visit = recording_.visit;
  base::GraphNote note;
  note.callable = state_.id;
  const auto* const code = reinterpret_cast<PyCodeObject*>(recording_.code.get());
  note.where = {PyUnicode_AsUTF8(code->co_filename), code->co_firstlineno, PyUnicode_AsUTF8(code->co_qualname)};
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
  FrameCache::Entry& entry = recording_.cache->entry(recording_.at);
  if (segment->program) {
    // Another thread may have recorded the same at the same time: one of them serves both.
    const auto is_same = [&](const std::shared_ptr<Segment>& other) { return other->key == segment->key; };
    if (std::count(entry.in_work.begin(), entry.in_work.end(), segment->key) > 0 ||
        (entry.saved > recording_.saved_before && std::any_of(entry.segments.begin(), entry.segments.end(), is_same))) {
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
    } else if (!segment->reads.empty()) {
      make_reading(*segment, [](const std::shared_ptr<aten::Program>& piece, auto) { return piece; });
    }
    segment->examples.clear();
    static bool warned = false;  // what is missing for one function is missing for all
    if (!note.warning.empty() && !std::exchange(warned, true)) warn(note.warning);
    segment->graph_number = base::process_report().add(std::move(note));
  }
  ++entry.saved;
  std::shared_ptr<Segment> saved = std::move(segment);
  if (last_) last_->successor = saved;
  last_ = saved;
  entry.segments.insert(entry.segments.begin(), std::move(saved));
  return true;
}

// The recording is over, kept or not: what it held is let go. Frames that it recorded may be in the middle of a call.
void Session::end_recording() {
  if (recording_.recorder) {
    recording_.recorder->abandon();
    for (const Recorder::RootFrame& frame : recording_.recorder->frames())
      frame.activation->set_semantics(plain_semantics());
    recording_.recorder->retire();
    retired_.push_back(std::move(recording_.recorder));
  }
  if (gc_off_) {
    gc_off_ = false;
    PyGC_Enable();
  }
}

InstructionPath Session::path_of(Activation* where) const {
  std::vector<Activation*> frames;
  Activation* outer = where;
  for (; outer && outer != top_->activation; outer = outer->outer()) frames.push_back(outer);
  if (!outer) {
    frames.clear();
    outer = top_->activation;
  }
  InstructionPath path{top_->cache, {}, -1};
  for (size_t i = frames.size(); i-- > 0; outer = frames[i])
    path.calls.emplace_back(outer->next(), calls_directly(*outer, *frames[i]), frames[i]->code());
  path.instruction = outer->next();
  return path;
}

void Session::mark_stop(const Recorder::StopRecord& stop_record) {
  ++recording_.cache->entry(recording_.at).discarded;
  if (stop_record.made_at.cache)
    stop_record.made_at.cache->marks[stop_record.made_at.instruction] = {stop_record.stop, stop_record.detail};
  else
    FrameCache::mark(path_of(stop_record.where), stop_record.stop, stop_record.detail);
}

// A recording that was finished and could not be kept.
void Session::mark_failure(const Recorder::StopRecord& failure) {
  if (failure.stop == Stop::kRaised)
    hide_compiler(state_, nullptr);  // the next one goes another way
  else
    mark_stop(failure);
}

Director::Go Session::stopped(Activation& activation) {
  auto* note = static_cast<FrameNote*>(activation.note);
  if (!recording())  // it was invalidated just now
    return note && !note->inlined ? step_over(*note) : Go::kStepOver;
  Recorder& recorder = *recording_.recorder;
  fault_point("stop");
  if (recorder.fail_rehearsal()) return Go::kRaise;
  Recorder::StopRecord stop_record = recorder.stop_record();
  note_break(*(stop_record.where ? stop_record.where : &activation), stop_record.stop, stop_record.detail);
  std::vector<Activation*> entered;
  if (!link_frames(activation, entered)) {  // this recording cannot be kept
    recorder.abandon();
    mark_stop(stop_record);
    if (recorder.failed_flush()) return Go::kRaise;
    top_->activation->request_boundary();
    activation.set_semantics(plain_semantics());
    activation.request_boundary();
    return Go::kStepOver;
  }
  note = top_;
  std::unique_ptr<Segment> segment = recorder.finish_break(entered);
  bool raises = recorder.failed_flush();
  if (segment) {
    segment->stop = stop_record.stop;
    segment->detail = stop_record.detail;
    raises = !save(std::move(segment));
  } else if (!raises) {
    Recorder::StopRecord failure = recorder.stop_record();
    note_break(activation, failure.stop, failure.detail);
    mark_failure(failure);
  }
  end_recording();
  for (FrameNote* link : chain_of(*note)) {  // they come back from their calls to a boundary
    link->activation->set_semantics(plain_semantics());
    if (link != note) link->activation->request_boundary();
  }
  if (!raises) return step_over(*note);
  activation.request_boundary();  // a handler of the frame may go on
  return Go::kRaise;
}

void Session::left(Activation& activation, Exit exit, PyObject* result) {
  auto* const note = static_cast<FrameNote*>(activation.note);
  if (recording() && activation.code()->co_flags & CO_GENERATOR && (exit == Exit::kReturned || exit == Exit::kRaised))
    recording_.recorder->finished(frame_generator(activation.frame()));
  if (!note || note->inlined) {
    if (recording() && exit == Exit::kHandedOver) {
      Recorder::StopRecord stop_record{Stop::kHandOver, "an instruction that only CPython executes", {}, &activation};
      note_break(activation, stop_record.stop, stop_record.detail);
      recording_.recorder->abandon();
      mark_stop(stop_record);
      top_->activation->request_boundary();
    }
    delete note;
    activation.note = nullptr;
    return;
  }
  note->quiet.reset();
  if (recording() && exit == Exit::kReturned && recording_.recorder->frames().size() > 1) {
    recording_.recorder->leave_frame();
  } else {
    if (recording()) {
      try {
        finish_recording(*note, exit, result);
      } catch (const std::exception& fault) {
        faulted(activation, fault.what());
        if (exit == Exit::kReturned && PyErr_Occurred()) keep_error();
      }
    }
    end_recording();
  }
  top_ = note->outer;
  activation.note = nullptr;
  delete note;
}

void Session::keep_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  failed_type_ = Ref::take(type);
  failed_value_ = Ref::take(value);
  failed_traceback_ = Ref::take(traceback);
}

void Session::finish_recording(FrameNote& note, Exit exit, PyObject* result) {
  Activation& activation = *note.activation;
  Recorder& recorder = *recording_.recorder;
  fault_point("finish");
  if (exit == Exit::kReturned) {
    std::unique_ptr<Segment> segment = recorder.finish_return(result);
    if (recorder.failed_flush()) return keep_error();
    if (segment) {
      if (!save(std::move(segment))) keep_error();
      return;
    }
    Recorder::StopRecord failure = recorder.stop_record();
    note_break(activation, failure.stop, failure.detail);
    mark_failure(failure);
    return;
  }
  PyObject* raised = PyErr_Occurred();
  // who presses Ctrl-C does so anywhere: the instruction is not to blame
  const bool interrupted = raised && PyErr_GivenExceptionMatches(raised, PyExc_KeyboardInterrupt);
  if (exit == Exit::kRaised && recorder.has_told() && !interrupted) {
    begins_again_ = note.top && recording_.takes_arguments && recorder.abandon_unseen();
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
  if (!interrupted) mark_stop(stop_record);
}

void Session::missed(Frame* frame) {
  if (!recording()) return;
  const char* name = PyUnicode_AsUTF8(frame_code(frame)->co_qualname);
  recording_.recorder->lose(name ? name : "a function");
}

bool Session::thrown(Frame* frame) { return recording() && recording_.recorder->thrown(frame); }

void Session::faulted(Activation& activation, const char* what) {
  try {
    if (recording_.recorder && top_) {
      bool lost = recording();
      recording_.recorder->abandon();
      if (lost) mark_stop({Stop::kFault, what, {}, &activation});
      top_->activation->request_boundary();
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

bool Session::refuses_breaks() const { return state_.fullgraph || error_on_graph_break(); }

void Session::note_break(Activation& where, Stop stop, const std::string& detail) {
  if (stop == Stop::kNone || stop == Stop::kInner) return;
  base::BreakNote note{state_.id, line_of(where), describe(stop, detail), std::string(text_of(stop).cure), 1};
  if (refuses_breaks()) breaks_.push_back(note);
  if (stop == Stop::kFault) warn_of_fault(state_, note.where, detail);
  base::process_report().add(std::move(note));
}

void Session::note_fallback(Activation& where, std::string reason, std::string cure) {
  base::process_report().add(base::FallbackNote{state_.id, line_of(where), std::move(reason), std::move(cure)});
}

}  // namespace magneto::capture
