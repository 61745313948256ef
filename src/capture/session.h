// capture/session.h: one call of a compiled callable that needs a frame: because something has to be recorded, or
// because a segment ends in the middle. It directs the evaluator: at a boundary run a segment whose guards hold, else
// record one; at a stop end the segment and step over the instruction.
//
// A break inside a function that was inlined cannot be replayed from the outer frame, whose call is half done. So the
// recording is given up, the call is marked on every frame of the path, and from then on these frames are roots of
// their own: the outer segment ends before the call, the inner frame has segments of its own.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/interrupt.h"
#include "base/report.h"
#include "capture/activation.h"
#include "capture/hook.h"
#include "capture/recorder.h"
#include "capture/segment.h"

namespace magneto::capture {

/// What a compiled callable keeps between calls.
struct CaptureState {
  explicit CaptureState(PyCodeObject* code) : root(std::make_unique<FrameCache>(code)) {}
  /// All that was recorded. What ends with it may be anything, another compiled function or a running call's own
  /// segments among it: it ends when no call runs any more.
  void forget(PyCodeObject* code);
  uint64_t id = 0;
  std::unique_ptr<FrameCache> root;
  std::unordered_set<std::string> changing;  ///< paths of ints and sizes that changed between calls
  std::optional<bool> dynamic;               ///< true: all of them are symbols at once; false: only storage offsets
  int limit = 8;                             ///< segments at one instruction
  bool fullgraph = false;
  bool compiles = true;         ///< false: operator by operator
  PyObject* backend = nullptr;  ///< CompileOptions::backend (borrowed)
  bool keeps_texts = false;     ///< of all stages, in the report
  int check = 0;                ///< base::GraphNote::check
  std::string name;
  bool warned_of_fault = false;
  bool ran_in_eager = false;    ///< as Stance::kEagerThenCompile asks
  bool hides_compiler = false;  ///< torch.compiler.is_compiling() is False: what it does for compilers raised
};

/// Makes a recorded program fast. Gets the inputs of the recording as examples, and tells in the note what it did.
/// Gives the program back where it can do nothing. Asks `poll` in this thread while it works. Called without the GIL.
using Compiler = std::function<std::shared_ptr<aten::Executable>(const std::shared_ptr<aten::Program>& program,
                                                                 std::span<const at::Tensor> examples,
                                                                 base::GraphNote& note, const base::Poll& poll)>;
void set_compiler(Compiler compiler);  ///< once, at import

/// Lets a backend of the user's make it, for these values of the symbols. nullptr: with a Python error.
using BackendCompiler = std::shared_ptr<aten::Executable> (*)(PyObject* backend,
                                                              const std::shared_ptr<aten::Program>& program,
                                                              std::span<const at::Tensor> examples,
                                                              std::span<const int64_t> symbols);
void set_backend_compiler(BackendCompiler compiler);  ///< once, at import

/// Says that a part of ours failed, once for each callable. Keeps the error that is set.
void warn_of_fault(CaptureState& state, const base::Line& where, const std::string& what);

/// Tells the user. Keeps the error that is set, and sets none where warnings are errors.
void warn(const std::string& what);
/// The same, through Python's logging.
void log(const std::string& logger, int level, const std::string& text);

/// Runs a segment whose guards hold. Fills `built.outputs`, repeats effects.
enum class Outcome { kDone, kRaised, kEager, kFault };  ///< kEager, kFault: nothing has happened
Outcome run_segment(Segment& segment, GuardContext& context, BuildContext& built);

/// The segment of `entry` whose guards hold for these roots, moved to the front; nullptr. `why` as GuardProgram::check.
std::shared_ptr<Segment> find_segment(FrameCache::Entry& entry, GuardContext& context, size_t positional,
                                      PyObject* kwnames);

/// Whether the segment takes away what runs code at its end, from slots of the frame (nullptr: it has none) or from
/// objects outside: that code would run after the graph, and after other effects. Such a call is recorded instead.
bool lets_an_end_go(const Segment& segment, GuardContext& context, const Activation* activation);

class Session final : public Director {
 public:
  Session(CaptureState& state, PyObject* function, PyObject* self, PyObject* const* args, size_t positional,
          PyObject* kwnames);
  ~Session() override;

  /// A segment at the function's start whose guards were just found to hold, with what they found.
  void start_with(std::shared_ptr<Segment> segment, GuardContext context) {
    first_segment_ = std::move(segment);
    first_context_ = std::move(context);
  }
  /// Calls the function. New reference or nullptr with an error.
  PyObject* run();
  /// The breaks of this call, where fullgraph asked for them.
  const std::vector<base::BreakNote>& breaks() const { return breaks_; }

  bool wants(PyThreadState* thread, Frame* frame) override;
  bool entered(Activation& activation) override;
  Go at_boundary(Activation& activation) override;
  Go stopped(Activation& activation) override;
  void left(Activation& activation, Exit exit, PyObject* result) override;
  void faulted(Activation& activation, const char* what) override;
  bool records() const override { return recording(); }
  void missed(Frame* frame) override;
  bool thrown(Frame* frame) override;

 private:
  struct Root {
    Activation* activation = nullptr;
    FrameCache* cache = nullptr;
    Root* outer = nullptr;
    std::unique_ptr<Recorder> recorder;
    int recorded_at = -1;         ///< instruction at which the recording began
    uint64_t saved_before = 0;    ///< FrameCache::Entry::saved at that time
    int stepping = -1;            ///< instruction that is stepped over now
    PyObject* handled = nullptr;  ///< the exception handled when the frame began (borrowed)
    std::optional<Hooked> quiet;  ///< nobody listens while an opaque instruction runs
    bool top = false;
    bool entry_missed = false;
    bool gave_up = false;
    int held = 0;  ///< boundaries at which somebody held the frame
  };
  bool recording() const { return top_ && top_->recorder && top_->recorder->active(); }
  Go begin_recording(Root& root, FrameCache::Entry& entry);
  Go refuse_recording(Activation& where, const std::string& why);
  std::string why_none_fits(const FrameCache::Entry& entry, bool arguments, GuardContext& context,
                            std::vector<std::string>* changed = nullptr) const;
  Go step_over(Root& root);
  bool collect_roots(Root& root, std::vector<PyObject*>& roots) const;
  Go apply(Root& root, Segment& segment, GuardContext& context);
  void end_recording(Root& root);
  void finish_recording(Root& root, Exit exit, PyObject* result);  ///< the frame ends; keeps the error that is set
  PyObject* run_in_eager();                                        ///< after such an exception
  void keep_error();                                               ///< raised when the call ends
  /// False: a signal's handler raised while it was compiled. Then nothing is kept, and the next call begins again.
  bool save(Root& root, std::unique_ptr<Segment> segment);
  void mark_stop(Root& root, const Recorder::StopRecord& stop_record);
  void mark_failure(Root& root, const Recorder::StopRecord& failure);
  void note_break(Activation& where, Stop stop, const std::string& detail);
  void note_fallback(Activation& where, std::string reason, std::string cure);

  CaptureState& state_;
  PyObject* function_;
  PyObject* self_;
  std::vector<PyObject*> call_args_;  ///< with self in front
  PyObject* const* args_;
  size_t positional_;
  PyObject* kwnames_;
  std::shared_ptr<Segment> first_segment_;
  GuardContext first_context_;
  bool expecting_ = true;
  std::vector<base::BreakNote> breaks_;
  Root* top_ = nullptr;
  bool gc_off_ = false;
  bool begins_again_ = false;  ///< the call raised on a path for compilers, and nobody can have seen anything of it
  Ref failed_type_, failed_value_, failed_traceback_;
};

/// Where an activation stands, for the report.
base::Line line_of(Activation& activation);

}  // namespace magneto::capture
