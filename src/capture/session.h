// capture/session.h: one call of a compiled callable that needs a frame: because something has to be recorded, or
// because a segment ends in the middle. It directs the evaluator: at a boundary run a segment whose guards hold, else
// record one; at a stop end the segment and step over the instruction.
//
// A break inside a function that was inlined ends the segment there: its frames become a chain (segment.h), and the
// next recording begins in all of them and goes on when they return. Where C code stands between two frames (map,
// sorted, a generator), no replay could enter the inner one: the recording is given up, the instruction that calls the
// C code is marked, so that the next one ends before it, and the frames beyond have segments of their own.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/interrupt.h"
#include "base/report.h"
#include "capture/evaluator.h"
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
  bool reads_change = false;    ///< some numbers that were read from tensors were others at another call
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
enum class Outcome { kDone, kRaised, kEager, kMissed, kFault };  ///< kEager, kMissed, kFault: nothing has happened
Outcome run_segment(Segment& segment, GuardContext& context, BuildContext& built);

/// Outcome::kMissed: the segment read other numbers than when it was recorded. True: it is forgotten, and the next
/// recording knows which of them change. False: it stays for other calls.
bool note_miss(CaptureState& state, FrameCache::Entry& entry, const std::shared_ptr<Segment>& segment,
               const BuildContext& built);

/// The segment of `entry` whose guards hold for these roots, moved to the front; nullptr. `likely` is asked first,
/// those that were `missed` in this call are not.
std::shared_ptr<Segment> find_segment(FrameCache::Entry& entry, GuardContext& context, size_t positional,
                                      PyObject* kwnames, const std::shared_ptr<Segment>& likely = nullptr,
                                      std::span<const std::shared_ptr<Segment>> missed = {});

/// Whether the segment takes away what runs code at its end, from slots of the frames (none: it has none) or from
/// objects outside: that code would run after the graph, and after other effects. Such a call is recorded instead.
bool lets_an_end_go(const Segment& segment, GuardContext& context, std::span<Activation* const> chain);

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
  /// One that has read other numbers in this call.
  void leave_out(std::shared_ptr<Segment> missed) { missed_.push_back(std::move(missed)); }
  /// Calls the function. New reference or nullptr with an error.
  PyObject* run();
  /// The breaks of this call, where fullgraph or error_on_graph_break asked for them.
  const std::vector<base::BreakNote>& breaks() const { return breaks_; }

  bool wants(PyThreadState* thread, Frame* frame) override;
  bool entered(Activation& activation) override;
  Go at_boundary(Activation& activation) override;
  Go stopped(Activation& activation) override;
  void left(Activation& activation, Exit exit, PyObject* result) override;
  void faulted(Activation& activation, const char* what) override;
  bool records() const override { return recording(); }
  bool insists() const override { return transition_ != nullptr; }
  void missed(Frame* frame) override;
  bool thrown(Frame* frame) override;

 private:
  /// A frame of this call that has boundaries of its own, or is a part of a recording and has marks.
  struct FrameNote {
    Activation* activation = nullptr;
    FrameCache* cache = nullptr;
    FrameNote* outer = nullptr;
    bool linked = false;          ///< one chain with `outer`
    bool inlined = false;         ///< in a recording that began outside of it
    int stepping = -1;            ///< instruction that is stepped over now
    PyObject* handled = nullptr;  ///< the exception handled when the frame began (borrowed)
    std::optional<Hooked> quiet;  ///< nobody listens while an opaque instruction runs
    bool top = false;
    bool gave_up = false;
    int held = 0;  ///< boundaries at which somebody held the frame
  };
  struct Recording {
    std::unique_ptr<Recorder> recorder;
    FrameCache* cache = nullptr;  ///< where it began: the innermost frame of the chain
    int at = -1;                  ///< its instruction
    bool takes_arguments = false;
    size_t visit = 0;
    uint64_t saved_before = 0;  ///< FrameCache::Entry::saved at that time
    Ref code;
  };
  /// On the way from the chain in which a segment began to the one in which it ended.
  struct Transition {
    std::shared_ptr<Segment> segment;
    struct Slots {
      std::vector<Ref> locals, stack;
    };
    std::vector<Slots> frames;  ///< of segment->frames
    Ref result;                 ///< of the outermost frame, if it returns
    size_t left = 0;            ///< frames that are still to return
    size_t entered = 0;         ///< of `frames`, those that stand
  };
  bool recording() const { return recording_.recorder && recording_.recorder->active(); }
  static std::vector<FrameNote*> chain_of(FrameNote& innermost);  ///< outermost first
  Go begin_recording(FrameNote& note, FrameCache::Entry& entry, size_t visit);
  Go refuse_recording(Activation& where, const std::string& why);
  std::string why_none_fits(const FrameCache::Entry& entry, bool arguments, GuardContext& context, size_t visit,
                            std::vector<std::string>* changed = nullptr) const;
  Go step_over(FrameNote& note);
  bool collect_roots(FrameNote& innermost, std::vector<PyObject*>& roots) const;
  Go apply(FrameNote& note, const std::shared_ptr<Segment>& segment, GuardContext& context);
  Go proceed(FrameNote& note);  ///< with the transition
  void note_frame(Activation& activation, bool linked);
  FrameNote* note_inlined(Activation& activation);
  bool link_frames(Activation& innermost, std::vector<Activation*>& entered);
  void end_recording();
  void finish_recording(FrameNote& note, Exit exit, PyObject* result);  ///< keeps the error that is set
  PyObject* run_in_eager();                                             ///< after such an exception
  void keep_error();                                                    ///< raised when the call ends
  /// False: a signal's handler raised while it was compiled. Then nothing is kept, and the next call begins again.
  bool save(std::unique_ptr<Segment> segment);
  InstructionPath path_of(Activation* where) const;
  void mark_stop(const Recorder::StopRecord& stop_record);
  void mark_failure(const Recorder::StopRecord& failure);
  bool refuses_breaks() const;
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
  std::vector<std::shared_ptr<Segment>> missed_;  ///< at the boundary where it stands
  bool expecting_ = true;
  std::vector<base::BreakNote> breaks_;
  FrameNote* top_ = nullptr;  ///< the innermost one that is not inlined
  Recording recording_;
  std::vector<std::unique_ptr<Recorder>> retired_;  ///< frames that they recorded may return through them
  std::unique_ptr<Transition> transition_;
  std::shared_ptr<Segment> last_;                               ///< of this call
  std::map<std::pair<const FrameCache*, int>, size_t> visits_;  ///< of boundaries
  bool gc_off_ = false;
  bool begins_again_ = false;  ///< the call raised on a path for compilers, and nobody can have seen anything of it
  Ref failed_type_, failed_value_, failed_traceback_;
};

/// Where an activation stands, for the report.
base::Line line_of(Activation& activation);

}  // namespace magneto::capture
