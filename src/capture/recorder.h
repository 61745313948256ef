// capture/recorder.h: watches the evaluator run a frame and writes down a segment.
//
// Provenance is by object identity: one table from object to class. *Made* objects came into being inside the segment
// and nobody else knows them: whatever happens to them needs no guard and no effect, only a recipe if they are alive at
// the end. *Outside* objects have a source; what is read of them is guarded where it is read, what is changed of them
// is an effect. Values (None, numbers, strings) have no entry: the read that brought them was guarded. Tensors made
// here are known to the trace. Whatever fits none of these invalidates the recording: the instruction is marked, the
// program goes on as in eager, and the next recording ends before that instruction.
#pragma once
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "aten/history.h"
#include "aten/symbols.h"
#include "aten/trace.h"
#include "capture/call_rules.h"
#include "capture/evaluator.h"
#include "capture/recipe.h"
#include "capture/segment.h"
#include "capture/stop_reasons.h"
#include "capture/symbolic_trace.h"

namespace magneto::capture {

/// Which ints, floats and sizes are symbols: those of these paths, or all that a caller passes.
struct Changing {
  const std::unordered_set<std::string>& paths;
  bool all = false;
  bool reads = false;  ///< numbers that are read from tensors
};

class Recorder final : public Semantics, public Provenance {
 public:
  /// One of the frames that a recording begins in, outermost first. Those that return while it goes on are left.
  struct RootFrame {
    Activation* activation = nullptr;
    FrameCache* cache = nullptr;
    int stack = 0;                   ///< entries of the stack that are roots: not what a call that is under way takes
    bool function_is_fixed = false;  ///< the same at every call
  };
  /// Records from here on. The roots are the arguments of the call (entry of a callable) or the slots of the frames.
  Recorder(std::vector<RootFrame> frames, Changing changing);
  ~Recorder() override;
  static void prepare();  ///< once, at import

  /// The root `source` holds an object that is known already: it must be that object at every call.
  void alias_root(SourceId source, PyObject* object);
  void add_pinned_root(PyObject* object, PyObject* name);  ///< the callable, its self: the same object at every call
  void add_argument_roots(PyObject* const* args, size_t count, const std::vector<Ref>& names);
  /// All slots of each frame, after them its function, unless that is the same at every call.
  void add_slot_roots();
  void begin();  ///< the trace is entered

  bool active() const { return active_; }
  const std::vector<RootFrame>& frames() const { return frames_; }  ///< those that are still there
  void enter_frame(Activation& activation);
  void leave_frame();                    ///< the innermost root frame returns, and the recording goes on in its caller
  void finished(PyObject* generator);    ///< it returned: its end runs no code any more
  void resumed(Activation& activation);  ///< a generator
  bool thrown(Frame* frame);             ///< an exception goes into a generator; true: what it does there is recorded
  static PyObject* on_death(PyObject* capsule, PyObject* reference);

  /// Ends the recording. nullptr: it cannot be repeated (see failure()). Everything pending is computed; throws
  /// nothing: what an operator raises then is left as a Python error and `nullptr` is returned with failed_flush().
  std::unique_ptr<Segment> finish_return(PyObject* result);
  /// `entered`: the frames that were called since, from the innermost root frame on.
  std::unique_ptr<Segment> finish_break(const std::vector<Activation*>& entered);
  /// Ends it without a segment.
  void abandon();
  /// Lets go of all it holds. Frames that it was recording may still be on their way back through it.
  void retire();
  /// The same for a call that is made again. False: something outside has changed since it began.
  bool abandon_unseen();
  void lose(const char* function);  ///< a frame of it ran unseen: what was recorded is not all
  bool failed_flush() const { return failed_flush_; }
  /// True: a backward is rehearsed, and cannot be. A Python error is set, which ends it.
  bool fail_rehearsal();
  bool has_failed_rehearsal() const { return rehearsal_ && !rehearsal_->why.empty(); }

  struct StopRecord {
    Stop stop = Stop::kNone;
    std::string detail;
    /// Where a root frame made the object without a recipe.
    struct Place {
      FrameCache* cache = nullptr;
      int instruction = -1;
      bool operator==(const Place&) const = default;
    } made_at = {};
    Activation* where = nullptr;  ///< the frame in which it happened
  };
  const StopRecord& stop_record() const { return stop_record_; }

  // Provenance
  Answer origin(PyObject* object) override;

  // Semantics
  PyObject* load_global(Activation&, PyObject*) override;
  int store_global(Activation&, PyObject*, PyObject*) override;
  PyObject* load_name(Activation&, PyObject*) override;
  int store_name(Activation&, PyObject*, PyObject*) override;
  PyObject* load_cell(Activation&, PyObject*) override;
  int store_cell(Activation&, PyObject*, PyObject*) override;
  PyObject* load_attr(Activation&, PyObject*, PyObject*) override;
  int load_method(Activation&, PyObject*, PyObject*, PyObject**) override;
  PyObject* load_special(Activation&, PyObject*, PyObject*) override;
  PyObject* load_super_attr(Activation&, PyObject*, PyObject*, PyObject*, PyObject*) override;
  int store_attr(Activation&, PyObject*, PyObject*, PyObject*) override;
  PyObject* load_item(Activation&, PyObject*, PyObject*) override;
  int store_item(Activation&, PyObject*, PyObject*, PyObject*) override;
  PyObject* unary(Activation&, int, PyObject*) override;
  PyObject* binary(Activation&, int, PyObject*, PyObject*) override;
  PyObject* compare(Activation&, PyObject*, PyObject*, int) override;
  int contains(Activation&, PyObject*, PyObject*) override;
  int truth(Activation&, PyObject*) override;
  PyObject* identical(Activation&, PyObject*, PyObject*, bool) override;
  PyObject* convert(Activation&, PyObject*, int) override;
  PyObject* format(Activation&, PyObject*, int, PyObject*) override;
  PyObject* join(Activation&, PyObject* const*, int) override;
  PyObject* iter(Activation&, PyObject*) override;
  PyObject* next(Activation&, PyObject*) override;
  PyObject* length(Activation&, PyObject*) override;
  PyObject* call(Activation&, PyObject*, PyObject* const*, size_t, PyObject*) override;
  PyObject* call_ex(Activation&, PyObject*, PyObject*, PyObject*) override;
  PyObject* import_name(Activation&, PyObject*, PyObject*, PyObject*) override;
  PyObject* imported(Activation& self, PyObject* result, PyObject* name);  ///< a module, known by sys.modules
  PyObject* import_from(Activation&, PyObject*, PyObject*) override;
  int collect(Activation&, PyObject*, PyObject*, PyObject*) override;
  int extend_list(Activation&, PyObject*, PyObject*) override;
  int update_set(Activation&, PyObject*, PyObject*) override;
  int update_dict(Activation&, PyObject*, PyObject*) override;
  int merge_dict(Activation&, PyObject*, PyObject*, PyObject*) override;
  int unpack(Activation&, PyObject*, int, int, PyObject**) override;
  int other(Activation&, const char*) override;
  int match(Activation& self, const std::string& name);  ///< an instruction of a match statement
  bool reads_match(Activation& self, PyObject* subject, PyObject* type, PyObject* names);
  int split(Activation& self, const std::string& name);  ///< an instruction of an except* clause
  bool declines(Activation&) override;
  void made(Activation&, PyObject*) override;
  void caught(Activation&, PyObject*) override;
  void keyed(Activation&, PyObject* key) override;
  void after_instruction(Activation&) override;
  void returned_to_c(Activation&, PyObject* result) override;

  /// Whether torch.compiler.is_compiling() is True here, and whether anybody has asked.
  bool tells_of_compiler = true;
  /// Custom autograd.Functions that have a gradient may be part of the graph.
  bool keeps_functions = true;
  /// Numbers that are read from tensors may be part of the graph.
  bool reads_data = true;
  bool may_end = true;  ///< before the function does: there may be breaks
  /// Whether the number that the next instruction of a frame reads was another one at another call.
  std::function<bool(Activation&)> reads_symbol_at;
  std::function<InstructionPath(Activation&)> path_of;
  bool has_told() const { return has_told_; }
  /// Called when the recording is invalidated, while the frames of stop_record() are alive.
  std::function<void()> invalidated;
  /// How many iterations of a loop that is interrupted were recorded one by one before.
  size_t iterations = 0;
  /// Why the next instruction of a frame is not to be recorded; nullptr: it is.
  std::function<const FrameCache::Mark*(Activation&)> mark_at;

 private:
  struct Info {
    enum class Class : unsigned char { kMade, kOutside, kNumber, kReal, kText, kLazy, kEffect } cls = Class::kMade;
    SourceId source;
    types::Expr number;
    int index = -1;         // made: its place; effect, text: its number; lazy: the root that holds it; real: symbol
    bool resolved = false;  // floating: the guard program has resolved it
    bool typed = false;     // floating or pinned: its exact type is guarded
    size_t entered = 0;     // its number among all entries
  };
  struct Pending {  // an effect whose recipes are written at the end
    Effect::Kind kind;
    bool generic = true;
    bool takes_out = false;
    Ref target, key, value, callable;
    std::vector<Ref> args;
  };

  // recorder.cpp: table, life cycle
  Info* info(PyObject* object);
  void enter(PyObject* object, Info info);
  bool watch_death(PyObject* object);  ///< generators, and objects whose end runs code: not held, their death is seen
  void enter_made(PyObject* object);
  void enter_effect(PyObject* result, int number);  ///< what the call that is this effect has given
  void release_dead();  ///< made objects that only the table holds, and with them the tensors that they hold
  void let_dead_go();
  void let_all_go();  ///< what a recording held that is over
  void end_with_code(Activation& self);
  /// With it ends an object that runs code then, as far as one can know here; `unknown` as for LetGo::runs_code.
  bool holds_an_end(PyObject* object, bool unknown = true);
  void invalidate_by_end(const char* what);
  void owned(PyObject* object);       ///< by a guard
  void taken_away(PyObject* object);  ///< from where it stands outside; may be nullptr
  bool is_made(PyObject* object) {
    Info* i = info(object);
    return i && i->cls == Info::Class::kMade;
  }
  bool is_outside(PyObject* object) {
    Info* i = info(object);
    return i && i->cls == Info::Class::kOutside;
  }
  bool is_effect(PyObject* object) {  ///< what a call that replays repeat has given
    Info* i = info(object);
    return i && i->cls == Info::Class::kEffect;
  }
  bool floating(PyObject* object) {
    Info* i = info(object);
    return i && i->cls == Info::Class::kOutside && guards().sources.floating(i->source);
  }
  SourceId source_of(PyObject* object) {
    Info* i = info(object);
    return i ? i->source : SourceId();
  }
  GuardProgram& guards() { return segment_->guards; }
  bool is_root(const Activation& activation) const {
    return std::any_of(frames_.begin(), frames_.end(),
                       [&](const RootFrame& frame) { return frame.activation == &activation; });
  }
  Activation& innermost_root() const { return *frames_.back().activation; }
  StopRecord::Place place() const { return {frames_.back().cache, innermost_root().next()}; }
  void add_slots_of(const RootFrame& frame, Py_ssize_t first);
  FrameState state_of(Activation& frame, const std::vector<PyObject*>* before, RecipeWriter* writer) const;
  bool inside_handler() const;  ///< an exception caught by the root since the start is being handled
  void add_function_root(PyObject* object, SourceId source);
  PyObject* stop(Activation& self, Stop reason, std::string detail);
  int stop_status(Activation& self, Stop reason, std::string detail);
  void invalidate(Activation& self, Stop reason, std::string detail);
  void invalidate_by_read(Activation& self,
                          const std::string& name);  ///< by what the trace says of its last read of data
  void fault(const char* what);  ///< a note could not be taken (faults.h): the recording is thrown away
  std::unique_ptr<Segment> finish(bool returns, PyObject* result, const std::vector<Activation*>& entered);
  bool flush();        ///< false: a Python error is set
  void leave_trace();  ///< nothing where it was left for a call that is not recorded: an object that ends there may end
                       ///< the recording
  bool is_constant_tuple(PyObject* object);
  void forget_wrappers();
  bool effects_are_undone();
  bool holds_what_it_held(PyObject* dict, PyObject* key);

  // recorder_reads.cpp: guards
  /// `as_it_was`: read from what the parent held before the program changed it.
  void adopt(Activation& self, PyObject* object, Source::Kind kind, PyObject* parent, PyObject* key, Py_ssize_t index,
             const char* where, bool as_it_was = false);
  void adopt_result(Activation& self, PyObject* object,
                    const std::string& where);  ///< of a call: known, fresh, or stop_record
  void enter_elements(PyObject* container);     ///< tuples that C code has made for a list or tuple
  void enter_outside(PyObject* object, SourceId source);
  void resolve_source(SourceId source);
  void resolve(PyObject* object);      ///< floating: a kResolve step, with its parents
  void guard_whole(PyObject* object);  ///< floating: what has no parts is compared as soon as it is met
  void guard_type(PyTypeObject* type);
  void guard_class(PyObject* object);  ///< exact type of an outside object
  /// What becomes of a number that is read: a symbol, in the hands of who calls tagged() then, or the number of now.
  enum class Reader { kFixes, kTags };
  void guard_key(Activation& self, PyObject* dict, PyObject* key, PyObject* owner, SourceId source,
                 Reader reader = Reader::kFixes);
  bool guard_all(Activation& self, PyObject* container, Reader reader = Reader::kFixes);
  void fix_items(PyObject* list);
  void guard_function(PyFunctionObject* function);
  void guard_cell(PyObject* cell);
  void guard_partial(PyObject* partial);
  void bind_operator(PyObject* owner, PyObject* name);  ///< torch.ops.mine.op, before its attribute is read
  void guard_callee(PyObject* object);
  void guard_method(Activation& self, PyObject* method, PyObject* bound);
  void enter_receiver(PyObject* method, PyObject* bound);
  void guard_reference(PyObject* reference);                 ///< a weak one
  bool callable_from_c(Activation& self, PyObject* object);  ///< C code may call it: what it does is seen, or nothing
  static bool is_partial(PyObject* object) { return strcmp(Py_TYPE(object)->tp_name, "functools.partial") == 0; }
  void guard_identity(PyObject* left, PyObject* right);
  PyObject* known_by_address(PyObject* object);  ///< nullptr: it is not; an address stands for its object
  void guard_pair(PyObject* left, PyObject* right);
  void guard_lookup(PyObject* container, PyObject* item);
  void guard_distinct(PyObject* container);
  void guard_compared(PyObject* object, int depth = 0);
  void guard_member(PyObject* object, PyObject* name, PyObject* result);
  void guard_state(PyObject* callable, PyObject* const* args, size_t count, PyObject* result, std::string name,
                   PyObject* kwnames = nullptr);
  static bool fits_symbol(PyObject* object);     ///< an int that a condition can hold
  static PyObject* unique_int(PyObject* value);  ///< an equal int that no one else has
  void pin(PyObject* object);                    ///< a floating object becomes known by address
  bool reached_as_before(PyObject* dict, PyObject* owner, SourceId source);
  DictGuard& dict_guard(PyObject* dict, PyObject* owner, SourceId source);
  void make_symbolic(PyObject* tensor, const std::string& path, TensorMeta& meta);
  bool touch_tensor(PyObject* tensor);  ///< known to the trace, its properties guarded; false: a tensor from nowhere
  PyObject* tagged(PyObject* holder, PyObject* key,
                   PyObject* value);  ///< takes over `value`; a volatile number comes back tagged
  bool is_volatile(const std::string& path) const { return changing_.paths.count(path) > 0; }
  bool is_changing_root(SourceId source, PyObject* number);  ///< a number among the arguments that is to be a symbol
  types::Expr new_symbol(int64_t hint);
  PyObject* new_number(PyObject* value, types::Expr expr);  ///< a fresh int (of 64 bits) that carries the expression
  std::optional<types::Expr> computed(int which, PyObject* left, PyObject* right);
  std::optional<bool> known_truth(PyObject* tensor);
  int assert_truth(Activation& self, PyObject* tensor, bool wanted);
  bool has_known_data(PyObject* tensor);  ///< the same in each call
  // recorder_data.cpp: numbers that are read from tensors
  bool can_read(Activation& self, PyObject* tensor);  ///< the graph can read its elements
  /// The graph can read numbers here, of this tensor.
  bool may_read(Activation& self, const at::Tensor* read = nullptr);
  bool reads_in_a_loop(Activation& self);  ///< too often to be one graph
  /// As long as it lives, operators whose sizes depend on data are a part of the graph.
  struct Measuring {
    Measuring(Recorder& recorder, Activation& self);
    ~Measuring() { trace.set_measures(nullptr, false); }
    aten::Trace& trace;
  };
  void note_measures(Activation& self, const std::string& name);
  Ref read_now(Activation& self, const std::string& name, const std::function<PyObject*()>& read);
  bool add_read(Activation& self, PyObject* tensor, const std::string& name, Segment::Read read);
  PyObject* read_numbers(Activation& self, PyObject* tensor, const std::string& name);  ///< tensor.tolist()
  int read_truth(Activation& self, PyObject* tensor);
  std::optional<bool> equal_elements(Activation& self, PyObject* left, PyObject* right);  ///< nothing: not only ints
  /// A tuple or list that is made here, of ints, some of them symbols.
  bool is_made_of_sizes(PyObject* object);
  PyObject* call_total(Activation& self, PyObject* numbers, int which);  ///< sum, math.prod
  PyObject* call_divmod(Activation& self, PyObject* left, PyObject* right);
  PyObject* call_extremum(Activation& self, std::span<PyObject* const> numbers, int better);
  bool is_exactly(const types::Expr& expr, PyObject* value) const;
  void guard_number(const types::Expr& expr);  ///< the program has computed it
  std::optional<types::Expr> number(PyObject* object);
  void fix(const types::Expr& expr, PyObject* value);  ///< it is this int at every call

  // recorder_reals.cpp: floats that are symbols
  static void prepare_reals();
  static bool is_plain_number(PyObject* object);  ///< a float, an int or a bool
  static bool can_be_symbol(PyObject* value);     ///< an int that fits, or a float
  types::Expr symbol_for(PyObject* value);        ///< a new one
  uint32_t new_real(double hint);
  PyObject* carrier(PyObject* value, const types::Expr& symbol);  ///< a fresh int or float that stands for the symbol
  PyObject* carrier(double value, uint32_t symbol);
  std::optional<graph::Real> real(PyObject* object);
  bool is_symbolic(PyObject* object);  ///< an int or float that may be another one at the next call
  void fix(graph::Real real, double value);
  void fix_symbol(const types::Expr& symbol, PyObject* value);
  std::optional<RealOperand> real_operand(PyObject* object);
  PyObject* computed_real(RealStep::Op op, PyObject* function, std::span<PyObject* const> operands, PyObject* result);
  PyObject* binary_real(Activation& self, int which, PyObject* left, PyObject* right, bool* handled);
  PyObject* call_real(PyObject* callable, std::span<PyObject* const> args, bool* handled);
  bool fits_as_real(PyObject* object, c10::ScalarType dtype);
  bool makes_tensor_of_reals(std::span<PyObject* const> args, size_t positional, PyObject* kwnames);
  void guard_comparison(PyObject* left, PyObject* right, int op, bool outcome);  ///< of plain numbers

  // recorder_texts.cpp: texts that are made of numbers that change
  struct Text {  ///< function(*operands)
    Ref function;
    std::vector<Ref> operands;
  };
  bool is_text(PyObject* object) {
    const Info* known = PyUnicode_CheckExact(object) ? info(object) : nullptr;
    return known && known->cls == Info::Class::kText;
  }
  bool may_change(PyObject* object, int depth = 0);  ///< a number that is a symbol, such a text, or a container of them
  /// A text that is function(*operands) at each call, and `result` now. nullptr: it cannot be one.
  PyObject* computed_text(const char* function, std::span<PyObject* const> operands, PyObject* result);
  PyObject* shown_text(PyObject* value, int conversion, PyObject* spec, PyObject* result);
  /// What a call makes of texts and numbers that change; nullptr without error: it is none of the known ones.
  PyObject* call_of_text(Activation& self, PyObject* callable, std::span<PyObject* const> args, size_t positional,
                         PyObject* kwnames, PyObject* bound);
  PyObject* binary_text(Activation& self, int which, PyObject* left, PyObject* right);
  void fix_text(PyObject* text);
  /// A copy of a plain container as it is now, which nobody changes: what print shows of it. nullptr: it holds others.
  Ref frozen(Activation& self, PyObject* object, int depth = 0);

  void specialise(PyObject* object, int depth = 0);
  void specialise_held(PyObject* iterator, int depth = 0);  ///< numbers that C code will take out of it
  bool carries_number(PyObject* object, int depth = 0);     ///< one that is a symbol, or not looked at yet
  void settle_loose(Activation& self, const std::vector<PyObject*>& arrived);
  /// An iterator in a slot that nobody else has is taken for one that was made here, of the parts that it tells.
  bool take_apart(Activation& self, PyObject* iterator, Py_ssize_t references = 1);  ///< -1: others may have it
  bool walks_again(Activation& self, PyObject* iterator);
  bool claim(graph::ValueId input);  ///< a tensor that an operator met before any primitive; false: from nowhere
  /// Whoever walks this iterator gets the very objects that Python code gave to it.
  static bool only_keeps(PyObject* iterator, int depth = 0);
  static bool runs_no_python(PyObject* iterator, int depth = 0);  ///< one of C that walks and calls nothing else
  /// While C code copies what an iterator gives into a list or tuple.
  struct Keeping {
    Keeping(Recorder& recorder, Activation& self, PyObject* source) : keeper(recorder.keeper_), before(keeper) {
      keeper = source && only_keeps(source) ? &self : nullptr;
    }
    ~Keeping() { keeper = before; }
    const Activation*& keeper;
    const Activation* const before;
  };

  /// Whether C code may read all of `object`; guards what it may read. false: `stop_record` says why.
  bool readable(Activation& self, PyObject* object, int depth = 0);
  /// Of an outside dict or set: the look-up runs code of the program. The reason stands in unreadable_*.
  bool asks_program(PyObject* container, PyObject* key);
  bool usable_key(Activation& self, PyObject* key);  ///< C code asks for its hash, or for the number it stands for
  bool has_stable_text(Activation& self, PyObject* value);  ///< guards what its text depends on; false: it stopped
  /// Whether C code may take all elements of `object`; guards which they are, not what is in them.
  bool takes_apart(Activation& self, PyObject* object);
  bool made_here(const at::Tensor& tensor) const;
  bool usable_tensor(PyObject* tensor, const char* place);  ///< a plain tensor that the trace knows or takes in
  bool slot_known(Activation& self, PyObject* object);      ///< the slots of its type are known
  /// Whether a slot of the object, `method` for Python, may be used: what it reads is guarded. C code keeps the content
  /// of some objects where no guard sees it.
  bool slot_guarded(Activation& self, PyObject* object, const char* method);
  /// C code keeps its content, and guards can walk it: a deque, a view of a dict.
  static bool shows_content(PyObject* object) { return is_deque(object) || dict_of_view(object); }
  PyObject* behind_view(Activation& self, PyObject* view);  ///< its dict, guarded as a part of it
  void loosen(PyObject* object);                            ///< it is walked at every call, though its address is known
  PyObject* behind_proxy(PyObject* proxy);  ///< what a mappingproxy from outside shows; nullptr: it is none
  Stop unreadable_stop_ = Stop::kNone;
  std::string unreadable_detail_;

  // recorder_calls.cpp
  PyObject* call_function(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames);
  PyObject* call_type(Activation& self, PyTypeObject* type, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  // recorder_classes.cpp: classes that are made here
  PyObject* build_class(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                        std::span<PyObject* const> bases);
  /// type(name, bases, names), after so many other arguments.
  PyObject* build_named_class(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames, size_t skip);
  PyObject* finish_class(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  bool is_new_class(PyObject* object) const;  ///< in the middle of build_class
  bool allows_bases(std::span<PyObject* const> bases);
  PyObject* made_holder(PyTypeObject* type,
                        PyObject* name);  ///< the class made here that has it; nullptr: another has it
  /// A part of it may have been made for a class that is made here.
  void enter_class_part(PyTypeObject* type, PyObject* name, PyObject* object);
  PyObject* make_instance(Activation& self, PyTypeObject* type, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames);
  PyObject* call_c(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  // recorder_c_calls.cpp: one handler for each class of C functions
  struct CCall;
  PyObject* call_by_class(const CCall& call);
  PyObject* call_opaque(const CCall& call);
  PyObject* call_data(const CCall& call);
  PyObject* call_torch(const CCall& call);
  PyObject* call_new_of_sizes(const CCall& call);
  PyObject* call_requires_grad(const CCall& call);  ///< nullptr without error: it is not known
  PyObject* call_checkpoint(const CCall& call);
  PyObject* call_operator_function(const CCall& call);
  PyObject* call_identity(const CCall& call);
  PyObject* call_next(const CCall& call);
  PyObject* call_read_key(const CCall& call);
  PyObject* call_getattr(const CCall& call);
  PyObject* call_getattribute(const CCall& call, PyObject* name);
  PyObject* call_setattr(const CCall& call);
  PyObject* call_type_call(const CCall& call);
  PyObject* call_new(const CCall& call);
  PyObject* call_globals(const CCall& call);
  PyObject* call_build_class(const CCall& call);
  PyObject* call_reduce(const CCall& call);
  PyObject* call_state(const CCall& call);
  PyObject* call_context_get(const CCall& call);
  PyObject* call_state_set(const CCall& call);
  // recorder_pure.cpp
  PyObject* call_pure(const CCall& call);
  bool guard_what_classes_tell(const CCall& call);
  void guard_classes(PyObject* object);  ///< of an object, or of those in a tuple
  std::span<PyObject* const> compared_ints(const CCall& call);
  PyObject* call_compiled(Activation& self, PyObject* compiled, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames);
  PyObject* call_partial(Activation& self, PyObject* partial, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_numpy(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_getter(Activation& self, PyObject* getter, PyObject* of);  ///< operator.itemgetter(...)(of) ...
  PyObject* call_generator(const CCall& call);                              ///< generator.send, throw, close
  bool is_held_by_program(PyObject* object);
  PyObject* call_reference(Activation& self, PyObject* reference);  ///< weakref.ref, from outside
  PyObject* call_func(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* make_reference(PyObject* referent);  ///< weakref.ref(referent)
  PyObject* call_unrecorded(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  /// What tells others (warnings, print, logging), who may be Python code. nullptr: it raised, and the recording ends.
  PyObject* call_telling(Activation& self, const char* name, PyObject* callable, PyObject* const* args, size_t nargsf,
                         PyObject* kwnames);
  // recorder_hooks.cpp
  struct Attached {
    Ref tensor;
    const void* history;  ///< when it was attached
    std::string name;
    StopRecord::Place place;
  };
  std::vector<Attached> attached_;
  /// Tensor.register_hook and its like.
  PyObject* attach(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* detach_hook(Activation& self, PyObject* function, PyObject* handle);
  bool attached_in_time();  ///< no tensor got another history later. False: `stop_record` says where
  // recorder_backward.cpp
  struct MadeLeaf {
    at::Tensor tensor;
    StopRecord::Place place;
  };
  std::unordered_map<const torch::autograd::Node*, aten::NodePtr> freed_;  ///< that a backward has run, and not kept
  std::vector<MadeLeaf> leaves_;                                           ///< tensors made here that became leaves
  bool is_recorded(const torch::autograd::Node& node) const;
  PyObject* run_engine(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  /// Tensor.requires_grad_(). nullptr without an error: a graph cannot hold it.
  PyObject* begin_history(Activation& self, PyObject* tensor);
  void note_leaf(const at::Tensor& tensor);
  bool has_freed_history(const at::Tensor& tensor) const;
  bool needs_made_leaf(const at::Tensor& tensor) const;
  /// What leaves has eager's history, by effects where a replay would give another one. False: as attached_in_time.
  bool settle_histories(RecipeWriter& writer, std::vector<Effect>& effects);
  // recorder_copies.cpp
  /// No tensor in it that cannot be copied in a graph. Memo: of a deep copy, or None; nullptr: of one that is not deep.
  bool copies_known(Activation& self, PyObject* object, PyObject* memo);
  bool collect_copied(PyObject* object, int depth, std::vector<PyObject*>& tensors);
  bool share_memory(PyObject* one, PyObject* other);  ///< two tensors, now or at another call
  static bool is_own_tensor(const at::Tensor& tensor);
  static PyObject* plain_tensor_class();
  PyObject* copy_tensor(Activation& self, PyObject* tensor, PyObject* memo);
  void keep_slot_names(PyObject* object);
  std::vector<std::pair<Ref, Ref>> copied_;  // tensors, by the memo of their copy
  PyObject* call_own_cache(Activation& self, PyObject* wrapper, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames);
  PyObject* call_cached(Activation& self, PyObject* wrapper, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_operator(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames);
  PyObject* call_of_a_device(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                             PyObject* kwnames);
  PyObject* call_script(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_warning(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_print(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_log(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  PyObject* call_effect(Activation& self, PyObject* callable, CallClass cls, PyObject* const* args, size_t nargsf,
                        PyObject* kwnames, PyObject* bound);
  // recorder_autograd.cpp: custom autograd.Functions
  static PyObject* autograd_apply();                      ///< torch.autograd.Function.apply, borrowed
  bool builds_node(PyObject* const* args, size_t count);  ///< autograd gives the result a node of its own
  bool is_called_by_apply(Activation& frame) const;
  bool is_new_context(Activation& frame, PyObject* object) const;  ///< made by C for the forward that begins
  PyObject* call_autograd(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                          PyObject* cls);
  bool is_rehearsable(PyObject* cls);
  static std::string why_not_rehearsed(PyObject* cls);
  struct Rehearsal;
  struct Applied;                                                ///< an apply that has run
  struct BothValues;                                             ///< of the recording and of its symbolic trace
  struct Rehearsed;                                              ///< what its backward would do
  bool add_value(BothValues& values, const at::Tensor& tensor);  ///< false: it is from nowhere
  std::string look_at_results(Applied& applied, aten::Trace::Mark begin);
  Ref run_backward(Activation& self, const Applied& applied, const std::vector<Ref>& tangents, Rehearsal& rehearsal);
  std::string rehearse(Activation& self, const Applied& applied, Rehearsed& into);
  /// Gives the results of an apply their gradient in the graph. Not empty: why that cannot be.
  std::string differentiate(Activation& self, PyObject* cls, std::span<PyObject* const> args, PyObject* result,
                            aten::Trace::Mark begin);
  /// A backward is rehearsed, and the object is not one that it made: it is not to be changed.
  bool is_older(PyObject* object);

  /// Runs a torch call: run(operands). Where sizes are symbols, once more with the operands' counterparts in the
  /// symbolic trace.
  template <class Run>
  PyObject* torch_leaf(Activation& self, const std::string& name, std::span<PyObject* const> operands, Run&& run);
  PyObject* repeat_symbolically(PyObject* result, std::span<PyObject* const> operands,
                                const std::function<PyObject*(PyObject* const*)>& run,
                                std::optional<DoubleRange> lends = {});
  static std::string words_of_error();  ///< of the Python error that is set, which is cleared
  bool wants_symbols() const;
  void finish_symbolic_trace();  ///< what its symbols must be
  bool torch_operand(Activation& self, PyObject* object, int depth = 0);
  void adopt_torch(Activation& self, PyObject* result, const std::string& name, int depth = 0);
  void set_place(Activation& self);
  PyObject* tensor_attr(Activation& self, PyObject* tensor, PyObject* name, bool* handled);
  int guard_attr(Activation& self, PyObject* owner, PyObject* name,
                 Reader reader);  ///< 0 ok, 1 a C member, kStopStatus

  // effects
  void record_set(Effect::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool generic);
  int record_call(PyObject* callable, PyObject* const* args, size_t count);
  void snapshot(PyObject* container);  ///< its content before the first change
  /// One entry of a dict is about to be set, or taken away, for the first time or again.
  void remember(PyObject* dict, PyObject* key);
  bool is_dirty(PyObject* dict, PyObject* key);
  bool is_rewritten(PyObject* holder, PyObject* key);  ///< what it holds there may be of the recording's making
  void make_dirty(PyObject* dict, PyObject* key);
  PyObject* fill(Activation& self, PyObject* container, PyObject* key);
  void check_changed_dict(PyObject* target, bool by_attribute);
  void guard_apart();  ///< what effects change is none of the other objects that were read

  std::vector<RootFrame> frames_;
  const size_t frames_at_start_;
  Activation& root_;  // the outermost of them
  bool active_ = false;
  bool failed_flush_ = false;
  bool has_told_ = false;
  std::string raised_by_;  // the operator; only to learn what else happens the recording goes on
  const Changing changing_;
  const uint64_t first_node_;  // of torch's autograd graph, that is recorded
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<aten::Trace> trace_;
  std::shared_ptr<aten::Symbols> symbols_;
  std::unique_ptr<SymbolicTrace> symbolic_;              // nullptr: all sizes are fixed
  std::vector<std::pair<types::Expr, int64_t>> passed_;  // symbolic numbers that torch calls took
  std::unordered_map<int, int> real_roots_;              // symbols of floats that roots hold: which root
  std::vector<graph::Real> passed_reals_;                // and floats
  std::unordered_map<PyObject*, Info> table_;
  size_t entries_ = 0;           // ever made
  std::vector<PyObject*> held_;  // owned: everything in the table but what is watched
  struct Watched {
    PyObject* object;  // not owned
    bool runs_code;    // at its end
  };
  std::unordered_map<PyObject*, Watched> watched_;  // by weak reference (owned)
  size_t waiting_ = 0;                              // of those: the ones that run code
  std::vector<PyObject*> mortal_;                   // in slots, held: with them such an object may end
  std::unordered_set<PyObject*> endless_;           // known, and no such object ends with them
  bool has_ends_ = false;                           // there was one of either
  PyObject* death_callback_ = nullptr;
  std::unordered_map<PyObject*, size_t> dict_index_;
  std::unordered_map<PyObject*, SourceId> dict_places_;  // how a dict was reached first
  std::set<std::pair<PyObject*, PyObject*>> second_owners_;
  std::vector<Ref> loose_;                // what frames gave to whoever called them, until it is seen to arrive
  std::unordered_set<PyObject*> sole_;    // iterators in slots that nobody else has
  std::unordered_set<PyObject*> walked_;  // iterators from outside that are advanced again by each replay
  const Activation* keeper_ = nullptr;    // it runs C code that takes numbers and hands on the very same objects
  std::unordered_map<PyObject*, PyObject*> ids_;  // an int that id() gave -> the object
  std::unordered_set<PyObject*> listed_, typed_, functions_, guarded_tensors_;
  std::set<std::pair<PyObject*, PyObject*>> keyed_, members_, reads_;
  std::unordered_map<PyObject*, PyObject*> originals_;                        // owned copies
  std::unordered_map<PyObject*, std::vector<std::pair<Ref, Ref>>> replaced_;  // what dicts held at keys that were set
  std::set<std::pair<PyObject*, std::string>> dirty_keys_;
  std::vector<Ref> dirty_refs_;
  std::unordered_set<PyObject*> state_dirty_;
  std::map<std::pair<PyObject*, std::string>, types::Expr> symbol_of_;  // volatile numbers by holder and key
  std::unordered_set<SourceId> resolved_;
  std::set<std::tuple<SourceId, PyObject*, Py_ssize_t>> paths_;  // second ways to objects that were known already
  std::set<std::string> state_seen_;
  struct Apply {
    Activation* caller;
    PyTypeObject* context;
  };
  std::vector<Apply> applies_;  // calls of custom autograd.Functions that are under way
  struct Rehearsal {
    Rehearsal* outer;
    PyObject* cls;
    size_t first_entry;  // of what it makes
    PyObject* context;
    PyObject* saved;  // what context.saved_tensors is
    bool asks_for_saved;
    std::string why;  // not empty: it has failed
  };
  bool uses_func_ = false;  // there are, or were, wrappers of torch.func
  int func_depth_ = 0;      // its transforms that are under way
  int checkpoint_depth_ = 0;
  uint32_t checkpoints_ = 0;  // regions of torch.utils.checkpoint so far
  struct Building {
    std::vector<Ref> bases, known;  ///< its bases, and the classes that they had before
  };
  std::vector<Building> building_;  // classes that are being made, the innermost last
  bool splits_group_ = false;       // an except* clause looks at a group
  std::vector<Ref> throwing_;       // generators that a throw or close of the program may enter
  Rehearsal* rehearsal_ = nullptr;  // of a backward
  std::vector<Pending> effects_;
  std::vector<Text> texts_;
  std::vector<std::vector<PyObject*>> entry_slots_;  // what each frame's locals held at the start (borrowed, held)
  std::vector<StopRecord::Place> places_;            // where objects were made
  PyObject* handled_ = nullptr;                      // what was handled when the segment began (borrowed)
  StopRecord::Place caught_at_;                      // where an exception was raised that a root frame caught last
  const std::thread::id thread_ = std::this_thread::get_id();
  bool releasing_ = false;
  StopRecord stop_record_;
  std::string fault_;  // what the last fault said
};

}  // namespace magneto::capture
