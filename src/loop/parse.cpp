// Reads what print.cpp writes. Terms are read by precedence climbing; names mean, in this order, a symbol (s0), a value
// or row of the kernel, an axis. Whether an axis is bound where it is used is the verifier's business.
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "loop/text.h"
#include "loop/text_internal.h"

namespace magneto::loop {

namespace {

using base::concat;

constexpr int kAboveComparison = 2, kUnary = 8;

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Program read() {
    in_.expect("loop");
    in_.expect("{");
    while (!in_.take("}")) top();
    in_.expect_end();
    return std::move(program_);
  }

 private:
  // ---- the program -------------------------------------------------------------------------------------------------

  void top() {
    if (in_.take_word("in")) return void(declare(Role::kIn));
    if (in_.take_word("out")) return void(declare(Role::kOut));
    if (in_.take_word("temp")) return void(declare(Role::kTemp));
    if (in_.take_word("flat_view")) return view();
    if (in_.take_word("kernel")) return kernel();
    equation();
  }

  BufferId declare(Role role) {
    std::string name(in_.name("the name of a buffer"));
    in_.expect(":");
    auto type = types::take_tensor_type(in_.rest());
    if (!type) in_.fail("a tensor type");
    auto& names = role == Role::kRow ? row_of_ : buffer_of_;
    const BufferId id = program_.add_buffer(name, std::move(*type), role);
    if (!names.emplace(name, id).second) in_.fail(concat(name, " to be declared once"));
    return id;
  }

  void view() {
    const BufferId made = program_.flat_view(buffer());
    if (!buffer_of_.emplace(program_.buffer(made).name, made).second) in_.fail("a view that is new");
  }

  BufferId buffer() {
    const std::string name(in_.name("the name of a buffer"));
    if (const auto at = row_of_.find(name); at != row_of_.end()) return at->second;
    if (const auto at = buffer_of_.find(name); at != buffer_of_.end()) return at->second;
    in_.fail(concat(name, " to be declared"));
  }

  AxisId axis() { return program_.axis(in_.name("the name of an axis")); }

  Range range() {
    Range made;
    made.axis = axis();
    if (in_.take_word("in")) {
      made.begin = term(kAboveComparison);
      in_.expect("..");
    } else {
      in_.expect("<");
      made.begin = program_.constant_int(0, Dtype::kI64);
    }
    made.end = term(kAboveComparison);
    return made;
  }

  std::vector<Range> ranges() {
    std::vector<Range> list;
    do list.push_back(range());
    while (in_.take(","));
    return list;
  }

  std::optional<Fold> assignment() {
    if (in_.take("+=")) return Fold::kSum;
    if (in_.take("prod=")) return Fold::kProd;
    if (in_.take("max=")) return Fold::kMax;
    if (in_.take("min=")) return Fold::kMin;
    in_.expect("=");
    return std::nullopt;
  }

  Fold fold() {
    const auto found = find_fold(in_.name("a fold: sum, prod, max, min, argmax, argmin, any, all"));
    if (!found) in_.fail("a fold: sum, prod, max, min, argmax, argmin, any, all");
    return *found;
  }

  // ---- equations ---------------------------------------------------------------------------------------------------

  void target(Equation& e) {
    e.target = buffer();
    in_.expect("[");
    if (in_.take("]")) return;
    do e.axes.push_back(axis());
    while (in_.take(","));
    in_.expect("]");
  }

  std::vector<BufferId> buffers() {
    std::vector<BufferId> list;
    in_.expect("(");
    if (in_.take(")")) return list;
    do list.push_back(buffer());
    while (in_.take(","));
    in_.expect(")");
    return list;
  }

  void equation() {
    Equation e;
    e.joined = in_.take_word("with");
    if (in_.take_word("scatter")) {
      e.kind = Equation::Kind::kScatter;
      e.target = buffer();
      if (in_.take_word("from")) e.base = buffer();
      in_.expect("over");
      e.over = ranges();
      in_.expect(":");
      in_.expect("[");
      e.index = terms("]");
      e.fold = assignment();
      e.value = term();
    } else if (in_.take_word("scan")) {
      e.kind = Equation::Kind::kScan;
      target(e);
      in_.expect("=");
      e.fold = fold();
      in_.expect("over");
      e.along = axis();
      in_.expect(":");
      e.value = term();
    } else if (in_.take_word("sort")) {
      e.kind = Equation::Kind::kSort;
      target(e);
      if (in_.take(",")) e.positions = buffer();
      in_.expect("over");
      e.along = axis();
      e.descending = in_.take_word("descending");
      in_.expect(":");
      e.value = term();
    } else if (in_.take_word("extern")) {
      e.kind = Equation::Kind::kExtern;
      e.callee = in_.quoted();
      e.reads = buffers();
      in_.expect("->");
      e.writes = buffers();
      e.arguments = in_.quoted();
      e.stays = in_.take_word("stays");
    } else {
      target(e);
      in_.expect("=");
      e.value = term();
    }
    program_.equations.push_back(std::move(e));
  }

  // ---- kernels -----------------------------------------------------------------------------------------------------

  int count() {
    const auto value = in_.digits();
    if (!value || *value == 0 || *value > 1 << 20) in_.fail("a number of 1 or more");
    return static_cast<int>(*value);
  }

  void kernel() {
    Kernel k;
    k.after = program_.equations.size();
    k.name = in_.name("the name of a kernel");
    in_.expect("(");
    if (!in_.take(")")) {
      k.outer = ranges();
      in_.expect(")");
    }
    if (in_.take_word("threads")) k.threads = count();
    in_.expect("{");
    while (in_.take_word("row")) k.rows.push_back(declare(Role::kRow));
    while (in_.take_word("once")) k.once.push_back(statement());
    k.body = body();
    row_of_.clear();
    local_of_.clear();
    program_.kernels.push_back(std::move(k));
  }

  std::vector<Statement> body() {
    std::vector<Statement> list;
    while (!in_.take("}")) list.push_back(statement());
    return list;
  }

  Statement statement() {
    using Kind = Statement::Kind;
    Statement s;
    if (in_.take_word("phase")) return loop(Loop::Kind::kPhase);
    if (in_.take_word("lanes")) return loop(Loop::Kind::kLanes);
    if (in_.take_word("each")) return loop(Loop::Kind::kEach);
    s.overwrites = in_.take_word("overwrite");
    if (s.overwrites || in_.take_word("store") || in_.peek_word("update") || in_.peek_word("atomic")) {
      s.atomic = in_.take_word("atomic");
      s.kind = s.atomic || in_.take_word("update") ? Kind::kUpdate : Kind::kStore;
      s.buffer = buffer();
      in_.expect("[");
      s.index = terms("]");
      if (s.kind == Kind::kUpdate)
        s.fold = assignment();
      else
        in_.expect("=");
      s.value = term();
      return s;
    }
    std::string name;
    if (in_.take_word("let")) {
      name = in_.name("the name of a value");
      in_.expect("=");
      s.value = term();
    } else {
      s.kind = in_.take_word("scan") ? Kind::kScan : Kind::kFold;
      s.fold = fold();
      name = in_.name("the name of a value");
      in_.expect("=");
      s.value = term();
      if (in_.take_word("at")) s.position = term();
    }
    const Dtype element = program_.term(s.value).dtype;
    s.local = program_.add_local(name, s.fold ? result_of(*s.fold, element) : element);
    if (!local_of_.emplace(name, s.local).second) in_.fail(concat(name, " to be named once in its kernel"));
    return s;
  }

  Statement loop(Loop::Kind kind) {
    Loop l;
    l.kind = kind;
    int accumulators = 0;
    do {
      if (in_.take_word("vector"))
        l.vector = count();
      else if (in_.take_word("unroll"))
        l.unroll = count();
      else if (in_.take_word("accumulators"))
        accumulators = count();
      else if (in_.take_word("tail"))
        l.tail = in_.take_word("none") ? Loop::Tail::kNone : (in_.expect("scalar"), Loop::Tail::kScalar);
      else
        l.ranges.push_back(range());
    } while (in_.take(","));
    l.accumulators = accumulators ? accumulators : l.unroll;
    in_.expect("{");
    l.body = body();
    Statement s;
    s.kind = Statement::Kind::kLoop;
    s.loop.push_back(std::move(l));
    return s;
  }

  // ---- terms -------------------------------------------------------------------------------------------------------

  std::vector<TermId> terms(std::string_view end) {
    std::vector<TermId> list;
    if (in_.take(end)) return list;
    do list.push_back(term());
    while (in_.take(","));
    in_.expect(end);
    return list;
  }

  std::optional<Op> sign(int least) {
    // longer signs first, so that // is not read as /
    constexpr Op kSigns[] = {Op::kFloorDiv, Op::kShl, Op::kShr, Op::kEq,  Op::kNe,  Op::kLe,  Op::kGe, Op::kLt, Op::kGt,
                             Op::kAdd,      Op::kSub, Op::kMul, Op::kDiv, Op::kMod, Op::kAnd, Op::kOr, Op::kXor};
    if (in_.peek("->") || in_.peek("+=")) return std::nullopt;
    for (const Op op : kSigns) {
      if (!in_.peek(traits(op).name)) continue;
      if (traits(op).precedence < least) return std::nullopt;
      in_.expect(traits(op).name);
      return op;
    }
    return std::nullopt;
  }

  TermId term(int least = 0) {
    if (++depth_ > 400) in_.fail("a term that is nested less deeply");
    TermId left = factor();
    while (const auto op = sign(least)) left = program_.binary(*op, left, term(traits(*op).precedence + 1));
    --depth_;
    return left;
  }

  TermId factor() {
    if (in_.peek("-")) {
      if (in_.peek_number()) return literal();
      in_.expect("-");
      return program_.unary(Op::kNeg, term(kUnary));
    }
    if (in_.take("~")) return program_.unary(Op::kNot, term(kUnary));
    if (in_.take("(")) {
      const TermId inner = term();
      in_.expect(")");
      return inner;
    }
    if (in_.peek_number()) return literal();
    const std::string name(in_.name("a term"));
    if (in_.take_near("(")) return call(name);
    if (in_.peek_near("[")) return load(name);
    if (name == "true" || name == "false") return program_.boolean(name == "true");
    if (const auto at = local_of_.find(name); at != local_of_.end()) return program_.local(at->second);
    if (name.size() > 1 && name[0] == 's' && name.find_first_not_of("0123456789", 1) == std::string::npos)
      return program_.size(*types::parse_expr(name));
    return program_.axis_value(program_.axis(name));
  }

  TermId literal() {
    const Literal read = in_.literal();
    Dtype dtype = read.is_real ? Dtype::kF32 : Dtype::kI64;
    if (in_.peek_suffix()) {
      in_.expect(":");
      const auto found = types::parse_dtype(in_.name("an element type"));
      if (!found || types::is_floating(*found) != read.is_real) in_.fail("an element type that fits the number");
      dtype = *found;
    }
    return read.is_real ? program_.constant(read.real, dtype) : program_.constant_int(read.whole, dtype);
  }

  TermId load(const std::string& name) {
    BufferId id;
    if (const auto row = row_of_.find(name); row != row_of_.end())
      id = row->second;
    else if (const auto at = buffer_of_.find(name); at != buffer_of_.end())
      id = at->second;
    else
      in_.fail(concat(name, " to be declared"));
    in_.expect("[");
    return program_.load(id, terms("]"));
  }

  TermId call(const std::string& name) {
    if (const auto dtype = types::parse_dtype(name)) {
      const TermId a = term();
      in_.expect(")");
      return program_.cast(*dtype, a);
    }
    if (name.starts_with("bits_")) {
      const auto dtype = types::parse_dtype(std::string_view(name).substr(5));
      if (!dtype) in_.fail("an element type after bits_");
      const TermId a = term();
      in_.expect(")");
      return program_.bits(*dtype, a);
    }
    if (name == "load") {
      const BufferId id = buffer();
      in_.expect("[");
      std::vector<TermId> index = terms("]");
      in_.expect(",");
      const TermId condition = term();
      in_.expect(",");
      const TermId otherwise = term();
      in_.expect(")");
      return program_.guarded(id, std::move(index), condition, otherwise);
    }
    if (const auto fold = find_fold(name); fold && in_.peek_range()) {
      std::vector<Range> over;
      do {
        over.push_back(range());
        in_.expect(",");
      } while (in_.peek_range());
      const TermId body = term();
      in_.expect(")");
      return program_.reduce(*fold, over, body);
    }
    const std::vector<TermId> list = terms(")");
    const auto op = find_function(name, static_cast<int>(list.size()));
    if (list.size() > 2 && (name == "min" || name == "max")) {  // sizes: max(s0, s1, 3)
      TermId folded = list[0];
      for (size_t i = 1; i < list.size(); ++i) folded = program_.binary(*find_function(name, 2), folded, list[i]);
      return folded;
    }
    if (!op) in_.fail(concat("a function; '", name, "' with ", list.size(), " operands is none"));
    if (list.size() == 1) return program_.unary(*op, list[0]);
    if (list.size() == 2) return program_.binary(*op, list[0], list[1]);
    return *op == Op::kWhere ? program_.where(list[0], list[1], list[2]) : program_.fma(list[0], list[1], list[2]);
  }

  Words in_;
  Program program_;
  std::map<std::string, BufferId> buffer_of_, row_of_;
  std::map<std::string, LocalId> local_of_;
  int depth_ = 0;
};

}  // namespace

Program parse(std::string_view text) { return Parser(text).read(); }

}  // namespace magneto::loop
