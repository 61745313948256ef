// Reads what print.cpp writes, line by line. Values keep their numbers: the lines are read first, then the values are
// added in the order of their numbers, so that a number nobody uses leaves an unused value behind.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "graph/text.h"

namespace magneto::graph {

namespace {

struct Definition {
  enum class Kind { kInput, kConstant, kResult };
  Kind kind = Kind::kResult;
  types::TensorType type;
  std::string name;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph read() {
    bool opened = false, closed = false;
    while (next_line()) {
      skip();
      if (at_end()) continue;
      if (!opened) {
        expect("graph");
        expect("{");
        opened = true;
      } else if (take("}")) {
        closed = true;
        skip();
        expect_end();
        break;
      } else {
        statement();
      }
    }
    if (!opened) fail("'graph {'");
    if (!closed) fail("'}'");
    while (next_line()) {
      skip();
      if (!at_end()) fail("nothing after '}'");
    }
    return build();
  }

  std::vector<Arg> read_arguments() {
    next_line();
    std::vector<Arg> list = arguments();
    expect_end();
    return list;
  }

 private:
  // ---- lines and words ---------------------------------------------------------------------------------------------

  bool next_line() {
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
    return true;
  }
  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view found = line_.substr(0, 40);
    throw base::Fault(base::concat("graph text, line ", number_, ": found '", found, "', expected ", expected));
  }
  void skip() {
    while (!line_.empty() && (line_.front() == ' ' || line_.front() == '\t')) line_.remove_prefix(1);
  }
  bool at_end() const { return line_.empty() || line_.front() == '#'; }
  void expect_end() {
    skip();
    if (!at_end()) fail("the end of the line");
  }
  bool take(std::string_view word) {
    if (line_.substr(0, word.size()) != word) return false;
    line_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    skip();
    if (!take(word)) fail(base::concat('\'', word, '\''));
  }
  std::string_view word(std::string_view signs) {  // letters, digits and `signs` at the head of the line, not taken
    size_t n = 0;
    while (n < line_.size() && (std::isalnum(static_cast<unsigned char>(line_[n])) || line_[n] == '_' ||
                                signs.find(line_[n]) != std::string_view::npos))
      ++n;
    return line_.substr(0, n);
  }
  size_t index() {
    size_t value = 0;
    const auto read = std::from_chars(line_.data(), line_.data() + line_.size(), value);
    if (read.ec != std::errc() || value > 100'000'000) fail("the number of a value");
    line_.remove_prefix(static_cast<size_t>(read.ptr - line_.data()));
    return value;
  }
  ValueId value() {
    expect("%");
    const ValueId id(index());
    most_ = std::max(most_, id.index() + 1);
    return id;
  }
  types::TensorType type() {
    skip();
    auto read = types::take_tensor_type(line_);
    if (!read) fail("a tensor type");
    return std::move(*read);
  }
  std::string unquote() {
    std::string text;
    if (!take("\"")) fail("'\"'");
    while (true) {
      if (line_.empty()) fail("a closing '\"'");
      const char c = line_.front();
      line_.remove_prefix(1);
      if (c == '"') return text;
      if (c != '\\') {
        text += c;
      } else if (take("n")) {
        text += '\n';
      } else if (take("x")) {
        unsigned byte = 0;
        const auto read = std::from_chars(line_.data(), line_.data() + std::min<size_t>(2, line_.size()), byte, 16);
        if (read.ec != std::errc() || read.ptr != line_.data() + 2) fail("two hexadecimal digits");
        line_.remove_prefix(2);
        text += static_cast<char>(byte);
      } else if (!line_.empty() && (line_.front() == '"' || line_.front() == '\\')) {
        text += line_.front();
        line_.remove_prefix(1);
      } else {
        fail("an escape: \\\" \\\\ \\n \\xNN");
      }
    }
  }

  // ---- statements --------------------------------------------------------------------------------------------------

  void statement() {
    if (take("in ")) return definition(Definition::Kind::kInput);
    if (take("const ")) return definition(Definition::Kind::kConstant);
    if (take("where ")) return condition();
    if (take("store ")) {
      const ValueId from = value();
      expect("->");
      stores_.push_back({from, value()});
      return expect_end();
    }
    if (take("out ")) {
      do {
        skip();
        outputs_.push_back(take("undef") ? ValueId() : value());
        skip();
      } while (take(","));
      return expect_end();
    }
    node();
  }

  void define(ValueId id, Definition definition) {
    if (!defined_.emplace(id.index(), std::move(definition)).second)
      fail(base::concat("%", id.index(), " to be defined once"));
  }

  void definition(Definition::Kind kind) {
    const ValueId id = value();
    size_t& last = kind == Definition::Kind::kInput ? last_input_ : last_constant_;
    if (id.index() < last) fail("inputs and constants in the order of their numbers");
    last = id.index();
    expect(":");
    Definition made{kind, type(), ""};
    expect_end();
    if (take("#")) {
      skip();
      made.name = !line_.empty() && line_.front() == '"' ? unquote() : std::string(line_);
    }
    define(id, std::move(made));
  }

  types::Expr expression() {
    auto read = types::take_expr(line_);
    if (!read) fail("an integer expression");
    return std::move(*read);
  }

  void condition() {
    types::Condition made;
    made.left = expression();
    skip();
    if (take("=="))
      made.relation = types::Relation::kEq;
    else if (take("!="))
      made.relation = types::Relation::kNe;
    else if (take("<="))
      made.relation = types::Relation::kLe;
    else if (take("<"))
      made.relation = types::Relation::kLt;
    else
      fail("==, !=, <= or <");
    made.right = expression();
    expect_end();
    conditions_.push_back(std::move(made));
  }

  void node() {
    Node made;
    if (line_.front() == '%' || line_.front() == '_') {
      do {
        skip();
        if (take("_")) {
          made.outputs.emplace_back();
        } else {
          made.outputs.push_back(value());
          skip();
          if (take(":")) define(made.outputs.back(), {Definition::Kind::kResult, type(), ""});
        }
        skip();
      } while (take(","));
      expect("=");
      skip();
    }
    const std::string_view op = word(":.");
    if (op.empty()) fail("an operator");
    made.op = op;
    line_.remove_prefix(op.size());
    expect("(");
    made.args = arguments();
    expect(")");
    skip();
    if (take("gives")) made.numbers = numbers();
    skip();
    made.grad = !take("!no_grad");
    skip();
    if (take("!checkpoint(")) {
      made.checkpoint = static_cast<uint32_t>(expression().value_or(0));
      expect(")");
    }
    expect_end();
    nodes_.push_back(std::move(made));
    places_.push_back(place());
  }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> list;
    expect("[");
    do {
      const types::Expr number = expression();
      if (!number.is_constant()) fail("a number");
      list.push_back(number.value_or(0));
      skip();
    } while (take(","));
    expect("]");
    return list;
  }

  Place place() {
    if (!take("#")) return {};
    skip();
    Place made;
    if (!line_.empty() && line_.front() == '"') {
      made.file = unquote();
    } else {
      std::string_view head = line_.substr(0, line_.rfind(" in "));
      if (const size_t quoted = line_.find(" in \""); quoted != std::string_view::npos) head = line_.substr(0, quoted);
      const size_t colon = head.rfind(':');
      if (colon == std::string_view::npos) return {};  // a remark
      made.file = head.substr(0, colon);
      line_.remove_prefix(colon);
    }
    if (!take(":")) return {};
    const auto read = std::from_chars(line_.data(), line_.data() + line_.size(), made.line);
    if (read.ec != std::errc()) return {};
    line_.remove_prefix(static_cast<size_t>(read.ptr - line_.data()));
    if (line_.empty()) return made;
    if (!take(" in ")) return {};
    made.function = !line_.empty() && line_.front() == '"' ? unquote() : std::string(line_);
    return made;
  }

  // ---- arguments ---------------------------------------------------------------------------------------------------

  std::optional<double> take_double() {  // only what is no integer
    std::string_view rest = line_;
    const bool negative = !rest.empty() && rest.front() == '-';
    if (negative) rest.remove_prefix(1);
    const auto special = [&](std::string_view name, double number) -> std::optional<double> {
      if (rest.substr(0, name.size()) != name) return std::nullopt;
      line_ = rest.substr(name.size());
      return negative ? -number : number;
    };
    if (auto number = special("inf", std::numeric_limits<double>::infinity())) return number;
    if (auto number = special("nan", std::numeric_limits<double>::quiet_NaN())) return number;
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits == 0 || digits == rest.size() || (rest[digits] != '.' && rest[digits] != 'e')) return std::nullopt;
    double number = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (read.ec != std::errc()) fail("a floating point number");
    line_ = rest.substr(static_cast<size_t>(read.ptr - rest.data()));
    return negative ? -number : number;
  }

  double expect_double() {
    skip();
    const auto number = take_double();
    if (!number) fail("a floating point number");
    return *number;
  }

  std::vector<Arg> arguments() {
    std::vector<Arg> list;
    skip();
    if (line_.empty() || line_.front() == ')') return list;
    do {
      list.push_back(argument());
      skip();
    } while (take(","));
    return list;
  }

  Arg argument() {
    skip();
    if (line_.empty()) fail("an argument");
    if (line_.front() == '%') return value();
    if (line_.front() == '"') return unquote();
    if (take("[")) return list();
    if (const auto number = take_double()) return *number;
    if (take("complex(")) {
      const double real = expect_double();
      expect(",");
      const double imaginary = expect_double();
      expect(")");
      return std::complex<double>(real, imaginary);
    }
    if (take("real(")) {
      std::vector<uint32_t> symbol;
      const types::Expr bits = expression();
      bits.collect_symbols(symbol);
      if (symbol.size() != 1 || bits != types::Expr::symbol(symbol[0])) fail("a symbol");
      expect(")");
      return Real{symbol[0]};
    }
    const std::string_view name = word(":");
    if (const auto known = named(name)) {
      line_.remove_prefix(name.size());
      return *known;
    }
    if (take("tensors[]")) return std::vector<ValueId>();
    if (take("floats[]")) return std::vector<double>();
    if (take("bools[]")) return std::vector<bool>();
    return expression();
  }

  static std::optional<Arg> named(std::string_view name) {
    if (name == "none") return Arg(std::monostate());
    if (name == "undef") return Arg(ValueId());
    if (name == "true") return Arg(true);
    if (name == "false") return Arg(false);
    if (const auto dtype = types::parse_dtype(name)) return Arg(*dtype);
    if (const auto device = types::parse_device(name)) return Arg(*device);
    if (const auto layout = types::parse_layout(name)) return Arg(*layout);
    if (const auto format = types::parse_memory_format(name)) return Arg(*format);
    return std::nullopt;
  }

  template <class Item, class Read>
  std::vector<Item> items(const Read& read) {
    std::vector<Item> list;
    do {
      skip();
      list.push_back(read());
      skip();
    } while (take(","));
    expect("]");
    return list;
  }

  Arg list() {
    skip();
    if (take("]")) return types::Sizes();
    const std::string_view first = word("");
    if (line_.front() == '%' || first == "none")
      return items<ValueId>([this] { return take("none") ? ValueId() : value(); });
    if (first == "true" || first == "false")
      return items<bool>([this] {
        if (take("true")) return true;
        if (!take("false")) fail("true or false");
        return false;
      });
    const std::string_view here = line_;
    const bool floats = take_double().has_value();
    line_ = here;
    if (floats) return items<double>([this] { return expect_double(); });
    return items<types::Expr>([this] { return expression(); });
  }

  // ---- the graph ---------------------------------------------------------------------------------------------------

  Graph build() {
    Graph graph;
    for (size_t i = 0; i < most_; ++i) {
      const auto found = defined_.find(i);
      if (found == defined_.end()) {
        graph.add_value({});
        continue;
      }
      Definition& definition = found->second;
      switch (definition.kind) {
        case Definition::Kind::kInput:
          graph.add_input(std::move(definition.type), std::move(definition.name));
          break;
        case Definition::Kind::kResult:
          graph.add_value(std::move(definition.type));
          break;
        case Definition::Kind::kConstant: {
          const ValueId id = graph.add_constant(std::move(definition.type));
          graph.value(id).name = std::move(definition.name);
        }
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].place = graph.add_place(std::move(places_[i]));
      graph.add_node(std::move(nodes_[i]));
    }
    graph.outputs = std::move(outputs_);
    graph.stores = std::move(stores_);
    graph.conditions = std::move(conditions_);
    return graph;
  }

  std::string_view text_, line_;
  int number_ = 0;
  size_t most_ = 0;  ///< one more than the highest number of a value
  size_t last_input_ = 0, last_constant_ = 0;
  std::map<size_t, Definition> defined_;
  std::vector<Node> nodes_;
  std::vector<Place> places_;
  std::vector<ValueId> outputs_;
  std::vector<Store> stores_;
  std::vector<types::Condition> conditions_;
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).read(); }
std::vector<Arg> parse_arguments(std::string_view text) { return Parser(text).read_arguments(); }

}  // namespace magneto::graph
