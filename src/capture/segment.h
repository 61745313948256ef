// capture/segment.h: a piece of a frame's run that can be repeated without Python: guards, a graph, the effects on
// objects from outside, and how it ends: the frame returns, or it goes on at an instruction with these slots.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aten/program.h"
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

struct Segment {
  size_t positional = 0;  ///< call shape, where the roots are arguments
  Ref kwnames;
  GuardProgram guards;
  std::shared_ptr<aten::Program> program;        ///< as it was recorded; nullptr: no operators
  std::shared_ptr<aten::Executable> executable;  ///< what runs: the program, or what the compiler made of it
  std::vector<at::Tensor> examples;              ///< the inputs of the recording, until it is compiled
  std::vector<int64_t> hints;                    ///< the values of the symbols then
  struct Input {
    SourceId source;  ///< floating
    Ref weak;         ///< or pinned: a weak reference that the guards have checked
  };
  std::vector<Input> inputs;
  std::vector<SourceId> kept;  ///< floating objects that recipes name: they outlive the places they were found at
  std::vector<Effect> effects;
  size_t memo_count = 0;

  bool returns = true;
  Recipe result;            ///< returns
  int next = 0;             ///< else: the instruction the frame goes on with
  Stop stop = Stop::kNone;  ///< and why it is not part of the segment
  std::string detail;
  std::vector<std::pair<int, Recipe>> locals;  ///< only those that changed
  std::vector<Recipe> stack;

  size_t graph_number = 0;  ///< in the report
  size_t key = 0;           ///< of what was recorded: the same for the same program under the same guards
  std::string fixed_sizes;  ///< as GraphNote::fixed_sizes
};

/// What is known of one code object as it is reached on one path of calls: its segments by instruction, and the
/// instructions that must not be recorded but stepped over, because a recording failed there.
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
  std::map<std::pair<int, PyCodeObject*>, std::unique_ptr<FrameCache>> children;

  Entry& entry(int instruction) { return instruction == 0 ? start : entries[instruction]; }
  FrameCache& child(int offset, PyCodeObject* code) {
    auto& slot = children[{offset, code}];
    if (!slot) slot = std::make_unique<FrameCache>(code);
    return *slot;
  }
};

}  // namespace magneto::capture
