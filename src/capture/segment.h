// capture/segment.h: a piece of a run that can be repeated without Python: guards, a graph, the effects on objects from
// outside, and how it ends: the frame returns, or goes on at an instruction with these slots.
//
// A segment is not bound to one frame. It begins in a chain of frames, each called by an instruction of the one before
// that does nothing else, and may end in another: some of them have returned, others were called. A replay leaves the
// former and enters the latter, whose slots are rewritten at their first instruction.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aten/program.h"
#include "aten/reading.h"
#include "base/report.h"
#include "capture/guards.h"
#include "capture/recipe.h"
#include "capture/stop_reasons.h"

namespace magneto::capture {

/// A change of an object from outside, repeated on replay in order.
struct Effect {
  enum class Kind : unsigned char { kSetAttr, kSetItem, kSetCell, kCall };
  Kind kind = Kind::kCall;
  bool generic = true;        ///< kSetAttr: below the class's own __setattr__
  bool takes_out = false;     ///< kCall: the first argument may lose what it holds
  Recipe target, key, value;  ///< value kNull: delete
  Ref callable;               ///< kCall
  std::vector<Recipe> args;
};

/// A frame as it stands where a segment ends.
struct FrameState {
  Ref code;
  int next = 0;                                ///< the instruction it goes on with, or that has called the next frame
  std::vector<std::pair<int, Recipe>> locals;  ///< of one that was there before: only those that changed
  std::vector<Recipe> stack;
};

struct FrameCache;

/// An instruction of a frame that a recording has entered: by which calls, from a frame that it began in.
struct InstructionPath {
  using Call = std::tuple<int, bool, PyCodeObject*>;  ///< as FrameCache::Place
  FrameCache* cache = nullptr;
  std::vector<Call> calls;
  int instruction = -1;
};

struct Segment {
  size_t positional = 0;  ///< call shape, where the roots are arguments
  Ref kwnames;
  GuardProgram guards;
  std::shared_ptr<aten::Program> program;        ///< as it was recorded; nullptr: no operators
  std::shared_ptr<aten::Executable> executable;  ///< what runs: the program, or what the compiler made of it
  /// Numbers that the program reads from a tensor, in its order. There are some: `reading` is what runs.
  struct Read {
    std::vector<uint32_t> symbols;  ///< of the elements
    bool is_branch = false;         ///< no symbol can stand for it
    bool is_size = false;           ///< of what an operator gives
    std::string name;               ///< what has read
    InstructionPath place = {};
    base::Line line = {};
  };
  std::vector<Read> reads;
  std::string missed_because;  ///< Outcome::kMissed: what did not fit, the last time
  std::shared_ptr<aten::Reading> reading;
  std::vector<at::Tensor> examples;  ///< the inputs of the recording, until it is compiled
  std::vector<int64_t> hints;        ///< the values of the symbols then
  struct Input {
    SourceId source;  ///< floating
    Ref weak;         ///< or pinned: a weak reference that the guards have checked
  };
  std::vector<Input> inputs;
  std::vector<SourceId> kept;  ///< floating objects that recipes name: they outlive the places they were found at
  std::vector<Effect> effects;
  size_t memo_count = 0;

  size_t left = 0;      ///< of the frames that it begins in, the innermost ones that have returned
  bool returns = true;  ///< the outermost one, too
  Recipe result;        ///< returns
  /// Else: the innermost frame that is still there, and those that were entered from there. (Returns: the outermost,
  /// with what it has let go.)
  std::vector<FrameState> frames;
  Stop stop = Stop::kNone;  ///< why the next instruction is not part of the segment
  std::string detail;

  size_t graph_number = 0;           ///< in the report
  size_t key = 0;                    ///< of what was recorded: the same for the same program under the same guards
  std::string fixed_sizes;           ///< as GraphNote::fixed_sizes
  size_t visit = 0;                  ///< how often its call had been at this instruction before
  std::weak_ptr<Segment> successor;  ///< what followed in the last call
};

/// What is known of one code object as it is reached on one path of calls: its segments by instruction, and the
/// instructions that must not be recorded but stepped over, because a recording failed there. A child is *linked* where
/// its frame and the one that called it are one chain; else its segments know nothing of the caller's frame.
struct FrameCache {
  explicit FrameCache(PyCodeObject* code) : code(Ref::share(reinterpret_cast<PyObject*>(code))) {}
  struct Mark {
    Stop stop;
    std::string detail;
  };
  struct Entry {
    std::vector<std::shared_ptr<Segment>>
        segments;                 ///< newest hit first; shared: a call may run one while it is evicted
    std::vector<size_t> in_work;  ///< keys of segments that threads compile just now
    uint64_t saved = 0;           ///< segments, from the beginning
    int recordings = 0;
    int discarded = 0;
    bool given_up = false;
  };
  Ref code;
  Entry start;                             ///< at the first instruction: looked up at every call
  std::unordered_map<int, Entry> entries;  ///< at the others
  std::unordered_map<int, Mark> marks;
  std::unordered_set<int> changing_reads;  ///< instructions that read a number which was another one at another call
  using Place = std::tuple<int, bool, PyCodeObject*>;  ///< instruction, linked, code
  std::map<Place, std::unique_ptr<FrameCache>> children;

  Entry& entry(int instruction) { return instruction == 0 ? start : entries[instruction]; }
  FrameCache& child(int offset, bool linked, PyCodeObject* code) {
    auto& slot = children[{offset, linked, code}];
    if (!slot) slot = std::make_unique<FrameCache>(code);
    return *slot;
  }
  FrameCache* find_child(int offset, bool linked, PyCodeObject* code) const {
    const auto found = children.find({offset, linked, code});
    return found == children.end() ? nullptr : found->second.get();
  }
  /// The instruction is not to be recorded, nor calls of C code on the way to it.
  static void mark(const InstructionPath& path, Stop stop, const std::string& detail) {
    FrameCache* cache = path.cache;
    for (const auto& [offset, linked, code] : path.calls) {
      if (!linked) cache->marks[offset] = {Stop::kInner, std::string(text_of(stop).what)};
      cache = &cache->child(offset, linked, code);
    }
    cache->marks[path.instruction] = {stop, detail};
  }
  static FrameCache& at(const InstructionPath& path) {
    FrameCache* cache = path.cache;
    for (const auto& [offset, linked, code] : path.calls) cache = &cache->child(offset, linked, code);
    return *cache;
  }
  bool has_unlinked_child(int offset) const {
    const auto first = children.lower_bound({offset, false, nullptr});
    return first != children.end() && std::get<0>(first->first) == offset && !std::get<1>(first->first);
  }
};

}  // namespace magneto::capture
