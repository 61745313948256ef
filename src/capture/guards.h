// capture/guards.h: what must still hold for a record to be right, as one flat program.
//
// Pinned objects are checked by address, without walking to them: their dicts by a version that stands for all keys
// that were read (it is only a memo: when it moved, the keys are compared and the version is taken again). What a
// check that held saw at fixed addresses is kept as words: as long as all of them stand, nothing behind them has
// changed, and the next check is one loop over independent loads. Floating objects are walked: each step resolves one
// source from its parent or compares something of it. Steps stand in the order in which the recording read things, so a
// step may rely on all before it.
#pragma once
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/dict_versions.h"
#include "capture/evaluator.h"
#include "capture/reals.h"
#include "capture/source.h"
#include "capture/state_word.h"
#include "capture/tensor_meta.h"
#include "types/expr.h"

namespace magneto::capture {

/// How the size of a dimension is called in `changed` of a check and in messages: x.size(0).
std::string size_path(const std::string& tensor, size_t dimension);
std::string offset_path(const std::string& tensor);            ///< the same of where it begins: x.storage_offset()
bool is_offset(const std::string& path);                       ///< one of these
std::string item_path(const std::string& list, size_t index);  ///< the same of a list's element: rates[0]

/// Objects without identity: equal means interchangeable. Floats compare by bits, tuples element by element with types.
bool is_value(PyObject* object);
bool same_value(PyObject* a, PyObject* b);
/// A float that is equal to nothing, but itself in containers.
bool is_nan(PyObject* object);
/// Made once in a process, without parts: modules, classes, functions written in C.
bool is_global_constant(PyObject* object);

/// How an object without parts of its own to be read one by one is guarded when it comes from an argument.
enum class Whole : unsigned char {
  kNo,       ///< it has parts: what is read of it is guarded where it is read
  kValue,    ///< by value: slices, ranges, devices, dtypes
  kAddress,  ///< by identity: classes, functions written in C, members of enumerations
  kPayload,  ///< by the number or text inside of an instance of a subclass of int, str ...
};
Whole compared_whole(PyObject* object);

bool is_deque(PyObject* object);                       ///< and of no subclass
PyObject* dict_of_view(PyObject* object);              ///< of dict.keys() and its like, borrowed; nullptr: it is none
Ref element_of(PyObject* sequence, Py_ssize_t index);  ///< empty: there is none
PyObject* instance_dict(PyObject* object);             ///< borrowed; nullptr: has none. Materialises it.
PyObject* type_dict(PyTypeObject* type);               ///< borrowed: a type's own namespace
unsigned type_version(PyTypeObject* type);             ///< 0: none can be had
bool is_immutable_type(PyTypeObject* type);            ///< a C type that Python code cannot change

struct KeyCheck {
  Ref key;
  Ref value;            ///< empty: absent
  int32_t symbol = -1;  ///< >= 0: any int (float) will do, it becomes this symbol
};

struct DictGuard {
  Ref dict;
  Ref owner;  ///< whose instance dict it is (the owner must still have this very dict)
  SourceId source;
  uint64_t version = 0;      ///< 0: never equal, always compare the keys
  bool whole = false;        ///< `items` are all of them, in this order
  bool keep_version = true;  ///< the recording itself changed the dict: the tag of another call says nothing
  std::vector<KeyCheck> keys;
  std::vector<KeyCheck> items;
  size_t order_state = 0;  ///< OrderedDict: changes with move_to_end
  bool reads_symbols() const {
    return std::any_of(keys.begin(), keys.end(), [](const KeyCheck& key) { return key.symbol >= 0; });
  }
};

struct SequenceGuard {
  Ref object;
  SourceId source;
  std::vector<Ref> items;
  std::vector<int32_t> symbols = {};  ///< as KeyCheck::symbol, for each item; empty: none
};                                    ///< list, set: all elements
struct MemberGuard {
  Ref set;
  Ref item;
  bool present;
  SourceId source;
};  ///< one membership of a set
struct TypeGuard {
  Ref type;
  unsigned version;
};
struct ClassGuard {
  Ref object;
  PyTypeObject* type;
  SourceId source;
};  ///< o.__class__ was not assigned
struct FunctionGuard {
  Ref function, code, defaults, kwdefaults;
};
struct CellGuard {
  Ref cell, content;
  SourceId source;
  int32_t symbol = -1;
};
struct TensorGuard {
  Ref weak;
  PyObject* address;
  TensorMeta meta;
  SourceId source;
};
struct StateGuard {
  Ref callable;
  std::vector<Ref> args;
  Ref result;
  std::string name;
  Ref kwnames;
};  ///< calling it again gives the same
struct WeakGuard {
  Ref reference;
  PyObject* referent;  ///< not owned: an object at this address that it refers to is that object
};
struct MemberRead {
  Ref object, name, result;
  SourceId source;
};  ///< a C slot, read again

struct FloatingStep {
  enum class Kind : unsigned char {
    kResolve,  ///< current[target] = the object at that source
    kValue,    ///< what the source `target` has is this value
    kAbsent,   ///< the parent's dict has no such key
    kType,     ///< exact type of current[target]
    kTensor,   ///< meta of current[target]
    kLength,   ///< of a list, tuple, dict or set
    kKeys,     ///< a dict has exactly these keys in this order
    kIs,
    kIsNot,     ///< current[target] and current[other]
    kDistinct,  ///< no two of current[others]
    kPinned,    ///< current[target] is this object
    kNotPinned,
    kNotDictOf,  ///< current[target] (or `object`), `number` 1: its dict, is not the dict of current[other] (or
                 ///< `value`)
    kSymbol,     ///< an exact int or float; symbols[number] takes it
    kMember,     ///< membership in a set, `number` is the answer
    kFunction,   ///< a function with this code (object), these defaults (value), kwdefaults and globals (keys)
    kReRead,     ///< PyObject_GetAttr(current[target], object) gives `value` again
    /// An iterator that nobody else has (`number` references; -1: whoever has it): it is made again by this callable
    /// (object) from its parts, with this state (value).
    kIterator,
    kPayload,  ///< current[target] has the type of `object`, and the number or text that it is as an int, str ...
  };
  Kind kind;
  SourceId target, other;
  Ref object;  ///< value, type or pinned object
  Ref value;
  std::vector<Ref> keys;
  int64_t number = 0;
  TensorMeta meta;
  std::vector<SourceId> others = {};
};

/// The inputs of one check, and what it found on the way.
struct GuardContext {
  PyObject* const* roots = nullptr;
  size_t root_count = 0;
  const Sources* sources = nullptr;         ///< of the program that was checked
  c10::SmallVector<PyObject*, 24> current;  ///< borrowed; by Source::slot
  c10::SmallVector<int64_t, 8> symbols;
  PyObject*& at(SourceId id) { return current[(*sources)[id].slot]; }
  std::vector<Ref> keep;  ///< what only the check itself holds
};

/// A number that was read from data is this one, bit by bit, or at least this one.
struct ReadCheck {
  /// kSmall: it changes, and as a size it was 0 or 1, which are sizes of their own.
  enum Kind : unsigned char { kSame, kSmall, kLeast };
  uint32_t symbol;
  int64_t number;
  Kind kind = kSame;
  bool holds(std::span<const int64_t> symbols) const {
    return kind == kLeast ? symbols[symbol] >= number : symbols[symbol] == number;
  }
};
std::string to_string(const ReadCheck& check);

/// What must hold of numbers once their symbols have values, and what is computed of them.
struct NumberChecks {
  std::vector<types::Expr> numbers;  ///< ints that the program computes from symbols: they must fit 64 bits
  std::vector<types::Condition> conditions;
  std::vector<RealStep> real_steps;
  std::vector<RealCheck> real_checks;
  std::vector<ReadCheck> read_checks;
  /// Computes, and asks. False: `why` says what does not hold any more.
  bool numbers_hold(std::span<int64_t> symbols, std::string* why) const;
  bool may_fail() const {
    return !numbers.empty() || !conditions.empty() || !real_checks.empty() || !real_steps.empty() ||
           !read_checks.empty();
  }
};

class GuardProgram : public NumberChecks {
 public:
  /// True when everything holds. With `why`, the first thing that does not, in words, and `changed`, the paths
  /// of ints and sizes that were compared by value and have changed (capture then makes them symbols).
  bool check(GuardContext& context, std::string* why = nullptr, std::vector<std::string>* changed = nullptr);
  size_t size() const;
  std::vector<std::string> describe() const;

  Sources sources;
  StateWord state;
  std::vector<DictGuard> dicts;
  std::vector<SequenceGuard> lists, sets;
  std::vector<MemberGuard> members;
  std::vector<TypeGuard> types;
  std::vector<ClassGuard> classes;
  std::vector<FunctionGuard> functions;
  std::vector<CellGuard> cells;
  std::vector<TensorGuard> tensors;
  std::vector<StateGuard> states;
  std::vector<MemberRead> reads;
  std::vector<WeakGuard> weak_references;
  std::vector<FloatingStep> steps;
  std::vector<bool> reals;  ///< by symbol: it is a float
  uint32_t symbol_count = 0;
  /// What can be asked only once numbers were read from data (aten/reading.h), after each of the reads.
  std::vector<NumberChecks> after_read;
  std::vector<size_t> read_at;  ///< of each symbol: after so many reads it has a value
  /// Moves what is about such symbols there. `symbols` are those of each read.
  void split_by_reads(const std::vector<std::vector<uint32_t>>& symbols);
  /// The numbers of a read. False: they are others than those for which the program was recorded.
  bool take_read(GuardContext& context, size_t read, const std::vector<uint32_t>& symbols,
                 std::span<const int64_t> numbers, std::string* why) const;

 private:
  bool check_pinned(GuardContext& context, std::string* why, std::vector<std::string>* changed);
  bool check_structure(std::string* why, std::vector<std::string>* changed);
  bool check_dicts(GuardContext& context, std::string* why, std::vector<std::string>* changed);
  bool check_states(GuardContext& context, std::string* why);
  bool is_real(size_t symbol) const { return symbol < reals.size() && reals[symbol]; }
  bool take_symbol(GuardContext& context, int32_t symbol, PyObject* value) const;
  bool words_hold() const;
  void take_words();
  bool check_dict(DictGuard& guard, GuardContext& context, std::string* why, std::vector<std::string>* changed);
  bool check_step(FloatingStep& step, GuardContext& context, std::string* why, std::vector<std::string>* changed);
  PyObject* resolve(SourceId id, GuardContext& context) const;  ///< borrowed; nullptr: not there

  struct Word {
    const void* address;
    uint64_t value;
  };
  struct DictWord {
    PyObject* const* slot = nullptr;  ///< where its owner keeps the dict; nullptr: has no owner
    PyObject* dict = nullptr;
    const uint64_t* place = nullptr;  ///< of its version
    uint64_t version = 0;             ///< 0: always compare the keys
  };
  std::vector<Word> words_;           ///< empty: none were taken yet
  std::vector<DictWord> dict_words_;  ///< for each of `dicts`
};

}  // namespace magneto::capture
