// evaluator/semantics.h: what the instructions of Python mean. The evaluator moves references between slots and stack
// and knows jumps, handlers and frames; every operation on an object goes through one of these primitives. The base
// class is plain CPython. The recorder overrides them: it looks at the operands, notes guards and effects, and calls
// the base.
//
// Conventions. Operands are borrowed and stay on the frame's stack until the primitive has returned. A primitive
// returns a new reference, or nullptr (or -1) with a Python error set, or kStop (kStopStatus): it did nothing, and the
// instruction is not to be executed with these semantics. The evaluator then leaves the frame exactly as it was before
// the instruction and asks its director.
#pragma once
#include "evaluator/frame_abi.h"

namespace magneto::evaluator {

class Activation;

extern PyObject* const kStop;           ///< not an object: compare, never touch
inline constexpr int kStopStatus = -2;  ///< the same for primitives that return a status or a truth value

class Semantics {
 public:
  virtual ~Semantics() = default;

  // Names. `self` is the activation whose frame is read.
  virtual PyObject* load_global(Activation& self,
                                PyObject* name);  ///< globals, then builtins; nullptr without error: missing
  virtual int store_global(Activation& self, PyObject* name, PyObject* value);  ///< value nullptr: delete
  virtual PyObject* load_name(Activation& self, PyObject* name);  ///< locals mapping, globals, builtins; as above
  virtual int store_name(Activation& self, PyObject* name, PyObject* value);  ///< value nullptr: delete
  virtual PyObject* load_cell(Activation& self, PyObject* cell);              ///< nullptr without error: empty
  virtual int store_cell(Activation& self, PyObject* cell, PyObject* value);  ///< value nullptr: delete

  // Attributes and items.
  virtual PyObject* load_attr(Activation& self, PyObject* owner, PyObject* name);
  /// As _PyObject_GetMethod: returns 1 and an unbound method that wants `owner` in front, 0 and an ordinary attribute,
  /// -1 on error, kStopStatus.
  virtual int load_method(Activation& self, PyObject* owner, PyObject* name, PyObject** method);
  /// __enter__ and its like, found on the type of `owner` and bound to it (with blocks); nullptr without error:
  /// missing. The evaluator asks other() with the opcode's name before it looks up the first one.
  virtual PyObject* load_special(Activation& self, PyObject* owner, PyObject* name);
  /// super().name of LOAD_SUPER_ATTR (3.12). The base builds the super object. cls and owner are nullptr where the name
  /// `super` means something else, which is then called without arguments.
  virtual PyObject* load_super_attr(Activation& self, PyObject* super_global, PyObject* cls, PyObject* owner,
                                    PyObject* name);
  virtual int store_attr(Activation& self, PyObject* owner, PyObject* name,
                         PyObject* value);  ///< value nullptr: delete
  virtual PyObject* load_item(Activation& self, PyObject* container, PyObject* key);
  virtual int store_item(Activation& self, PyObject* container, PyObject* key, PyObject* value);  ///< nullptr: delete

  // Operators.
  virtual PyObject* unary(Activation& self, int which, PyObject* operand);                 ///< Unary below
  virtual PyObject* binary(Activation& self, int which, PyObject* left, PyObject* right);  ///< NB_* of opcode.h (0..25)
  virtual PyObject* compare(Activation& self, PyObject* left, PyObject* right, int op);    ///< Py_LT ...
  virtual int contains(Activation& self, PyObject* container, PyObject* item);             ///< 0, 1, -1, kStopStatus
  virtual int truth(Activation& self, PyObject* object);                                   ///< 0, 1, -1, kStopStatus
  virtual PyObject* identical(Activation& self, PyObject* left, PyObject* right, bool negate);
  /// str(value), repr(value) or ascii(value) for conversion 1, 2 or 3 (CONVERT_VALUE of 3.13; format does it, too).
  virtual PyObject* convert(Activation& self, PyObject* value, int conversion);
  virtual PyObject* format(Activation& self, PyObject* value, int conversion, PyObject* spec);  ///< spec may be nullptr
  virtual PyObject* join(Activation& self, PyObject* const* pieces, int count);  ///< the pieces of an f-string

  // Iteration. next: nullptr without error at the end.
  virtual PyObject* iter(Activation& self, PyObject* object);
  virtual PyObject* next(Activation& self, PyObject* iterator);
  virtual PyObject* length(Activation& self, PyObject* object);  ///< GET_LEN

  // Calls, as PyObject_Vectorcall; args[-1] may be written to (PY_VECTORCALL_ARGUMENTS_OFFSET is always set).
  virtual PyObject* call(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  /// f(*args, **kwargs): args is a tuple, kwargs a dict or nullptr; both already converted.
  virtual PyObject* call_ex(Activation& self, PyObject* callable, PyObject* args, PyObject* kwargs);
  virtual PyObject* import_name(Activation& self, PyObject* name, PyObject* fromlist, PyObject* level);
  virtual PyObject* import_from(Activation& self, PyObject* module,
                                PyObject* name);  ///< nullptr without error: missing

  /// A comprehension adds one element (key nullptr) or entry to its list, set or dict.
  virtual int collect(Activation& self, PyObject* container, PyObject* key, PyObject* value);
  // Containers that were made by the frame itself and are filled from `source` (unpacking, starred displays).
  virtual int extend_list(Activation& self, PyObject* list, PyObject* source);
  virtual int update_set(Activation& self, PyObject* set, PyObject* source);
  virtual int update_dict(Activation& self, PyObject* dict, PyObject* source);
  virtual int merge_dict(Activation& self, PyObject* dict, PyObject* source,
                         PyObject* callable);  ///< refuses duplicates
  /// Unpacks exactly `before` (after < 0) or before + list + after items; fills `items` with new references in order.
  virtual int unpack(Activation& self, PyObject* sequence, int before, int after, PyObject** items);

  /// Anything else that runs code or reads state: YIELD, await, match on classes, class bodies, annotations ... The
  /// base returns 0: go on. `what` is the opcode's name. Sets and dicts that are built ask only for keys whose hash or
  /// comparison may be somebody's code (BUILD_SET, BUILD_MAP, BUILD_CONST_KEY_MAP, SET_ADD, MAP_ADD).
  virtual int other(Activation& self, const char* what);

  /// Where Activation::ask_before_each is set: whether the next instruction is not to be executed with these semantics,
  /// whatever it is. Instructions that only move references have no other primitive, but what they let go may run code.
  virtual bool declines(Activation& self) {
    (void)self;
    return false;
  }

  // Notices. They cannot stop.
  virtual void made(Activation& self, PyObject* object) {
    (void)self, (void)object;
  }  ///< a fresh tuple, list, function, cell, ...
  virtual void caught(Activation& self, PyObject* exception) {
    (void)self, (void)exception;
  }  ///< goes to a handler of this frame
  virtual void keyed(Activation& self, PyObject* key) {
    (void)self, (void)key;
  }                                                                 ///< about to be entered into a fresh set or dict
  virtual void after_instruction(Activation& self) { (void)self; }  ///< an instruction has run, or has raised
  virtual void returned_to_c(Activation& self, PyObject* result) {
    (void)self, (void)result;
  }  ///< returned or yielded by this frame
};

enum class Unary { kNegative, kPositive, kInvert, kNot };

/// Plain CPython; what the base class does.
Semantics& plain_semantics();

}  // namespace magneto::evaluator
