// evaluator/opcodes.h: the opcode table, one row for each instruction and a column for each CPython version. A version
// that gives an old name a new meaning has a row of its own; a version that only shifts an argument has another `fact`.
#pragma once
#include <array>
#include <cstdint>

#include "evaluator/evaluator.h"

namespace magneto::evaluator {

inline constexpr int kFirstMinor = 11;
inline constexpr int kVersionCount = 4;  ///< 3.11 - 3.14
inline constexpr int kAbsent = -1;

using OpcodeHandler = Step (*)(Evaluator&, int argument);

enum OpcodeFlags : uint8_t {
  kPlain = 0,
  kQuiet = 1,          ///< runs no code of others, not even a finalizer: nobody can have switched tracing on
  kPrefix = 2,         ///< one instruction together with the next: neither CPython nor a director may enter in between
  kWidens = 4,         ///< a prefix whose argument are the upper bits of the next one's
  kNamesKeywords = 8,  ///< a prefix that names the keyword arguments of the call
  kTests = 16,         ///< a comparison; with a bit in its argument it leaves the truth of its result
};

/// Facts: a callable and the empty place of its `self` are pushed in this order.
inline constexpr int kNullBelow = 0, kNullAbove = 1;
/// Facts: what follows ** in a call has its place on the stack even where nothing does.
inline constexpr int kKeywordsIfAny = 0, kKeywordsAlways = 1;

struct OpcodeRow {
  const char* name;
  std::array<int16_t, kVersionCount> number;  ///< by CPython version; kAbsent
  OpcodeHandler handler;
  uint8_t flags = kPlain;
  int fact = 0;
};

/// The row of an opcode of the running version; opcodes that nobody knows have a row that hands over.
const OpcodeRow& opcode_row(int number);
/// All rows, for tests.
const OpcodeRow* opcode_rows(int* count);
/// The column of this CPython; -1: not known.
inline constexpr int kVersionColumn =
    PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION >= kFirstMinor && PY_MINOR_VERSION < kFirstMinor + kVersionCount
        ? PY_MINOR_VERSION - kFirstMinor
        : -1;

namespace op {

// Stack and slots (opcodes_names.cpp).
Step nop(Evaluator&, int);
Step resume(Evaluator&, int);
Step pop_top(Evaluator&, int);
Step push_null(Evaluator&, int);
Step copy(Evaluator&, int);
Step swap(Evaluator&, int);
Step load_const(Evaluator&, int);
Step load_fast(Evaluator&, int);
Step load_fast_borrow(Evaluator&, int);
Step load_fast_borrow_load_fast_borrow(Evaluator&, int);
Step load_fast_and_clear(Evaluator&, int);
Step load_fast_load_fast(Evaluator&, int);
Step store_fast(Evaluator&, int);
Step store_fast_load_fast(Evaluator&, int);
Step store_fast_store_fast(Evaluator&, int);
Step delete_fast(Evaluator&, int);
Step load_assertion_error(Evaluator&, int);
Step load_common_constant(Evaluator&, int);
Step load_small_int(Evaluator&, int);
// Names (opcodes_names.cpp).
Step load_global(Evaluator&, int);
Step store_global(Evaluator&, int);
Step delete_global(Evaluator&, int);
Step load_name(Evaluator&, int);
Step store_name(Evaluator&, int);
Step delete_name(Evaluator&, int);
Step make_cell(Evaluator&, int);
Step copy_free_vars(Evaluator&, int);
Step load_deref(Evaluator&, int);
Step store_deref(Evaluator&, int);
Step delete_deref(Evaluator&, int);
Step load_classderef(Evaluator&, int);
Step load_locals(Evaluator&, int);
Step load_from_dict_or_globals(Evaluator&, int);
Step load_from_dict_or_deref(Evaluator&, int);
Step load_build_class(Evaluator&, int);
Step setup_annotations(Evaluator&, int);
Step import_name(Evaluator&, int);
Step import_from(Evaluator&, int);
// Attributes and items (opcodes_items.cpp).
Step load_attr(Evaluator&, int);
Step load_method(Evaluator&, int);
Step load_attr_or_method(Evaluator&, int);
Step load_super_attr(Evaluator&, int);
Step store_attr(Evaluator&, int);
Step delete_attr(Evaluator&, int);
Step binary_subscr(Evaluator&, int);
Step binary_slice(Evaluator&, int);
Step store_subscr(Evaluator&, int);
Step store_slice(Evaluator&, int);
Step delete_subscr(Evaluator&, int);
// Operators (opcodes_operators.cpp).
Step unary(Evaluator&, int);
Step binary_op(Evaluator&, int);
Step compare_op(Evaluator&, int);
Step to_bool(Evaluator&, int);
Step is_op(Evaluator&, int);
Step contains_op(Evaluator&, int);
Step format_value(Evaluator&, int);
Step convert_value(Evaluator&, int);
Step format_simple(Evaluator&, int);
Step format_with_spec(Evaluator&, int);
Step get_len(Evaluator&, int);
// Calls (opcodes_calls.cpp).
Step call(Evaluator&, int);
Step call_kw(Evaluator&, int);
Step call_function_ex(Evaluator&, int);
Step make_function(Evaluator&, int);
Step set_function_attribute(Evaluator&, int);
Step call_intrinsic_1(Evaluator&, int);
Step call_intrinsic_2(Evaluator&, int);
// Jumps and iteration (opcodes_jumps.cpp).
Step jump_forward(Evaluator&, int);
Step jump_backward(Evaluator&, int);
Step jump_backward_no_interrupt(Evaluator&, int);
Step pop_jump_if_true(Evaluator&, int);
Step pop_jump_if_false(Evaluator&, int);
Step pop_jump_if_none(Evaluator&, int);
Step pop_jump_if_not_none(Evaluator&, int);
Step jump_if_true_or_pop(Evaluator&, int);
Step jump_if_false_or_pop(Evaluator&, int);
Step get_iter(Evaluator&, int);
Step for_iter(Evaluator&, int);
Step for_iter_until(Evaluator&, int);
Step end_for(Evaluator&, int);
Step unpack_sequence(Evaluator&, int);
Step unpack_ex(Evaluator&, int);
// Exceptions and with blocks (opcodes_exceptions.cpp).
Step raise_varargs(Evaluator&, int);
Step reraise(Evaluator&, int);
Step push_exc_info(Evaluator&, int);
Step pop_except(Evaluator&, int);
Step check_exc_match(Evaluator&, int);
Step check_eg_match(Evaluator&, int);
Step prep_reraise_star(Evaluator&, int);
Step before_with(Evaluator&, int);
Step before_async_with(Evaluator&, int);
Step load_special(Evaluator&, int);
Step with_except_start(Evaluator&, int);
Step stopiteration_error(Evaluator&, int);
// Builders (opcodes_builders.cpp).
Step build_tuple(Evaluator&, int);
Step build_list(Evaluator&, int);
Step build_set(Evaluator&, int);
Step build_map(Evaluator&, int);
Step build_const_key_map(Evaluator&, int);
Step build_string(Evaluator&, int);
Step build_interpolation(Evaluator&, int);
Step build_template(Evaluator&, int);
Step build_slice(Evaluator&, int);
Step list_append(Evaluator&, int);
Step set_add(Evaluator&, int);
Step map_add(Evaluator&, int);
Step list_extend(Evaluator&, int);
Step set_update(Evaluator&, int);
Step dict_update(Evaluator&, int);
Step dict_merge(Evaluator&, int);
Step list_to_tuple(Evaluator&, int);
// Patterns (opcodes_match.cpp).
Step match_sequence(Evaluator&, int);
Step match_mapping(Evaluator&, int);
Step match_keys(Evaluator&, int);
Step match_class(Evaluator&, int);
// Returns, generators, coroutines (opcodes_generators.cpp).
Step return_value(Evaluator&, int);
Step return_const(Evaluator&, int);
Step return_generator(Evaluator&, int);
Step yield_value(Evaluator&, int);
Step send(Evaluator&, int);
Step end_send(Evaluator&, int);
Step cleanup_throw(Evaluator&, int);
Step get_yield_from_iter(Evaluator&, int);
Step get_awaitable(Evaluator&, int);
Step get_aiter(Evaluator&, int);
Step get_anext(Evaluator&, int);
Step end_async_for(Evaluator&, int);
// Instructions that only CPython executes (opcodes.cpp).
Step hand_over(Evaluator&, int);

}  // namespace op
}  // namespace magneto::evaluator
