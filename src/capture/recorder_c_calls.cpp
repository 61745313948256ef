// Calls of C functions. The table of call rules (call_rules.h) says what is known of each, and each class of them has
// its handler here.
#include <opcode.h>

#include <algorithm>
#include <cstring>

#include "capture/evaluator.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_ends_internal.h"
#include "capture/recorder_torch_internal.h"
#include "capture/substitutes.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

PyObject* Recorder::call_c(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  PyObject* bound = nullptr;
  const CallRule rule = call_rule(callable, &bound);
  const size_t count = total_count(nargsf, kwnames);
  PyObject* const first = bound ? bound : count ? args[0] : nullptr;
  if (!floating(callable)) enter_receiver(callable, bound);
  return call_by_class({self, callable, args, nargsf, kwnames, rule, bound, first, count});
}

PyObject* Recorder::call_by_class(const CCall& call) {
  switch (call.rule.cls) {
    case CallClass::kOpaque:
      return call_opaque(call);
    case CallClass::kData:
      return call_data(call);
    case CallClass::kTorch:
      return call_torch(call);
    case CallClass::kOperator:
      return call_operator_function(call);
    case CallClass::kPure:
      return call_pure(call);
    case CallClass::kIdentity:
      return call_identity(call);
    case CallClass::kResume:
      return call_generator(call);
    case CallClass::kNext:
      return call_next(call);
    case CallClass::kReadKey:
      return call_read_key(call);
    case CallClass::kGetAttr:
      return call_getattr(call);
    case CallClass::kSetAttr:
      return call_setattr(call);
    case CallClass::kEffect:
    case CallClass::kEffectCopy:
      return call_effect(call.self, call.callable, call.rule.cls, call.args, call.nargsf, call.kwnames, call.bound);
    case CallClass::kState:
      return call_state(call);
    case CallClass::kContextGet:
      return call_context_get(call);
    case CallClass::kStateSet:
      return call_state_set(call);
    case CallClass::kFunc:
      return call_func(call.self, call.callable, call.args, call.nargsf, call.kwnames);
    case CallClass::kCheckpoint:
      return call_checkpoint(call);
    case CallClass::kWarn:
      return call_warning(call.self, call.callable, call.args, call.nargsf, call.kwnames);
    case CallClass::kPrint:
      return call_print(call.self, call.callable, call.args, call.nargsf, call.kwnames);
    case CallClass::kStateWord:
    case CallClass::kIgnore:
    case CallClass::kInit:
      return call.run();
    case CallClass::kTypeCall:
      return call_type_call(call);
    case CallClass::kNew:
      return call_new(call);
    case CallClass::kGlobals:
      return call_globals(call);
    case CallClass::kBuildClass:
      return call_build_class(call);
    case CallClass::kOwnClass:
      return call.first && is_made(call.first) ? call.run() : stop(call.self, Stop::kEffect, call.name());
    case CallClass::kAutograd:
      return call_autograd(call.self, call.callable, call.args, call.nargsf, call.kwnames, call.bound);
    case CallClass::kReduce:
      return call_reduce(call);
  }
  return stop(call.self, Stop::kOpaqueCall, call.name());
}

// ---- torch -------------------------------------------------------------------------------------------------------

// torch.as_tensor of an array shares its memory; of numbers it is torch.tensor, of a tensor torch.Tensor.to.
static bool copies_data(std::span<PyObject* const> args) {
  if (args.empty()) return false;
  const auto is_number = [](PyObject* object) {
    return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object);
  };
  if (is_tensor(args[0])) return true;
  if (!PyList_CheckExact(args[0]) && !PyTuple_CheckExact(args[0])) return is_number(args[0]);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args[0]); ++i)
    if (!is_number(PySequence_Fast_GET_ITEM(args[0], i))) return false;
  return true;
}

/// x.new(2, 3), x.new(y.size()): memory, and no data.
static bool are_sizes(std::span<PyObject* const> args) {
  if (args.size() == 1 && Py_TYPE(args[0]) == size_type()) return true;
  return std::all_of(args.begin(), args.end(), [](PyObject* arg) { return PyLong_CheckExact(arg); });
}

// torch's own asks a tensor for its device in a way that one which is not computed yet cannot answer.
PyObject* Recorder::call_new_of_sizes(const CCall& call) {
  std::vector<PyObject*> all{call.first};
  for (PyObject* size : call.rest()) all.push_back(size);
  for (PyObject* operand : all)
    if (!torch_operand(call.self, operand)) return stop(call.self, unreadable_stop_, unreadable_detail_);
  return torch_leaf(call.self, call.name(), all, [&](PyObject* const* of) {
    static PyObject* const name = PyUnicode_InternFromString("new_empty");
    static PyObject* const none = PyLong_FromLong(0);
    PyObject* const of_no_sizes[] = {of[0], none};
    return all.size() == 1 ? PyObject_VectorcallMethod(name, of_no_sizes, 2, nullptr)
                           : PyObject_VectorcallMethod(name, of, all.size(), nullptr);
  });
}

// x.requires_grad_(...) of a wrapper, which ends with its transform, or where it changes nothing.
PyObject* Recorder::call_requires_grad(const CCall& call) {
  if (func_depth_ > 0 && is_wrapped(tensor_of(call.first))) return call_torch(call);
  const auto wanted = call.rest();
  const bool is_plain = wanted.empty() || (wanted.size() == 1 && PyBool_Check(wanted[0]));
  const bool changes_nothing =
      is_plain && tensor_of(call.first).requires_grad() == (wanted.empty() || wanted[0] == Py_True);
  if (changes_nothing && usable_tensor(call.first, "an unknown place")) return Py_NewRef(call.first);
  return is_plain && !call.kwnames && (wanted.empty() || wanted[0] == Py_True) ? begin_history(call.self, call.first)
                                                                               : nullptr;
}

PyObject* Recorder::call_opaque(const CCall& call) {
  if (call.rule.has(CallTrait::kTakesData) && copies_data(call.all())) return call_torch(call);
  if (call.first && is_tensor(call.first)) {
    if (call.rule.has(CallTrait::kTakesSizes) && are_sizes(call.rest())) return call_new_of_sizes(call);
    if (call.rule.has(CallTrait::kRequiresGrad))
      if (PyObject* result = call_requires_grad(call); result || PyErr_Occurred()) return result;
    if (call.rule.has(CallTrait::kAttaches))
      if (const Ref method = Ref::take(unbound(call.callable))) {
        const std::vector<PyObject*> all = with_gap(call.args, call.count, call.bound);
        return attach(call.self, method.get(), all.data() + 1, all.size() - 1, call.kwnames);
      }
  }
  if (call.first && is_made(call.first) &&
      strcmp(Py_TYPE(call.first)->tp_name, "functools._lru_cache_wrapper") == 0) {  // cache_info, cache_clear
    PyObject* result = call.run();
    if (result && active_) adopt_result(call.self, result, call.name());
    return result;
  }
  return stop(call.self, Stop::kOpaqueCall, call.name());
}

PyObject* Recorder::call_data(const CCall& call) {
  const auto stops = [&] { return stop(call.self, Stop::kTensorData, call.name()); };
  if (!call.first || !is_tensor(call.first) || !call.rest().empty()) return stops();
  if (call.rule.has(CallTrait::kReadsNumber) && has_known_data(call.first)) {
    PyObject* result = call.run();
    if (result && active_ && !is_value(result)) enter_made(result);
    return result;
  }
  const bool is_one = tensor_of(call.first).numel() == 1;
  if (call.rule.has(CallTrait::kReadsTruth)) {
    const int found = is_one ? truth(call.self, call.first) : kStopStatus;
    if (found == kStopStatus) return is_one ? kStop : stops();
    return found < 0 ? nullptr : Py_NewRef(found ? Py_True : Py_False);
  }
  if (!call.rule.has(CallTrait::kReadsElements) || !(is_one || call.rule.has(CallTrait::kReadsList))) return stops();
  if (can_read(call.self, call.first)) return read_numbers(call.self, call.first, call.name());
  return active_ ? stops() : call.run();
}

static bool holds_tensor(PyObject* object, int depth = 0) {
  if (depth > 6 || !(PyTuple_Check(object) || PyList_Check(object))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    if (is_tensor(item) || holds_tensor(item, depth + 1)) return true;
  }
  return false;
}

// Where no gradient is needed, torch.max_pool1d fills the memory of its result itself, and no operator tells. The one
// that gives positions, too, is an operator.
static bool pools_past_the_dispatcher(PyObject* input) {
  if (!is_tensor(input)) return false;
  const at::Tensor& tensor = tensor_of(input);
  return tensor.is_cpu() && at::isFloatingType(tensor.scalar_type()) &&
         !(tensor.requires_grad() && c10::GradMode::is_enabled());
}
static PyObject* max_pool1d(PyObject* plain, PyObject* const* args, size_t count, PyObject* kwnames) {
  static PyObject* const other = [] {
    const Ref torch = Ref::take(PyImport_ImportModule("torch"));
    return torch ? PyObject_GetAttrString(torch.get(), "max_pool1d_with_indices") : nullptr;
  }();
  // The result is contiguous, and so are the strides of dimensions of one element: a view has such.
  const Ref dense = Ref::take(PyObject_CallMethod(args[0], "contiguous", nullptr));
  const Ref shape = Ref::take(PyObject_GetAttrString(args[0], "shape"));
  const Ref input = Ref::take(dense && shape ? PyObject_CallMethod(dense.get(), "view", "O", shape.get()) : nullptr);
  std::vector<PyObject*> all(args, args + total_count(count, kwnames));
  all[0] = input.get();
  const Ref both = Ref::take(other && input ? PyObject_Vectorcall(other, all.data(), count, kwnames) : nullptr);
  if (both) return Py_NewRef(PyTuple_GET_ITEM(both.get(), 0));
  PyErr_Clear();  // it says so in its own words
  return PyObject_Vectorcall(plain, args, count, kwnames);
}

PyObject* Recorder::call_torch(const CCall& call) {
  Activation& self = call.self;
  const std::string name = call.name();
  if (call.bound && !torch_operand(self, call.bound)) return stop(self, unreadable_stop_, unreadable_detail_);
  for (PyObject* arg : call.all())
    if (!torch_operand(self, arg)) return stop(self, unreadable_stop_, unreadable_detail_);
  // It reads them past the dispatcher, where no trace sees it.
  const bool makes_tensor = call.rule.has(CallTrait::kMakesTensor);
  if (makes_tensor && std::any_of(call.args, call.args + call.count, [](PyObject* arg) { return holds_tensor(arg); })) {
    static PyObject* const stacked = own_function("_tensor_of_tensors");
    if (stacked && !info(stacked)) enter_outside(stacked, guards().sources.pinned({}, nullptr));
    PyObject* const made = stacked && !is_tensor(call.args[0])
                               ? this->call(self, stacked, call.args, call.positional(), call.kwnames)
                               : Py_None;
    return made == Py_None ? stop(self, Stop::kTensorData, "torch.tensor of a list of tensors") : made;
  }
  const size_t positional = call.positional();
  if ((makes_tensor || call.rule.has(CallTrait::kTakesData)) &&
      makes_tensor_of_reals(call.all(), positional, call.kwnames))
    return torch_leaf(self, name, call.all(), [&](PyObject* const* of) {
      return tensor_of_reals({of, call.count}, positional, call.kwnames);
    });
  // torch takes its loop apart, step by step, and warns where a size is a symbol.
  if (symbolic_ && call.rule.has(CallTrait::kRecurrent) &&
      std::any_of(call.args, call.args + call.count, [&](PyObject* arg) { return symbolic_->is_symbolic(arg); }))
    return stop(self, Stop::kRecurrent, name);
  if (call.rule.has(CallTrait::kPoolsLine) && call.count > 0 && pools_past_the_dispatcher(call.args[0]))
    return torch_leaf(self, name, call.all(),
                      [&](PyObject* const* of) { return max_pool1d(call.callable, of, positional, call.kwnames); });
  if (!call.bound || !symbolic_)
    return torch_leaf(self, name, call.all(), [&](PyObject* const* of) {
      return PyObject_Vectorcall(call.callable, of, positional, call.kwnames);
    });
  const Ref method = Ref::take(unbound(call.callable));
  if (!method) return stop(self, Stop::kOpaqueCall, name);
  std::vector<PyObject*> all{call.bound};
  all.insert(all.end(), call.args, call.args + call.count);
  return torch_leaf(self, name, all, [&](PyObject* const* of) {
    return PyObject_Vectorcall(method.get(), of, positional + 1, call.kwnames);
  });
}

PyObject* Recorder::call_checkpoint(const CCall& call) {
  const bool enters = call.rule.has(CallTrait::kEnters);
  checkpoint_depth_ += enters ? 1 : -1;
  if (enters && checkpoint_depth_ == 1) ++checkpoints_;
  const uint32_t region = checkpoint_depth_ > 0 ? checkpoints_ : 0;  // of regions inside of others, the outer one
  trace_->set_checkpoint(region);
  if (symbolic_) symbolic_->trace().set_checkpoint(region);
  return call.run();
}

// ---- the language --------------------------------------------------------------------------------------------------

// operator.add(a, b), abs(x), sum(xs): what the instruction would do.
PyObject* Recorder::call_operator_function(const CCall& call) {
  Activation& self = call.self;
  PyObject* const* const args = call.args;
  const OperatorCall& what = *operator_call(call.callable);
  if (what.kind == OperatorCall::Kind::kTotal && what.code == NB_ADD && call.count > 0 && is_made(args[0]) &&
      (PyGen_CheckExact(args[0]) || Py_TYPE(args[0]) == &PyMap_Type)) {  // C code would add tensors unseen
    static PyObject* const total = own_function("_sum");
    if (total && !info(total)) enter_outside(total, guards().sources.pinned({}, nullptr));
    if (total && reinterpret_cast<PyObject*>(self.function()) != total)
      return this->call(self, total, args, call.nargsf, call.kwnames);
  }
  if (call.kwnames || call.count != what.arguments) return call_pure(call);
  switch (what.kind) {
    case OperatorCall::Kind::kUnary:
      return unary(self, what.code, args[0]);
    case OperatorCall::Kind::kBinary:
      return binary(self, what.code, args[0], args[1]);
    case OperatorCall::Kind::kCompare:
      return compare(self, args[0], args[1], what.code);
    case OperatorCall::Kind::kIdentical:
      return identical(self, args[0], args[1], what.code != 0);
    case OperatorCall::Kind::kItem:
      return load_item(self, args[0], args[1]);
    case OperatorCall::Kind::kTotal:
      return is_made_of_sizes(args[0]) ? call_total(self, args[0], what.code) : call_pure(call);
    case OperatorCall::Kind::kDivmod:
      if (is_symbolic(args[0]) && PyLong_CheckExact(args[0]) && PyLong_CheckExact(args[1]))
        return call_divmod(self, args[0], args[1]);
      [[fallthrough]];
    case OperatorCall::Kind::kNumber:
      break;
  }
  if (!is_tensor(args[0])) return call_pure(call);
  for (PyObject* arg : call.all())
    if (!torch_operand(self, arg)) return stop(self, unreadable_stop_, unreadable_detail_);
  return torch_leaf(self, call.name(), call.all(),
                    [&](PyObject* const* of) { return PyObject_Vectorcall(call.callable, of, call.count, nullptr); });
}

PyObject* Recorder::call_identity(const CCall& call) {
  PyObject* result = call.run();
  if (!result || !call.first || is_value(call.first)) return result;
  if (is_outside(call.first) && !floating(call.first)) return result;
  // The address is another one at the next call: good as a key of what is made here, and for nothing else.
  PyObject* fresh = unique_int(result);
  Py_DECREF(result);
  if (fresh) {
    enter_made(fresh);
    ids_.emplace(fresh, call.first);
  }
  return fresh;
}

PyObject* Recorder::call_next(const CCall& call) {
  PyObject* result = next(call.self, call.first);
  if (result || PyErr_Occurred()) return result;
  if (call.count > 1) return Py_NewRef(call.args[1]);
  PyErr_SetNone(PyExc_StopIteration);
  return nullptr;
}

PyObject* Recorder::call_read_key(const CCall& call) {
  Activation& self = call.self;
  PyObject* const first = call.first;
  if (call.rest().empty()) return call.run();
  PyObject* const key = call.rest()[0];
  specialise(key);
  if (!slot_known(self, key) || asks_program(first, key)) return stop(self, unreadable_stop_, unreadable_detail_);
  guard_lookup(first, key);
  // What a class does for a key that it has not (__missing__) is done inside of dict.__getitem__, unseen.
  if (is_outside(first) && call.rule.has(CallTrait::kMayMiss) && missing_method(first, key))
    return stop(self, Stop::kEffect, call.name());
  if (is_outside(first))
    guard_key(self, first, key, nullptr, source_of(first), Reader::kTags);
  else if (!is_made(first) && PyDict_Check(first))
    return stop(self, Stop::kUnknownObject, call.name());
  PyObject* result = call.run();
  if (!result || !active_) return result;
  if (!is_value(result) && !info(result) && !is_dirty(first, key))
    adopt(self, result, Source::Kind::kItem, first, key, -1, "an entry");
  return tagged(first, key, result);
}

// getattr(o, name), hasattr(o, name)
PyObject* Recorder::call_getattr(const CCall& call) {
  PyObject* const name = call.rest().empty() ? nullptr : call.rest()[0];
  if (!call.first || !name || !PyUnicode_Check(name) || call.kwnames) return call.run();
  specialise(name);
  if (call.rule.has(CallTrait::kOfInstance)) return call_getattribute(call, name);
  PyObject* const result = load_attr(call.self, call.first, name);
  const bool asks = call.rule.has(CallTrait::kAsks);
  if (result == kStop) return kStop;
  if (result) {
    if (!asks) return result;
    Py_DECREF(result);
    return Py_NewRef(Py_True);
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError) || (!asks && call.count < 3)) return nullptr;
  PyErr_Clear();
  return Py_NewRef(asks ? Py_False : call.args[2]);
}

// object.__getattribute__(o, name): the generic look-up, below the class's own __getattribute__.
PyObject* Recorder::call_getattribute(const CCall& call, PyObject* name) {
  Activation& self = call.self;
  PyObject* const owner = call.first;
  if (is_tensor(owner)) {
    bool handled;
    PyObject* result = tensor_attr(self, owner, name, &handled);
    if (handled) return result;
  }
  int member = is_tensor(owner) ? 0 : guard_attr(self, owner, name, Reader::kTags);
  if (member == kStopStatus) return kStop;
  PyObject* result = call.run();
  if (!result || !active_) return result;
  if (member == 1 && strcmp(PyUnicode_AsUTF8(name), "__dict__") != 0) guard_member(owner, name, result);
  if (member == 1 && strcmp(PyUnicode_AsUTF8(name), "__dict__") == 0 && info(result)) return result;
  if (member == 1 && PyDict_Check(result) && !info(result)) {
    if (is_outside(owner)) {
      enter_outside(result, floating(owner) ? guards().sources.part(Source::Kind::kDict, source_of(owner), nullptr)
                                            : source_of(owner));
      if (!floating(owner)) dict_guard(result, owner, source_of(owner));
    } else {
      enter_made(result);
    }
    return result;
  }
  if (!PyType_Check(owner) && _PyType_Lookup(Py_TYPE(owner), name) == result) {
    if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, name));
  } else {
    adopt(self, result, Source::Kind::kAttr, owner, name, -1, "object.__getattribute__");
  }
  return tagged(PyModule_CheckExact(owner) ? PyModule_GetDict(owner) : instance_dict(owner), name, result);
}

// Called below the class's own __setattr__.
PyObject* Recorder::call_setattr(const CCall& call) {
  Activation& self = call.self;
  PyObject* const first = call.first;
  const auto rest = call.rest();
  const bool deletes = call.rule.has(CallTrait::kDeletes);
  PyObject* const attribute = rest.empty() ? nullptr : rest[0];
  PyObject* const value = deletes || rest.size() < 2 ? nullptr : rest[1];
  if (call.kwnames || !attribute || !PyUnicode_Check(attribute) || (!deletes && !value)) return call.run();
  specialise(attribute);
  if (!call.rule.has(CallTrait::kOfInstance)) {
    const int status = store_attr(self, first, attribute, value);
    return status == kStopStatus ? kStop : status < 0 ? nullptr : Py_NewRef(Py_None);
  }
  if (is_tensor(first) || (PyType_Check(first) && !is_made(first)) || is_older(first))
    return stop(self, Stop::kEffect, call.name());
  if (is_made(first)) return call.run();
  if (!is_outside(first)) return stop(self, Stop::kUnknownObject, call.name());
  guard_class(first);
  PyObject* const descriptor = _PyType_Lookup(Py_TYPE(first), attribute);
  if (descriptor && Py_TYPE(descriptor)->tp_descr_set && Py_TYPE(descriptor) != &PyMemberDescr_Type)
    return Py_TYPE(descriptor) == &PyGetSetDescr_Type ? stop(self, Stop::kEffect, call.name()) : call.run();
  taken_away(attribute_there(first, attribute));
  remember(instance_dict(first), attribute);
  PyObject* result = call.run();
  if (result) {
    record_set(Effect::Kind::kSetAttr, first, attribute, value, true);
    if (PyObject* dict = instance_dict(first)) make_dirty(dict, attribute);
    make_dirty(first, attribute);
  }
  return result;
}

// type.__call__ from a metaclass's __call__: makes the instance the ordinary way.
PyObject* Recorder::call_type_call(const CCall& call) {
  if (!call.first || !PyType_Check(call.first)) return call.run();
  const size_t skip = call.bound ? 0 : 1;
  return make_instance(call.self, reinterpret_cast<PyTypeObject*>(call.first), call.args + skip,
                       call.positional() - skip, call.kwnames);
}

PyObject* Recorder::call_new(const CCall& call) {
  Activation& self = call.self;
  if (!call.count || !PyType_Check(call.args[0])) return call.run();
  auto* const type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  if (PyType_IsSubtype(type, tensor_base())) return stop(self, Stop::kOpaqueType, type->tp_name);
  if (PyType_IsSubtype(type, &PyType_Type))  // what a metaclass ends in
    return build_named_class(self, call.callable, call.args, call.nargsf, call.kwnames, 1);
  if (has_finalizer(type)) return stop(self, Stop::kFinalizer, type->tp_name);
  for (PyObject* arg : call.all().subspan(1))
    if (!readable(self, arg)) return stop(self, unreadable_stop_, unreadable_detail_);
  PyObject* result = call.run();
  if (result && active_ && !is_value(result) && !info(result)) adopt_result(self, result, type->tp_name);
  return result;
}

PyObject* Recorder::call_globals(const CCall& call) {
  PyObject* const globals = call.self.frame()->f_globals;
  if (call.count > 0 || !PyDict_CheckExact(globals)) return call.run();
  if (!info(globals)) enter_outside(globals, guards().sources.pinned({}, nullptr));
  return Py_NewRef(globals);
}

PyObject* Recorder::call_build_class(const CCall& call) {
  constexpr size_t kBases = 2;  // after the body and the name
  if (call.positional() < kBases || !is_made(call.args[0])) return stop(call.self, Stop::kClassBody, "");
  return build_class(call.self, call.callable, call.args, call.nargsf, call.kwnames,
                     {call.args + kBases, call.positional() - kBases});
}

/// The slots of Python classes keep what they hold where C code finds it, and no guard.
static bool has_python_slots(PyTypeObject* type) {
  for (; is_python_class(type); type = type->tp_base)
    if (PyObject* slots = reinterpret_cast<PyHeapTypeObject*>(type)->ht_slots; slots && PyTuple_GET_SIZE(slots))
      return true;
  return false;
}

// object.__reduce_ex__ gives (a function of copyreg, arguments, state ...): all that the object holds.
PyObject* Recorder::call_reduce(const CCall& call) {
  Activation& self = call.self;
  PyObject* const first = call.first;
  if (!first) return call.run();
  if (is_tensor(first) || !slot_known(self, first)) return stop(self, Stop::kOpaqueCall, call.name());
  keep_slot_names(first);
  guard_class(first);
  if (is_outside(first)) {
    if (has_python_slots(Py_TYPE(first))) return stop(self, Stop::kOpaqueCall, call.name());
    guard_all(self, first);  // what a subclass of dict or list holds
    if (PyObject* dict = instance_dict(first)) {
      if (!info(dict))
        enter_outside(dict, floating(first) ? guards().sources.part(Source::Kind::kDict, source_of(first), nullptr)
                                            : source_of(first));
      if (!floating(first)) dict_guard(dict, first, source_of(first));
      guard_all(self, dict);
    }
    if (!active_) return call.run();
  }
  PyObject* result = call.run();
  if (!result || !active_) return result;
  adopt_result(self, result, "object.__reduce_ex__");
  for (Py_ssize_t i = 0; PyTuple_Check(result) && i < PyTuple_GET_SIZE(result); ++i) {
    PyObject* const part = PyTuple_GET_ITEM(result, i);
    if (is_value(part) || info(part)) continue;
    if (PyFunction_Check(part))
      enter_outside(part, guards().sources.pinned({}, nullptr));
    else
      enter_made(part);
  }
  return result;
}

// ---- state outside
// ---------------------------------------------------------------------------------------------------

// A getter: called again as a guard.
PyObject* Recorder::call_state(const CCall& call) {
  if (func_depth_ > 0 && call.rule.has(CallTrait::kOfTransforms)) {
    PyObject* result = call.run();  // the program itself has made it so
    if (result && !is_value(result) && !info(result)) enter_made(result);
    return result;
  }
  bool keepable = true;
  for (PyObject* arg : call.all()) {
    specialise(arg);
    if (is_outside(arg)) guard_class(arg);
    if (is_made(arg)) guard_type(Py_TYPE(arg));
    if (floating(arg)) {
      if (is_tensor(arg) || !call.rule.has(CallTrait::kOfClass)) return stop(call.self, Stop::kOpaqueCall, call.name());
      return call.run();  // its class is guarded
    }
    keepable = keepable && (is_value(arg) || is_outside(arg) || PyType_Check(arg));
  }
  PyObject* result = call.run();
  if (!result) return nullptr;
  if (keepable) guard_state(call.callable, call.args, call.count, result, call.name());
  if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
  return result;
}

PyObject* Recorder::call_context_get(const CCall& call) {
  PyObject* const first = call.first;
  if (first) pin(first);
  PyObject* result = call.run();
  if (!result) return nullptr;
  if (!is_outside(first) || floating(first) || state_dirty_.count(first)) {
    adopt_result(call.self, result, "ContextVar.get");
    return result;
  }
  const Ref method = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(first)), "get"));
  std::vector<PyObject*> all{first};
  for (PyObject* arg : call.rest()) all.push_back(arg);
  guard_state(method.get(), all.data(), all.size(), result, "ContextVar.get");
  if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
  return result;
}

// Repeated by each replay.
PyObject* Recorder::call_state_set(const CCall& call) {
  if (call.kwnames) return stop(call.self, Stop::kEffect, call.name());
  for (PyObject* arg : call.all())
    if (!slot_known(call.self, arg)) return stop(call.self, unreadable_stop_, unreadable_detail_);
  if (call.bound && !is_outside(call.bound)) return stop(call.self, Stop::kEffect, call.name());
  PyObject* result = call.run();
  if (!result) return nullptr;
  Ref method = Ref::share(call.callable);
  std::vector<PyObject*> all;
  if (call.bound) {
    method = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(call.bound)),
                                              reinterpret_cast<PyCFunctionObject*>(call.callable)->m_ml->ml_name));
    all.push_back(call.bound);
  }
  all.insert(all.end(), call.args, call.args + call.count);
  const int number = record_call(method.get(), all.data(), all.size());
  if (call.first) state_dirty_.insert(call.first);
  enter_effect(result, number);
  return result;
}

}  // namespace magneto::capture
