#include "capture/references.h"

#include "capture/segment.h"

namespace magneto::capture {

namespace {

// The collector stops a traversal by an answer that is not 0: it is kept, and nothing more is visited.
class Visitor {
 public:
  Visitor(visitproc visit, void* arg) : visit_(visit), arg_(arg) {}
  int answer() const { return answer_; }

  template <class... Parts>
  void all(const Parts&... parts) {
    (one(parts), ...);
  }

 private:
  void one(const Ref& ref) {
    if (answer_ == 0 && ref) answer_ = visit_(ref.get(), arg_);
  }
  template <class Part>
  void one(const std::vector<Part>& parts) {
    for (const Part& part : parts) one(part);
  }
  template <class Part>
  void one(const std::shared_ptr<Part>& part) {
    if (part) one(*part);
  }
  template <class Part>
  void one(const std::unique_ptr<Part>& part) {
    if (part) one(*part);
  }

  void one(const Source& source) { all(source.key); }
  void one(const KeyCheck& check) { all(check.key, check.value); }
  void one(const DictGuard& guard) { all(guard.dict, guard.owner, guard.keys, guard.items); }
  void one(const SequenceGuard& guard) { all(guard.object, guard.items); }
  void one(const MemberGuard& guard) { all(guard.set, guard.item); }
  void one(const TypeGuard& guard) { all(guard.type); }
  void one(const ClassGuard& guard) { all(guard.object); }
  void one(const FunctionGuard& guard) { all(guard.function, guard.code, guard.defaults, guard.kwdefaults); }
  void one(const CellGuard& guard) { all(guard.cell, guard.content); }
  void one(const TensorGuard& guard) { all(guard.weak); }
  void one(const StateGuard& guard) { all(guard.callable, guard.args, guard.result, guard.kwnames); }
  void one(const MemberRead& read) { all(read.object, read.name, read.result); }
  void one(const FloatingStep& step) { all(step.object, step.value, step.keys); }
  void one(const GuardProgram& guards) {
    for (size_t s = 0; s < guards.sources.size(); ++s) one(guards.sources[SourceId(s)]);
    all(guards.dicts, guards.lists, guards.sets, guards.members, guards.types, guards.classes, guards.functions,
        guards.cells, guards.tensors, guards.states, guards.reads, guards.steps);
  }

  void one(const Recipe& recipe) { all(recipe.object, recipe.parts); }
  void one(const std::pair<int, Recipe>& local) { one(local.second); }
  void one(const Effect& effect) { all(effect.target, effect.key, effect.value, effect.callable, effect.args); }
  void one(const Segment::Input& input) { all(input.weak); }
  void one(const FrameState& frame) { all(frame.code, frame.locals, frame.stack); }
  void one(const Segment& segment) {
    all(segment.kwnames, segment.guards, segment.inputs, segment.effects, segment.result, segment.frames);
  }
  void one(const FrameCache& cache) {
    all(cache.code, cache.start.segments);
    for (const auto& [instruction, entry] : cache.entries) one(entry.segments);
    for (const auto& [place, child] : cache.children) one(child);
  }

  const visitproc visit_;
  void* const arg_;
  int answer_ = 0;
};

}  // namespace

int visit_references(const FrameCache& cache, visitproc visit, void* arg) {
  Visitor visitor(visit, arg);
  visitor.all(cache);
  return visitor.answer();
}

}  // namespace magneto::capture
