// capture/recipe.h: how to build again, on replay, an object that leaves a segment: the result, a value stored into an
// object from outside, a slot of a frame that goes on after a break. Recipes are taken when the segment ends;
// identities among them are kept (one memo for all recipes of a segment).
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/evaluator.h"
#include "capture/guards.h"
#include "graph/graph.h"
#include "types/expr.h"

namespace magneto::capture {

struct Recipe {
  enum class Kind : unsigned char {
    kNull,      ///< an empty slot
    kConstant,  ///< this very object
    kValue,     ///< output `index` of the graph
    kSource,    ///< the floating object at `source`
    kNumber,    ///< an int computed from symbols
    kReal,      ///< a float: the bits of symbol `index`
    kRoot,      ///< what the root `index` holds, whatever it is
    kTuple,
    kList,
    kDict,
    kSet,
    kSlice,
    kSize,
    kStruct,
    kCell,
    kFunction,
    kMethod,
    kBuiltin,
    kInstance,
    kIterator,   ///< a call of `object`; the state that it is set to then, and the arguments
    kGenerator,  ///< a call of the function in parts[0]; `shape` tells of what follows
    kView,       ///< of a dict: what its method `object` gives; a mappingproxy
    kTraceback,  ///< `object`: a list of (code, globals, instruction, line), the outermost first
    kCalled,     ///< what a call of `object` gives
    kRef,        ///< the object built for memo `index`
    kEffect,     ///< what effect `index` returned
  };
  Kind kind = Kind::kNull;
  int index = -1;
  int memo = -1;
  SourceId source;
  Ref object;  ///< constant, type, code ...
  types::Expr number;
  std::vector<Recipe> parts;
  unsigned shape = 0;                                            ///< kInstance: which contents follow (bits below)
  static constexpr unsigned kTakesRest = 1, kTakesKeywords = 2;  ///< of a generator: *args, **kwargs
  static constexpr unsigned kHasTuple = 1, kHasItems = 2, kHasDict = 4, kHasSlots = 8, kHasElements = 16,
                            kHasFactory = 32, kHasQueue = 64, kHasValue = 128, kIsRaised = 256;
};

/// What recipes are built from at one replay.
struct BuildContext {
  GuardContext* guards = nullptr;
  c10::SmallVector<Ref, 4> outputs;     ///< Python tensors of the graph's outputs
  c10::SmallVector<PyObject*, 8> memo;  ///< borrowed: alive through their holders or `keep`
  std::vector<Ref> keep;                ///< what recipes name or have built
  std::vector<Ref> effect_results;
  c10::SmallVector<std::pair<int, Ref>, 2> reals;  ///< floats that were made of symbols: one object each
  std::string fault;                               ///< what a fault of ours said (faults.h)
  static constexpr size_t kNoRead = static_cast<size_t>(-1);
  size_t missed_read = kNoRead;  ///< Outcome::kMissed: which, if it was a number, and why
  std::string missed_because;
};

/// New reference, or nullptr with a Python error.
PyObject* build(const Recipe& recipe, BuildContext& context);

/// Answers what a recipe needs to know of an object; the recorder is one.
class Provenance {
 public:
  virtual ~Provenance() = default;
  enum class Origin { kConstant, kMade, kFloating, kNumber, kReal, kTensor, kRoot, kEffect, kCalled, kUnknown };
  struct Answer {
    Origin origin = Origin::kUnknown;
    SourceId source;               // kFloating
    types::Expr number;            // kNumber
    graph::ValueId value;          // kTensor
    int index = -1;                // kRoot, kEffect, kReal
    PyObject* function = nullptr;  // kCalled, with these
    const std::vector<Ref>* operands = nullptr;
  };
  virtual Answer origin(PyObject* object) = 0;
};

/// Writes the recipes of one segment.
class RecipeWriter {
 public:
  explicit RecipeWriter(Provenance& provenance) : provenance_(provenance) {}
  Recipe write(PyObject* object);
  bool failed() const { return failed_object_ != nullptr; }
  PyObject* failed_object() const { return failed_object_; }  ///< borrowed
  PyObject* program_key() const { return program_key_; }  ///< borrowed: a key that a dict of a recipe looks up again
  size_t memo_count() const { return memo_.size(); }
  /// The graph values that recipes refer to, by output index.
  const std::vector<graph::ValueId>& outputs() const { return outputs_; }
  const std::vector<PyObject*>& tensors() const { return tensors_; }  ///< of the outputs, borrowed
  /// The floating objects that recipes name.
  const std::vector<SourceId>& sources() const { return sources_; }

 private:
  Recipe write_made(PyObject* object, int memo);
  Recipe write_called(const Provenance::Answer& answer);
  Recipe write_instance(PyObject* object);
  Recipe write_reduced(PyObject* object);
  Recipe write_generator(PyObject* object);
  Recipe write_part(PyObject* object);
  bool write_content(PyObject* object, Recipe& into);
  Recipe write_dict_items(PyObject* dict);
  Recipe fail(PyObject* object) {
    if (!failed_object_) failed_object_ = object;
    return {};
  }
  Provenance& provenance_;
  std::unordered_map<PyObject*, int> memo_;
  std::unordered_map<PyObject*, bool> in_progress_;
  std::vector<graph::ValueId> outputs_;
  std::vector<PyObject*> tensors_;
  std::vector<SourceId> sources_;
  PyObject* failed_object_ = nullptr;
  PyObject* program_key_ = nullptr;
};

/// Of a C class of tuples with names: time.struct_time, torch.return_types.max.
bool is_struct_type(PyTypeObject* type);

/// A class written in Python (or built by type()): its instances can be made and filled from outside.
bool is_python_class(PyTypeObject* type);

}  // namespace magneto::capture
