// The loop language as text:
//
//   loop {
//     in x: f32[s0, 768]
//     in ix: i64[s0]
//     temp mean: f32[s0]
//     out y: f32[s0, 768]
//     mean[i] = sum(j < 768, x[i, j]) / 768.0
//     scatter y over i < s0, j < 768: [checked(ix[i], s0), j] += x[i, j] - mean[i]
//     kernel shift(i < s0) threads 128 {
//       row x0: f32[768]
//       phase j < 768, vector 16, unroll 2 {
//         let v = x[i, j]
//         store x0[j] = v
//         sum s = v
//       }
//       let m = s / 768.0
//       phase j in 0 .. 768, vector 16 { ...
//     }
//   }
//
// Terms have Python's precedence. A number without a suffix is f32 when it has a point or an exponent (or is inf, nan),
// else i64; other types are written after it: 1.0:f64, 3:i32. Casts are functions named after the type: f32(x).
// A range starts at 0 and is written with <, or says where it starts. What a loop does not mention is 1 (vector,
// unroll), equal to unroll (accumulators), scalar (tail).
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "loop/text.h"
#include "types/expr.h"

namespace magneto::loop {

namespace {

std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made;
}

using base::concat;

constexpr int kComparison = 1, kAboveComparison = 2, kSum = 6, kProduct = 7, kUnary = 8, kWord = 9;

std::string_view sign_of(const std::optional<Fold>& fold) {
  if (!fold) return "=";
  switch (*fold) {
    case Fold::kSum:
      return "+=";
    case Fold::kProd:
      return "prod=";
    case Fold::kMax:
      return "max=";
    case Fold::kMin:
      return "min=";
    default:
      return "?=";
  }
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  // ---- terms
  // ---------------------------------------------------------------------------------------------------------

  std::string term(TermId id, int least = 0) const {
    const Term& t = program_.term(id);
    const OpTraits& op = traits(t.op);
    switch (t.op) {
      case Op::kConstant:
        return number(t, least);
      case Op::kSize:
        return size(program_.size_of(t), least);
      case Op::kAxis:
        return program_.axis_name(AxisId(t.id));
      case Op::kLocal:
        return program_.local_of(LocalId(t.id)).name;
      case Op::kLoad:
        return element(BufferId(t.id), t.operands, t.operands.size());
      case Op::kGuarded: {
        const size_t rank = t.operands.size() - 2;
        return concat("load(", element(BufferId(t.id), t.operands, rank), ", ", term(t.operands[rank]), ", ",
                      term(t.operands[rank + 1]), ")");
      }
      case Op::kReduce: {
        std::string text = concat(name(t.fold), "(");
        for (const Range& r : program_.ranges_of(t)) text += concat(range(r), ", ");
        return concat(text, term(t.operands[0], kAboveComparison), ")");
      }
      case Op::kCast:
        return concat(types::name(t.dtype), "(", term(t.operands[0]), ")");
      case Op::kBits:
        return concat("bits_", types::name(t.dtype), "(", term(t.operands[0]), ")");
      default:
        break;
    }
    if (op.precedence == 0) {
      std::string text = concat(op.name, "(");
      for (size_t i = 0; i < t.operands.size(); ++i) text += concat(i ? ", " : "", term(t.operands[i]));
      return text + ")";
    }
    std::string text;
    if (op.operands == 1) {  // a minus before a number would be read as a part of it
      const bool literal = program_.term(t.operands[0]).op == Op::kConstant;
      text = concat(op.name, literal ? concat("(", term(t.operands[0]), ")") : term(t.operands[0], kUnary));
    } else {
      const int left = op.precedence == kComparison ? kAboveComparison : op.precedence;
      text = concat(term(t.operands[0], left), " ", op.name, " ", term(t.operands[1], op.precedence + 1));
    }
    return op.precedence < least ? concat("(", text, ")") : text;
  }

  std::string range(const Range& r) const {
    const std::string& axis = program_.axis_name(r.axis);
    const auto begin = program_.as_size(r.begin);
    if (begin && *begin == types::Expr(0)) return concat(axis, " < ", term(r.end, kAboveComparison));
    return concat(axis, " in ", term(r.begin, kAboveComparison), " .. ", term(r.end, kAboveComparison));
  }

  // ---- equations
  // -----------------------------------------------------------------------------------------------------

  std::string equation(const Equation& e) const {
    switch (e.kind) {
      case Equation::Kind::kMap:
        return concat(target(e), " = ", term(e.value));
      case Equation::Kind::kScatter: {
        std::string text = concat("scatter ", buffer(e.target), e.base.valid() ? concat(" from ", buffer(e.base)) : "",
                                  " over ", ranges(e.over), ": [");
        for (size_t i = 0; i < e.index.size(); ++i) text += concat(i ? ", " : "", term(e.index[i]));
        return concat(text, "] ", sign_of(e.fold), " ", term(e.value));
      }
      case Equation::Kind::kScan:
        return concat("scan ", target(e), " = ", name(*e.fold), " over ", program_.axis_name(e.along), ": ",
                      term(e.value));
      case Equation::Kind::kSort:
        return concat("sort ", target(e), e.positions.valid() ? concat(", ", buffer(e.positions)) : "", " over ",
                      program_.axis_name(e.along), e.descending ? " descending: " : ": ", term(e.value));
      case Equation::Kind::kExtern:
        return concat("extern \"", e.callee, "\" (", names(e.reads), ") -> (", names(e.writes), ") \"",
                      escaped(e.arguments), "\"", e.stays ? " stays" : "");
    }
    return "";
  }

  // ---- kernels
  // -------------------------------------------------------------------------------------------------------

  void kernel(const Kernel& k, std::string& text, const std::string& indent) const {
    text += concat(indent, "kernel ", k.name, "(", ranges(k.outer), ")");
    if (k.threads != 1) text += concat(" threads ", k.threads);
    text += " {\n";
    for (const BufferId row : k.rows) text += concat(indent, "  row ", declaration(row), "\n");
    for (const Statement& s : k.once) {
      text += concat(indent, "  once ");
      statement(s, text, "");
    }
    for (const Statement& s : k.body) statement(s, text, indent + "  ");
    text += concat(indent, "}\n");
  }

  std::string declaration(BufferId id) const { return concat(buffer(id), ": ", to_string(program_.buffer(id).type)); }

 private:
  std::string number(const Term& t, int least) const {
    const Number value = program_.number(t);
    std::string text;
    if (t.dtype == Dtype::kBool) return value.whole ? "true" : "false";
    if (types::is_floating(t.dtype)) {
      text = real(value.real, t.dtype);
      if (t.dtype != Dtype::kF32) text += concat(":", types::name(t.dtype));
    } else {
      text = std::to_string(value.whole);
      if (t.dtype != Dtype::kI64) text += concat(":", types::name(t.dtype));
    }
    return text.front() == '-' && least > kUnary ? concat("(", text, ")") : text;
  }

  static std::string real(double value, Dtype dtype) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[40];
    // the shortest text that reads back: of a float fewer digits do
    const auto end = dtype == Dtype::kF64
                         ? std::to_chars(buffer, buffer + sizeof buffer, value).ptr
                         : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
    std::string text(buffer, end);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }

  static std::string size(const types::Expr& e, int least) {
    const std::string text = to_string(e);
    // A sum has a sign between spaces outside all parentheses, a product any other sign outside them.
    int depth = 0, precedence = text.front() == '-' ? kSum : kWord;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '(') ++depth;
      if (text[i] == ')') --depth;
      if (depth > 0) continue;
      if ((text[i] == '+' || text[i] == '-') && i > 0) precedence = kSum;
      if (text[i] == '*' || text[i] == '/' || text[i] == '%') precedence = std::min(precedence, kProduct);
    }
    return precedence < least ? concat("(", text, ")") : text;
  }

  const std::string& buffer(BufferId id) const { return program_.buffer(id).name; }

  std::string element(BufferId id, const std::vector<TermId>& index, size_t rank) const {
    std::string text = concat(buffer(id), "[");
    for (size_t i = 0; i < rank; ++i) text += concat(i ? ", " : "", term(index[i]));
    return text + "]";
  }

  std::string target(const Equation& e) const {
    std::string text = concat(buffer(e.target), "[");
    for (size_t i = 0; i < e.axes.size(); ++i) text += concat(i ? ", " : "", program_.axis_name(e.axes[i]));
    return text + "]";
  }

  std::string ranges(const std::vector<Range>& list) const {
    std::string text;
    for (size_t i = 0; i < list.size(); ++i) text += concat(i ? ", " : "", range(list[i]));
    return text;
  }

  std::string names(const std::vector<BufferId>& list) const {
    std::string text;
    for (size_t i = 0; i < list.size(); ++i) text += concat(i ? ", " : "", buffer(list[i]));
    return text;
  }

  void statement(const Statement& s, std::string& text, const std::string& indent) const {
    text += indent;
    const auto local = [&] { return program_.local_of(s.local).name; };
    switch (s.kind) {
      case Statement::Kind::kLet:
        text += concat("let ", local(), " = ", term(s.value));
        break;
      case Statement::Kind::kScan:
        text += "scan ";
        [[fallthrough]];
      case Statement::Kind::kFold:
        text += concat(name(*s.fold), " ", local(), " = ", term(s.value));
        if (s.position.valid()) text += concat(" at ", term(s.position));
        break;
      case Statement::Kind::kStore:
        text += concat(s.overwrites ? "overwrite " : "store ", element(s.buffer, s.index, s.index.size()), " = ",
                       term(s.value));
        break;
      case Statement::Kind::kUpdate:
        text += concat(s.atomic ? "atomic " : "update ", element(s.buffer, s.index, s.index.size()), " ",
                       sign_of(s.fold), " ", term(s.value));
        break;
      case Statement::Kind::kLoop:
        return loop(s.loop.front(), text, indent);
    }
    text += "\n";
  }

  void loop(const Loop& l, std::string& text, const std::string& indent) const {
    constexpr std::string_view kKinds[] = {"phase ", "lanes ", "each "};
    text += concat(kKinds[static_cast<size_t>(l.kind)], ranges(l.ranges));
    if (l.vector != 1) text += concat(", vector ", l.vector);
    if (l.unroll != 1) text += concat(", unroll ", l.unroll);
    if (l.accumulators != l.unroll) text += concat(", accumulators ", l.accumulators);
    if (l.tail == Loop::Tail::kNone) text += ", tail none";
    text += " {\n";
    for (const Statement& s : l.body) statement(s, text, indent + "  ");
    text += concat(indent, "}\n");
  }

  const Program& program_;
};

}  // namespace

std::string print(const Program& program, TermId term) { return Printer(program).term(term); }
std::string print(const Program& program, const Range& range) { return Printer(program).range(range); }
std::string print(const Program& program, const Equation& equation) { return Printer(program).equation(equation); }

std::string print(const Program& program, const Kernel& kernel) {
  std::string text;
  Printer(program).kernel(kernel, text, "");
  return text;
}

std::string print(const Program& program) {
  const Printer printer(program);
  std::string text = "loop {\n";
  constexpr std::string_view kRoles[] = {"in", "out", "temp"};
  for (size_t i = 0; i < program.buffers(); ++i) {
    const BufferId id(i);
    const Role role = program.buffer(id).role;
    if (program.buffer(id).of.valid())
      text += concat("  flat_view ", program.buffer(program.buffer(id).of).name, "\n");
    else if (role != Role::kRow)
      text += concat("  ", kRoles[static_cast<size_t>(role)], " ", printer.declaration(id), "\n");
  }
  in_order(
      program, [&](const Equation& e) { text += concat(e.joined ? "  with " : "  ", printer.equation(e), "\n"); },
      [&](const Kernel& k) { printer.kernel(k, text, "  "); });
  return text + "}\n";
}

}  // namespace magneto::loop
