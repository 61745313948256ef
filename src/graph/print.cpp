// The graph language as text:
//
//   graph {
//     in %0: f32[s0, 3]                                       # x
//     const %4: i64[]
//     where s0 <= 64
//     %2: f32[s0, 3] = aten::mul.Tensor(%0, 2.0)              # model.py:12 in forward
//     %2 = aten::relu_(%2) !no_grad
//     %5: f32[s0], _ = aten::pair(%2, [1, s0], "mean", f32, cuda:0, none)
//     %6: f32[s0] = aten::attention(%5) gives [3, 6]
//     out %2, %5
//   }
//
// A value's type stands where it is made; an operator that returns a tensor that was there before lists it without. `_`
// is an undefined result, `undef` an undefined tensor among arguments and outputs. Each kind of argument looks
// different: integers and their expressions have no point, floats always have one, an exponent, or are inf or nan;
// empty lists of other things than integers name their kind (tensors[], floats[], bools[]). Numbers that an operator
// returns beside tensors follow it. What follows # is for readers: the name of an input, the place of an operator.
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "graph/text.h"
#include "graph/text_internal.h"

namespace magneto::graph {

std::string quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      base::append(quoted, '\\');
      base::append(quoted, c);
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x";
      base::append(quoted, kHex[byte >> 4]);
      base::append(quoted, kHex[byte & 15]);
    } else {
      base::append(quoted, c);
    }
  }
  base::append(quoted, '"');
  return quoted;
}

namespace {

std::string print_value(ValueId id, std::string_view undefined) {
  return id.valid() ? base::concat('%', id.index()) : std::string(undefined);
}

std::string print_double(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class List, class Print>
std::string print_list(const List& list, std::string_view kind, const Print& print_item) {
  if (list.empty()) return base::concat(kind, "[]");
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) text += ", ";
    text += print_item(list[i]);
  }
  return base::concat(text, ']');
}

struct ArgPrinter {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(ValueId id) const { return print_value(id, "undef"); }
  std::string operator()(const std::vector<ValueId>& list) const {
    return print_list(list, "tensors", [](ValueId id) { return print_value(id, "none"); });
  }
  std::string operator()(const types::Expr& e) const { return to_string(e); }
  std::string operator()(const types::Sizes& list) const {
    return print_list(list, "", [](const types::Expr& e) { return to_string(e); });
  }
  std::string operator()(double number) const { return print_double(number); }
  std::string operator()(const std::vector<double>& list) const { return print_list(list, "floats", print_double); }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(const std::vector<bool>& list) const {
    return print_list(list, "bools", [](bool truth) { return std::string(truth ? "true" : "false"); });
  }
  std::string operator()(std::complex<double> number) const {
    return base::concat("complex(", print_double(number.real()), ", ", print_double(number.imag()), ")");
  }
  std::string operator()(Real real) const { return base::concat("real(s", real.symbol, ")"); }
  std::string operator()(const std::string& text) const { return quote(text); }
  std::string operator()(types::Dtype dtype) const { return std::string(name(dtype)); }
  std::string operator()(types::Device device) const { return to_string(device); }
  std::string operator()(types::Layout layout) const { return std::string(name(layout)); }
  std::string operator()(types::MemoryFormat format) const { return std::string(name(format)); }
};

bool needs_quotes(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.front() == '"' || text.back() == ' ') return true;
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return true;
  return false;
}

std::string print_name(std::string_view text) {
  if (text.empty()) return "";
  return needs_quotes(text) ? quote(text) : std::string(text);
}

std::string print_place(const Place& place) {
  if (place == Place{}) return "";
  const bool plain = !needs_quotes(place.file) && place.file.find(" in ") == std::string::npos;
  std::string text = base::concat(plain ? place.file : quote(place.file), ':', place.line);
  if (!place.function.empty()) {
    text += " in ";
    text += needs_quotes(place.function) || place.function.find(' ') != std::string::npos ? quote(place.function)
                                                                                          : place.function;
  }
  return text;
}

void add_line(std::string& text, std::string line, std::string_view comment) {
  constexpr size_t kCommentColumn = 60;
  line.insert(0, "  ");
  if (!comment.empty()) {
    line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
    line += "# ";
    line += comment;
  }
  text += line;
  text += '\n';
}

std::string print_node(const Graph& graph, size_t index) {
  const Node& node = graph.nodes()[index];
  std::string line;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (i) line += ", ";
    line += print_value(id, "_");
    if (id.valid() && id.index() < graph.values().size() && graph.value(id).maker == NodeId(index)) {
      line += ": ";
      line += to_string(graph.value(id).type);
    }
  }
  if (!node.outputs.empty()) line += " = ";
  line += node.op;
  line += '(';
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (i) line += ", ";
    line += print(node.args[i]);
  }
  line += ')';
  if (!node.numbers.empty())
    line += base::concat(" gives ", print_list(node.numbers, "", [](int64_t n) { return std::to_string(n); }));
  if (!node.grad) line += " !no_grad";
  if (node.checkpoint) line += base::concat(" !checkpoint(", node.checkpoint, ")");
  return line;
}

}  // namespace

std::string print(const Arg& arg) { return std::visit(ArgPrinter(), arg); }

std::string print(const Graph& graph) {
  std::string text = "graph {\n";
  for (const ValueId id : graph.inputs())
    add_line(text, base::concat("in %", id.index(), ": ", to_string(graph.value(id).type)),
             print_name(graph.value(id).name));
  for (const ValueId id : graph.constants())
    add_line(text, base::concat("const %", id.index(), ": ", to_string(graph.value(id).type)),
             print_name(graph.value(id).name));
  for (const types::Condition& condition : graph.conditions)
    add_line(text, base::concat("where ", to_string(condition)), "");
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const uint32_t place = graph.nodes()[i].place;
    add_line(text, print_node(graph, i), place < graph.places().size() ? print_place(graph.places()[place]) : "");
  }
  for (const Store& store : graph.stores)
    add_line(text, base::concat("store %", store.value.index(), " -> %", store.into.index()), "");
  if (!graph.outputs.empty()) {
    std::string line = "out ";
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      if (i) line += ", ";
      line += print_value(graph.outputs[i], "undef");
    }
    add_line(text, std::move(line), "");
  }
  return base::concat(text, "}\n");
}

}  // namespace magneto::graph
