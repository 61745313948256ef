#include "evaluator/opcodes.h"

namespace magneto::evaluator {

namespace op {

Step hand_over(Evaluator& e, int) {
  Step step = e.ask();
  return step == Step::kNext ? Step::kHandOver : step;
}

// Numbers are those of CPython's own `opcode` module (a test compares them). CACHE and the instrumented opcodes have no
// row: code_text() shows the code without them.
// clang-format off
static constexpr OpcodeRow kRows[] = {
    // name                           3.11 3.12 3.13 3.14     handler                 flags    fact
    {"NOP",                          {{9, 9, 30, 27}},        nop,                    kQuiet},
    {"NOT_TAKEN",                    {{-1, -1, -1, 28}},      nop,                    kQuiet},
    {"RESUME",                       {{151, 151, 149, 128}},  resume},
    {"EXTENDED_ARG",                 {{144, 144, 71, 69}},    nop,                    kPrefix | kWidens},
    {"KW_NAMES",                     {{172, 172, -1, -1}},    nop,                    kPrefix | kNamesKeywords},
    {"PRECALL",                      {{166, -1, -1, -1}},     nop,                    kPrefix},
    {"POP_TOP",                      {{1, 1, 32, 31}},        pop_top},
    {"POP_ITER",                     {{-1, -1, -1, 30}},      pop_top},
    {"PUSH_NULL",                    {{2, 2, 34, 33}},        push_null,              kQuiet},
    {"COPY",                         {{120, 120, 61, 59}},    copy,                   kQuiet},
    {"SWAP",                         {{99, 99, 115, 117}},    swap,                   kQuiet},
    {"LOAD_CONST",                   {{100, 100, 83, 82}},    load_const,             kQuiet},
    {"LOAD_SMALL_INT",               {{-1, -1, -1, 94}},      load_small_int,         kQuiet},
    {"LOAD_FAST",                    {{124, 124, 85, 84}},    load_fast,              kQuiet},
    {"LOAD_FAST_BORROW",             {{-1, -1, -1, 86}},      load_fast_borrow,       kQuiet},
    {"LOAD_FAST_CHECK",              {{-1, 127, 87, 88}},     load_fast,              kQuiet},
    {"LOAD_CLOSURE",                 {{136, 136, -1, -1}},    load_fast,              kQuiet},
    {"LOAD_FAST_LOAD_FAST",          {{-1, -1, 88, 89}},      load_fast_load_fast,    kQuiet},
    {"LOAD_FAST_BORROW_LOAD_FAST_BORROW", {{-1, -1, -1, 87}}, load_fast_borrow_load_fast_borrow, kQuiet},
    {"LOAD_FAST_AND_CLEAR",          {{-1, 143, 86, 85}},     load_fast_and_clear,    kQuiet},
    {"STORE_FAST",                   {{125, 125, 110, 112}},  store_fast},
    {"STORE_FAST_LOAD_FAST",         {{-1, -1, 111, 113}},    store_fast_load_fast},
    {"STORE_FAST_STORE_FAST",        {{-1, -1, 112, 114}},    store_fast_store_fast},
    {"DELETE_FAST",                  {{126, 126, 65, 63}},    delete_fast},
    {"LOAD_ASSERTION_ERROR",         {{74, 74, 23, -1}},      load_assertion_error,   kQuiet},
    {"LOAD_COMMON_CONSTANT",         {{-1, -1, -1, 81}},      load_common_constant,   kQuiet},

    {"LOAD_GLOBAL",                  {{116, 116, -1, -1}},    load_global,            kPlain,  kNullBelow},
    {"LOAD_GLOBAL",                  {{-1, -1, 91, 92}},      load_global,            kPlain,  kNullAbove},
    {"STORE_GLOBAL",                 {{97, 97, 113, 115}},    store_global},
    {"DELETE_GLOBAL",                {{98, 98, 66, 64}},      delete_global},
    {"LOAD_NAME",                    {{101, 101, 92, 93}},    load_name},
    {"STORE_NAME",                   {{90, 90, 114, 116}},    store_name},
    {"DELETE_NAME",                  {{91, 91, 67, 65}},      delete_name},
    {"MAKE_CELL",                    {{135, 135, 94, 97}},    make_cell,              kQuiet},
    {"COPY_FREE_VARS",               {{149, 149, 62, 60}},    copy_free_vars,         kQuiet},
    {"LOAD_DEREF",                   {{137, 137, 84, 83}},    load_deref},
    {"STORE_DEREF",                  {{138, 138, 109, 111}},  store_deref},
    {"DELETE_DEREF",                 {{139, 139, 64, 62}},    delete_deref},
    {"LOAD_CLASSDEREF",              {{148, -1, -1, -1}},     load_classderef},
    {"LOAD_LOCALS",                  {{-1, 87, 25, 22}},      load_locals},
    {"LOAD_FROM_DICT_OR_GLOBALS",    {{-1, 175, 90, 91}},     load_from_dict_or_globals},
    {"LOAD_FROM_DICT_OR_DEREF",      {{-1, 176, 89, 90}},     load_from_dict_or_deref},
    {"LOAD_BUILD_CLASS",             {{71, 71, 24, 21}},      load_build_class},
    {"SETUP_ANNOTATIONS",            {{85, 85, 37, 36}},      setup_annotations},
    {"IMPORT_NAME",                  {{108, 108, 75, 73}},    import_name},
    {"IMPORT_FROM",                  {{109, 109, 74, 72}},    import_from},
    {"IMPORT_STAR",                  {{84, -1, -1, -1}},      hand_over},
    {"PRINT_EXPR",                   {{70, -1, -1, -1}},      hand_over},

    {"LOAD_ATTR",                    {{106, -1, -1, -1}},     load_attr},
    {"LOAD_METHOD",                  {{160, -1, -1, -1}},     load_method,            kPlain,  kNullBelow},
    {"LOAD_ATTR",                    {{-1, 106, -1, -1}},     load_attr_or_method,    kPlain,  kNullBelow},  // the low bit of the argument: a method is called
    {"LOAD_ATTR",                    {{-1, -1, 82, 80}},      load_attr_or_method,    kPlain,  kNullAbove},
    {"LOAD_SUPER_ATTR",              {{-1, 141, -1, -1}},     load_super_attr,        kPlain,  kNullBelow},
    {"LOAD_SUPER_ATTR",              {{-1, -1, 93, 96}},      load_super_attr,        kPlain,  kNullAbove},
    {"STORE_ATTR",                   {{95, 95, 108, 110}},    store_attr},
    {"DELETE_ATTR",                  {{96, 96, 63, 61}},      delete_attr},
    {"BINARY_SUBSCR",                {{25, 25, 5, -1}},       binary_subscr},
    {"BINARY_SLICE",                 {{-1, 26, 4, 1}},        binary_slice},
    {"STORE_SUBSCR",                 {{60, 60, 39, 38}},      store_subscr},
    {"STORE_SLICE",                  {{-1, 27, 38, 37}},      store_slice},
    {"DELETE_SUBSCR",                {{61, 61, 9, 8}},        delete_subscr},

    {"UNARY_POSITIVE",               {{10, -1, -1, -1}},      unary,                  kPlain,  static_cast<int>(Unary::kPositive)},
    {"UNARY_NEGATIVE",               {{11, 11, 42, 41}},      unary,                  kPlain,  static_cast<int>(Unary::kNegative)},
    {"UNARY_NOT",                    {{12, 12, 43, 42}},      unary,                  kPlain,  static_cast<int>(Unary::kNot)},
    {"UNARY_INVERT",                 {{15, 15, 41, 40}},      unary,                  kPlain,  static_cast<int>(Unary::kInvert)},
    {"BINARY_OP",                    {{122, 122, 45, 44}},    binary_op},
    {"COMPARE_OP",                   {{107, -1, -1, -1}},     compare_op,             kPlain,  0},  // the argument is shifted by this
    {"COMPARE_OP",                   {{-1, 107, -1, -1}},     compare_op,             kPlain,  4},
    {"COMPARE_OP",                   {{-1, -1, 58, 56}},      compare_op,             kTests,  5},
    {"TO_BOOL",                      {{-1, -1, 40, 39}},      to_bool},
    {"IS_OP",                        {{117, 117, 76, 74}},    is_op},
    {"CONTAINS_OP",                  {{118, 118, 59, 57}},    contains_op},
    {"FORMAT_VALUE",                 {{155, 155, -1, -1}},    format_value},
    {"CONVERT_VALUE",                {{-1, -1, 60, 58}},      convert_value},
    {"FORMAT_SIMPLE",                {{-1, -1, 14, 12}},      format_simple},
    {"FORMAT_WITH_SPEC",             {{-1, -1, 15, 13}},      format_with_spec},
    {"GET_LEN",                      {{30, 30, 20, 18}},      get_len},

    {"CALL",                         {{171, 171, 53, 52}},    call},
    {"CALL_KW",                      {{-1, -1, 57, 55}},      call_kw},
    {"CALL_FUNCTION_EX",             {{142, 142, 54, -1}},    call_function_ex,       kPlain,  kKeywordsIfAny},
    {"CALL_FUNCTION_EX",             {{-1, -1, -1, 4}},       call_function_ex,       kPlain,  kKeywordsAlways},
    {"MAKE_FUNCTION",                {{132, 132, 26, 23}},    make_function},
    {"SET_FUNCTION_ATTRIBUTE",       {{-1, -1, 106, 108}},    set_function_attribute, kQuiet},
    {"CALL_INTRINSIC_1",             {{-1, 173, 55, 53}},     call_intrinsic_1},
    {"CALL_INTRINSIC_2",             {{-1, 174, 56, 54}},     call_intrinsic_2},

    {"JUMP_FORWARD",                 {{110, 110, 79, 77}},    jump_forward,           kQuiet},
    {"JUMP_BACKWARD",                {{140, 140, 77, 75}},    jump_backward},
    {"JUMP_BACKWARD_NO_INTERRUPT",   {{134, 134, 78, 76}},    jump_backward_no_interrupt, kQuiet},
    {"POP_JUMP_FORWARD_IF_FALSE",    {{114, -1, -1, -1}},     pop_jump_if_false,      kPlain,  1},  // the direction
    {"POP_JUMP_FORWARD_IF_TRUE",     {{115, -1, -1, -1}},     pop_jump_if_true,       kPlain,  1},
    {"POP_JUMP_FORWARD_IF_NONE",     {{129, -1, -1, -1}},     pop_jump_if_none,       kPlain,  1},
    {"POP_JUMP_FORWARD_IF_NOT_NONE", {{128, -1, -1, -1}},     pop_jump_if_not_none,   kPlain,  1},
    {"POP_JUMP_BACKWARD_IF_FALSE",   {{175, -1, -1, -1}},     pop_jump_if_false,      kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_TRUE",    {{176, -1, -1, -1}},     pop_jump_if_true,       kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_NONE",    {{174, -1, -1, -1}},     pop_jump_if_none,       kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_NOT_NONE", {{173, -1, -1, -1}},     pop_jump_if_not_none,   kPlain,  -1},
    {"POP_JUMP_IF_FALSE",            {{-1, 114, 97, 100}},    pop_jump_if_false,      kPlain,  1},
    {"POP_JUMP_IF_TRUE",             {{-1, 115, 100, 103}},   pop_jump_if_true,       kPlain,  1},
    {"POP_JUMP_IF_NONE",             {{-1, 129, 98, 101}},    pop_jump_if_none,       kPlain,  1},
    {"POP_JUMP_IF_NOT_NONE",         {{-1, 128, 99, 102}},    pop_jump_if_not_none,   kPlain,  1},
    {"JUMP_IF_FALSE_OR_POP",         {{111, -1, -1, -1}},     jump_if_false_or_pop},
    {"JUMP_IF_TRUE_OR_POP",          {{112, -1, -1, -1}},     jump_if_true_or_pop},
    {"GET_ITER",                     {{68, 68, 19, 16}},      get_iter},
    {"FOR_ITER",                     {{93, -1, -1, -1}},      for_iter,               kPlain,  0},  // it jumps over so many instructions that clear the stack
    {"FOR_ITER",                     {{-1, 93, -1, -1}},      for_iter,               kPlain,  1},
    {"FOR_ITER",                     {{-1, -1, 72, -1}},      for_iter,               kPlain,  2},
    {"FOR_ITER",                     {{-1, -1, -1, 70}},      for_iter_until,         kPlain,  1},
    {"END_FOR",                      {{-1, 4, -1, -1}},       end_for},
    {"END_FOR",                      {{-1, -1, 11, 9}},       pop_top},
    {"UNPACK_SEQUENCE",              {{92, 92, 117, 119}},    unpack_sequence},
    {"UNPACK_EX",                    {{94, 94, 116, 118}},    unpack_ex},

    {"RAISE_VARARGS",                {{130, 130, 101, 104}},  raise_varargs},
    {"RERAISE",                      {{119, 119, 102, 105}},  reraise},
    {"PUSH_EXC_INFO",                {{35, 35, 33, 32}},      push_exc_info,          kQuiet},
    {"POP_EXCEPT",                   {{89, 89, 31, 29}},      pop_except},
    {"CHECK_EXC_MATCH",              {{36, 36, 7, 6}},        check_exc_match},
    {"CHECK_EG_MATCH",               {{37, 37, 6, 5}},        check_eg_match},
    {"PREP_RERAISE_STAR",            {{88, -1, -1, -1}},      prep_reraise_star},
    {"BEFORE_WITH",                  {{53, 53, 2, -1}},       before_with},
    {"BEFORE_ASYNC_WITH",            {{52, 52, 1, -1}},       before_async_with},
    {"LOAD_SPECIAL",                 {{-1, -1, -1, 95}},      load_special,           kPlain,  kNullAbove},
    {"WITH_EXCEPT_START",            {{49, 49, 44, -1}},      with_except_start,      kPlain,  4},  // the depth of the exit method
    {"WITH_EXCEPT_START",            {{-1, -1, -1, 43}},      with_except_start,      kPlain,  5},

    {"BUILD_TUPLE",                  {{102, 102, 52, 51}},    build_tuple,            kQuiet},
    {"BUILD_LIST",                   {{103, 103, 47, 46}},    build_list,             kQuiet},
    {"BUILD_SET",                    {{104, 104, 49, 48}},    build_set},
    {"BUILD_MAP",                    {{105, 105, 48, 47}},    build_map},
    {"BUILD_CONST_KEY_MAP",          {{156, 156, 46, -1}},    build_const_key_map},
    {"BUILD_STRING",                 {{157, 157, 51, 50}},    build_string,           kQuiet},
    {"BUILD_INTERPOLATION",          {{-1, -1, -1, 45}},      build_interpolation},
    {"BUILD_TEMPLATE",               {{-1, -1, -1, 2}},       build_template},
    {"BUILD_SLICE",                  {{133, 133, 50, 49}},    build_slice,            kQuiet},
    {"LIST_APPEND",                  {{145, 145, 80, 78}},    list_append},
    {"SET_ADD",                      {{146, 146, 105, 107}},  set_add},
    {"MAP_ADD",                      {{147, 147, 95, 98}},    map_add},
    {"LIST_EXTEND",                  {{162, 162, 81, 79}},    list_extend},
    {"SET_UPDATE",                   {{163, 163, 107, 109}},  set_update},
    {"DICT_UPDATE",                  {{165, 165, 69, 67}},    dict_update},
    {"DICT_MERGE",                   {{164, 164, 68, 66}},    dict_merge},
    {"LIST_TO_TUPLE",                {{82, -1, -1, -1}},      list_to_tuple,          kQuiet},

    {"MATCH_SEQUENCE",               {{32, 32, 29, 26}},      match_sequence},
    {"MATCH_MAPPING",                {{31, 31, 28, 25}},      match_mapping},
    {"MATCH_KEYS",                   {{33, 33, 27, 24}},      match_keys},
    {"MATCH_CLASS",                  {{152, 152, 96, 99}},    match_class},

    {"RETURN_VALUE",                 {{83, 83, 36, 35}},      return_value,           kQuiet},
    {"RETURN_CONST",                 {{-1, 121, 103, -1}},    return_const,           kQuiet},
    {"RETURN_GENERATOR",             {{75, 75, 35, 34}},      return_generator,       kQuiet},
    {"YIELD_VALUE",                  {{86, 150, 118, 120}},   yield_value},
    {"ASYNC_GEN_WRAP",               {{87, -1, -1, -1}},      yield_value},          // it stands directly before YIELD_VALUE
    {"SEND",                         {{123, -1, -1, -1}},     send,                   kPlain,  0},  // 1: the receiver stays on the stack
    {"SEND",                         {{-1, 123, 104, 106}},   send,                   kPlain,  1},
    {"END_SEND",                     {{-1, 5, 12, 10}},       end_send},
    {"CLEANUP_THROW",                {{-1, 55, 8, 7}},        cleanup_throw},
    {"GET_YIELD_FROM_ITER",          {{69, 69, 21, 19}},      get_yield_from_iter},
    {"GET_AWAITABLE",                {{131, 131, 73, 71}},    get_awaitable},
    {"GET_AITER",                    {{50, 50, 16, 14}},      get_aiter},
    {"GET_ANEXT",                    {{51, 51, 18, 15}},      get_anext},
    {"END_ASYNC_FOR",                {{54, 54, 10, 68}},      end_async_for},
};
// clang-format on

}  // namespace op

// A comparison that is also a test is two instructions for us, since either may stop: the second stands where the first
// has its inline cache, and CPython never sees it.
static constexpr int kTestsBit = 16;
static constexpr OpcodeRow kTestOfComparison = {"TO_BOOL", {{kAbsent, kAbsent, kAbsent, kAbsent}}, op::to_bool};

static constexpr OpcodeRow kUnknown = {"UNKNOWN", {{kAbsent, kAbsent, kAbsent, kAbsent}}, op::hand_over};

static constexpr std::array<const OpcodeRow*, 256> rows_by_number(int column) {
  std::array<const OpcodeRow*, 256> rows{};
  for (auto& row : rows) row = &kUnknown;
  if (column < 0) return rows;
  for (const OpcodeRow& row : op::kRows)
    if (row.number[column] != kAbsent) rows[row.number[column]] = &row;
  return rows;
}

static constexpr std::array<const OpcodeRow*, 256> kByNumber = rows_by_number(kVersionColumn);

static constexpr int kCache = 0;  // inline caches follow their instruction; code_text() shows them empty

const OpcodeRow& opcode_row(int number) { return *kByNumber[number]; }

const OpcodeRow* opcode_rows(int* count) {
  *count = static_cast<int>(std::size(op::kRows));
  return op::kRows;
}

// EXTENDED_ARG widens the argument of what follows; KW_NAMES keeps its names in a C variable of CPython's eval loop
// until CALL; PRECALL only prepares CALL. None of them may be separated from its instruction.
static Instruction decode_at(const CodeText& text, int index) {
  int argument = 0;
  int keywords = -1;
  for (;;) {
    const OpcodeRow& row = *kByNumber[text.units[2 * index]];
    argument = argument << 8 | text.units[2 * index + 1];
    int after = index + 1;
    while (after < text.count && text.units[2 * after] == kCache) ++after;
    if (row.flags & kTests && argument & kTestsBit) return {&row, argument, index, index + 1, keywords};
    if (!(row.flags & kPrefix) || after >= text.count) return {&row, argument, index, after, keywords};
    if (row.flags & kNamesKeywords) keywords = argument;
    if (!(row.flags & kWidens)) argument = 0;
    index = after;
  }
}

void decode(const CodeText& text, Instruction* instructions) {
  for (int i = 0; i < text.count; ++i) {
    const Instruction* before = i > 0 ? &instructions[i - 1] : nullptr;
    if (before != nullptr && before->at == i - 1 && before->row->flags & kTests && before->after == i) {
      int after = i + 1;
      while (after < text.count && text.units[2 * after] == kCache) ++after;
      instructions[i] = {&kTestOfComparison, 0, i - 1, after, -1};
    } else {
      instructions[i] = decode_at(text, i);
    }
  }
}

}  // namespace magneto::evaluator
