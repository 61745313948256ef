#include "capture/opcodes.h"

namespace magneto::capture {

namespace op {

Step hand_over(Evaluator& e, int) {
  Step step = e.ask();
  return step == Step::kNext ? Step::kHandOver : step;
}

// Numbers are those of CPython's own `opcode` module (a test compares them). CACHE and the instrumented opcodes have no
// row: code_text() shows the code without them.
// clang-format off
static constexpr OpcodeRow kRows[] = {
    // name                          3.11 3.12     handler                  flags    fact
    {"NOP",                          {{9, 9}},      nop,                    kQuiet},
    {"RESUME",                       {{151, 151}},  resume},
    {"EXTENDED_ARG",                 {{144, 144}},  nop,                    kPrefix | kWidens},
    {"KW_NAMES",                     {{172, 172}},  nop,                    kPrefix | kNamesKeywords},
    {"PRECALL",                      {{166, -1}},   nop,                    kPrefix},
    {"POP_TOP",                      {{1, 1}},      pop_top},
    {"PUSH_NULL",                    {{2, 2}},      push_null,              kQuiet},
    {"COPY",                         {{120, 120}},  copy,                   kQuiet},
    {"SWAP",                         {{99, 99}},    swap,                   kQuiet},
    {"LOAD_CONST",                   {{100, 100}},  load_const,             kQuiet},
    {"LOAD_FAST",                    {{124, 124}},  load_fast,              kQuiet},
    {"LOAD_FAST_CHECK",              {{-1, 127}},   load_fast,              kQuiet},
    {"LOAD_CLOSURE",                 {{136, 136}},  load_fast,              kQuiet},
    {"LOAD_FAST_AND_CLEAR",          {{-1, 143}},   load_fast_and_clear,    kQuiet},
    {"STORE_FAST",                   {{125, 125}},  store_fast},
    {"DELETE_FAST",                  {{126, 126}},  delete_fast},
    {"LOAD_ASSERTION_ERROR",         {{74, 74}},    load_assertion_error,   kQuiet},

    {"LOAD_GLOBAL",                  {{116, 116}},  load_global},
    {"STORE_GLOBAL",                 {{97, 97}},    store_global},
    {"DELETE_GLOBAL",                {{98, 98}},    delete_global},
    {"LOAD_NAME",                    {{101, 101}},  load_name},
    {"STORE_NAME",                   {{90, 90}},    store_name},
    {"DELETE_NAME",                  {{91, 91}},    delete_name},
    {"MAKE_CELL",                    {{135, 135}},  make_cell,              kQuiet},
    {"COPY_FREE_VARS",               {{149, 149}},  copy_free_vars,         kQuiet},
    {"LOAD_DEREF",                   {{137, 137}},  load_deref},
    {"STORE_DEREF",                  {{138, 138}},  store_deref},
    {"DELETE_DEREF",                 {{139, 139}},  delete_deref},
    {"LOAD_CLASSDEREF",              {{148, -1}},   load_classderef},
    {"LOAD_LOCALS",                  {{-1, 87}},    load_locals},
    {"LOAD_FROM_DICT_OR_GLOBALS",    {{-1, 175}},   load_from_dict_or_globals},
    {"LOAD_FROM_DICT_OR_DEREF",      {{-1, 176}},   load_from_dict_or_deref},
    {"LOAD_BUILD_CLASS",             {{71, 71}},    load_build_class},
    {"SETUP_ANNOTATIONS",            {{85, 85}},    setup_annotations},
    {"IMPORT_NAME",                  {{108, 108}},  import_name},
    {"IMPORT_FROM",                  {{109, 109}},  import_from},
    {"IMPORT_STAR",                  {{84, -1}},    hand_over},
    {"PRINT_EXPR",                   {{70, -1}},    hand_over},

    {"LOAD_ATTR",                    {{106, -1}},   load_attr},
    {"LOAD_METHOD",                  {{160, -1}},   load_method},
    {"LOAD_ATTR",                    {{-1, 106}},   load_attr_or_method},   // the low bit of the argument: a method is called
    {"LOAD_SUPER_ATTR",              {{-1, 141}},   load_super_attr},
    {"STORE_ATTR",                   {{95, 95}},    store_attr},
    {"DELETE_ATTR",                  {{96, 96}},    delete_attr},
    {"BINARY_SUBSCR",                {{25, 25}},    binary_subscr},
    {"BINARY_SLICE",                 {{-1, 26}},    binary_slice},
    {"STORE_SUBSCR",                 {{60, 60}},    store_subscr},
    {"STORE_SLICE",                  {{-1, 27}},    store_slice},
    {"DELETE_SUBSCR",                {{61, 61}},    delete_subscr},

    {"UNARY_POSITIVE",               {{10, -1}},    unary,                  kPlain,  static_cast<int>(Unary::kPositive)},
    {"UNARY_NEGATIVE",               {{11, 11}},    unary,                  kPlain,  static_cast<int>(Unary::kNegative)},
    {"UNARY_NOT",                    {{12, 12}},    unary,                  kPlain,  static_cast<int>(Unary::kNot)},
    {"UNARY_INVERT",                 {{15, 15}},    unary,                  kPlain,  static_cast<int>(Unary::kInvert)},
    {"BINARY_OP",                    {{122, 122}},  binary_op},
    {"COMPARE_OP",                   {{107, -1}},   compare_op,             kPlain,  0},  // the argument is shifted by this
    {"COMPARE_OP",                   {{-1, 107}},   compare_op,             kPlain,  4},
    {"IS_OP",                        {{117, 117}},  is_op},
    {"CONTAINS_OP",                  {{118, 118}},  contains_op},
    {"FORMAT_VALUE",                 {{155, 155}},  format_value},
    {"GET_LEN",                      {{30, 30}},    get_len},

    {"CALL",                         {{171, 171}},  call},
    {"CALL_FUNCTION_EX",             {{142, 142}},  call_function_ex},
    {"MAKE_FUNCTION",                {{132, 132}},  make_function},
    {"CALL_INTRINSIC_1",             {{-1, 173}},   call_intrinsic_1},
    {"CALL_INTRINSIC_2",             {{-1, 174}},   call_intrinsic_2},

    {"JUMP_FORWARD",                 {{110, 110}},  jump_forward,           kQuiet},
    {"JUMP_BACKWARD",                {{140, 140}},  jump_backward},
    {"JUMP_BACKWARD_NO_INTERRUPT",   {{134, 134}},  jump_backward_no_interrupt, kQuiet},
    {"POP_JUMP_FORWARD_IF_FALSE",    {{114, -1}},   pop_jump_if_false,      kPlain,  1},  // the direction
    {"POP_JUMP_FORWARD_IF_TRUE",     {{115, -1}},   pop_jump_if_true,       kPlain,  1},
    {"POP_JUMP_FORWARD_IF_NONE",     {{129, -1}},   pop_jump_if_none,       kPlain,  1},
    {"POP_JUMP_FORWARD_IF_NOT_NONE", {{128, -1}},   pop_jump_if_not_none,   kPlain,  1},
    {"POP_JUMP_BACKWARD_IF_FALSE",   {{175, -1}},   pop_jump_if_false,      kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_TRUE",    {{176, -1}},   pop_jump_if_true,       kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_NONE",    {{174, -1}},   pop_jump_if_none,       kPlain,  -1},
    {"POP_JUMP_BACKWARD_IF_NOT_NONE", {{173, -1}},  pop_jump_if_not_none,   kPlain,  -1},
    {"POP_JUMP_IF_FALSE",            {{-1, 114}},   pop_jump_if_false,      kPlain,  1},
    {"POP_JUMP_IF_TRUE",             {{-1, 115}},   pop_jump_if_true,       kPlain,  1},
    {"POP_JUMP_IF_NONE",             {{-1, 129}},   pop_jump_if_none,       kPlain,  1},
    {"POP_JUMP_IF_NOT_NONE",         {{-1, 128}},   pop_jump_if_not_none,   kPlain,  1},
    {"JUMP_IF_FALSE_OR_POP",         {{111, -1}},   jump_if_false_or_pop},
    {"JUMP_IF_TRUE_OR_POP",          {{112, -1}},   jump_if_true_or_pop},
    {"GET_ITER",                     {{68, 68}},    get_iter},
    {"FOR_ITER",                     {{93, -1}},    for_iter,               kPlain,  0},  // it jumps over so many END_FOR
    {"FOR_ITER",                     {{-1, 93}},    for_iter,               kPlain,  1},
    {"END_FOR",                      {{-1, 4}},     end_for},
    {"UNPACK_SEQUENCE",              {{92, 92}},    unpack_sequence},
    {"UNPACK_EX",                    {{94, 94}},    unpack_ex},

    {"RAISE_VARARGS",                {{130, 130}},  raise_varargs},
    {"RERAISE",                      {{119, 119}},  reraise},
    {"PUSH_EXC_INFO",                {{35, 35}},    push_exc_info,          kQuiet},
    {"POP_EXCEPT",                   {{89, 89}},    pop_except},
    {"CHECK_EXC_MATCH",              {{36, 36}},    check_exc_match},
    {"CHECK_EG_MATCH",               {{37, 37}},    check_eg_match},
    {"PREP_RERAISE_STAR",            {{88, -1}},    prep_reraise_star},
    {"BEFORE_WITH",                  {{53, 53}},    before_with},
    {"BEFORE_ASYNC_WITH",            {{52, 52}},    before_async_with},
    {"WITH_EXCEPT_START",            {{49, 49}},    with_except_start},

    {"BUILD_TUPLE",                  {{102, 102}},  build_tuple,            kQuiet},
    {"BUILD_LIST",                   {{103, 103}},  build_list,             kQuiet},
    {"BUILD_SET",                    {{104, 104}},  build_set},
    {"BUILD_MAP",                    {{105, 105}},  build_map},
    {"BUILD_CONST_KEY_MAP",          {{156, 156}},  build_const_key_map},
    {"BUILD_STRING",                 {{157, 157}},  build_string,           kQuiet},
    {"BUILD_SLICE",                  {{133, 133}},  build_slice,            kQuiet},
    {"LIST_APPEND",                  {{145, 145}},  list_append},
    {"SET_ADD",                      {{146, 146}},  set_add},
    {"MAP_ADD",                      {{147, 147}},  map_add},
    {"LIST_EXTEND",                  {{162, 162}},  list_extend},
    {"SET_UPDATE",                   {{163, 163}},  set_update},
    {"DICT_UPDATE",                  {{165, 165}},  dict_update},
    {"DICT_MERGE",                   {{164, 164}},  dict_merge},
    {"LIST_TO_TUPLE",                {{82, -1}},    list_to_tuple,          kQuiet},

    {"MATCH_SEQUENCE",               {{32, 32}},    match_sequence},
    {"MATCH_MAPPING",                {{31, 31}},    match_mapping},
    {"MATCH_KEYS",                   {{33, 33}},    match_keys},
    {"MATCH_CLASS",                  {{152, 152}},  match_class},

    {"RETURN_VALUE",                 {{83, 83}},    return_value,           kQuiet},
    {"RETURN_CONST",                 {{-1, 121}},   return_const,           kQuiet},
    {"RETURN_GENERATOR",             {{75, 75}},    return_generator,       kQuiet},
    {"YIELD_VALUE",                  {{86, 150}},   yield_value},
    {"ASYNC_GEN_WRAP",               {{87, -1}},    yield_value},          // it stands directly before YIELD_VALUE
    {"SEND",                         {{123, -1}},   send,                   kPlain,  0},  // 1: the receiver stays on the stack
    {"SEND",                         {{-1, 123}},   send,                   kPlain,  1},
    {"END_SEND",                     {{-1, 5}},     end_send},
    {"CLEANUP_THROW",                {{-1, 55}},    cleanup_throw},
    {"GET_YIELD_FROM_ITER",          {{69, 69}},    get_yield_from_iter},
    {"GET_AWAITABLE",                {{131, 131}},  get_awaitable},
    {"GET_AITER",                    {{50, 50}},    get_aiter},
    {"GET_ANEXT",                    {{51, 51}},    get_anext},
    {"END_ASYNC_FOR",                {{54, 54}},    end_async_for},
};
// clang-format on

}  // namespace op

static constexpr OpcodeRow kUnknown = {"UNKNOWN", {{kAbsent, kAbsent}}, op::hand_over};

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
Instruction decode(const CodeText& text, int index) {
  int argument = 0;
  int keywords = -1;
  for (;;) {
    const OpcodeRow& row = *kByNumber[text.units[2 * index]];
    argument = argument << 8 | text.units[2 * index + 1];
    int after = index + 1;
    while (after < text.count && text.units[2 * after] == kCache) ++after;
    if (!(row.flags & kPrefix) || after >= text.count) return {&row, argument, index, after, keywords};
    if (row.flags & kNamesKeywords) keywords = argument;
    if (!(row.flags & kWidens)) argument = 0;
    index = after;
  }
}

}  // namespace magneto::capture
