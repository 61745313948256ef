#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdio>

#include "aten/convert_internal.h"
#include "aten/operators_internal.h"
#include "aten/script_internal.h"
#include "base/text.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

constexpr const char* kHead = R"(
import pathlib
import sys

import torch

import magneto


def numbers(seed, count, dtype, low=0, high=2):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.view_as_complex(torch.randn(count, 2, generator=generator)).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    return torch.randint(low, high, (count,), generator=generator).to(dtype)


def stored(data, dtype):
    return torch.frombuffer(bytearray(data), dtype=dtype).clone() if data else torch.empty(0, dtype=dtype)


def file(ending):
    return pathlib.Path(__file__).with_suffix(ending).read_bytes()


def tensor(memory, sizes, strides, offset, dtype):
    return torch.empty(0, dtype=dtype, device=memory.device).set_(memory.untyped_storage(), offset, sizes, strides)

)";

constexpr const char* kTail = R"(

def run(f):
    torch.manual_seed(0)
    given = inputs()
    edges = [torch.autograd.graph.get_gradient_edge(x) for x in given if x.requires_grad]
    makers = [x.grad_fn for x in given]
    results = f(*given, *SYMBOLS)
    seen = {f"output {o}": x for o, x in enumerate(results)}
    seen |= {f"input {i} afterwards": x for i, x in enumerate(given)}
    roots = [(x, 1000 + o) for o, x in enumerate(results) if x is not None and x.requires_grad]
    roots += [(x, 2000 + i) for i, x in enumerate(given) if x.requires_grad and x.grad_fn is not makers[i]]
    if CHOICE and len(roots) > 1:
        roots = [roots[(CHOICE - 1) % len(roots)]]
    if roots and edges:
        tangents = [numbers(seed, x.numel(), torch.float32).reshape(x.shape).to(x.device, x.dtype) for x, seed in roots]
        gradients = torch.autograd.grad([x for x, _ in roots], edges, tangents, allow_unused=True)
        seen |= {f"gradient {i}": x for i, x in enumerate(gradients)}
    storages = [x.untyped_storage().data_ptr() if x is not None else 0 for x in (*given, *results)]
    return seen, [storages.index(at) for at in storages]


def layout(name, x):
    if x is None:
        return None
    own = () if name.startswith("gradient") else (x.stride(), x.storage_offset(), x.requires_grad)
    return x.dtype, tuple(x.shape), *own


def close(want, have):
    if not (want.is_floating_point() or want.is_complex()):
        return torch.equal(want, have)
    want, have = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (want, have))
    tolerance = {torch.float64: 2e-13, torch.float32: 1e-5, torch.float16: 4e-3}.get(DTYPE, 3e-2)
    scale = want[torch.isfinite(want)].abs().max().item() if torch.isfinite(want).any() else 0.0
    return torch.allclose(have, want, rtol=0, atol=tolerance * scale, equal_nan=True)


compiled = magneto.compile(program, dynamic=True if SYMBOLS else None)
run(compiled)  # records
(eager, shares), (ours, ours_shares) = run(program), run(compiled)
wrong = [name for name, want in eager.items()
         if layout(name, want) != layout(name, ours[name]) or want is not None and not close(want, ours[name])]
for name in wrong:
    print(f"{name}\n  eager   {eager[name]}\n  magneto {ours[name]}")
if shares != ours_shares:
    print("memory is shared otherwise")
print("differs" if wrong or shares != ours_shares else "agrees")
sys.exit(1 if wrong or shares != ours_shares else 0)
)";

/// As Python's repr.
std::string real(double number) {
  if (std::isnan(number)) return "float(\"nan\")";
  if (std::isinf(number)) return number > 0 ? "float(\"inf\")" : "-float(\"inf\")";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  std::string written = text;
  if (written.find_first_of(".en") == std::string::npos) written += ".0";
  return written;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result + "\"";
}

std::string dtype_name(c10::ScalarType type) { return base::concat("torch.", c10::getDtypeNames(type).first); }

template <class Items, class Print>
std::string joined(const Items& items, const Print& print) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + print(item);
  return text;
}

std::string numbers(c10::IntArrayRef list) {
  return base::concat("(", joined(list, [](int64_t n) { return std::to_string(n); }), list.size() == 1 ? ",)" : ")");
}

std::string format(types::MemoryFormat format) {
  switch (format) {
    case types::MemoryFormat::kContiguous:
      return "torch.contiguous_format";
    case types::MemoryFormat::kPreserve:
      return "torch.preserve_format";
    case types::MemoryFormat::kChannelsLast:
      return "torch.channels_last";
    case types::MemoryFormat::kChannelsLast3d:
      return "torch.channels_last_3d";
  }
  return "None";
}

class Printer {
 public:
  Printer(const Shrunk& shrunk, const std::string& title) : shrunk_(shrunk), at_(shrunk.at), title_(title) {
    const graph::Graph& graph = at_.graph;
    names_.resize(graph.values().size());
    for (size_t i = 0; i < graph.inputs().size(); ++i) names_[graph.inputs()[i].index()] = base::concat("x", i);
    for (size_t c = 0; c < graph.constants().size(); ++c) names_[graph.constants()[c].index()] = base::concat("c", c);
  }

  Script run() {
    text_ = base::concat("\"\"\"", title_, "\n\n", shrunk_.what, "\n");
    if (!shrunk_.pass.empty()) text_ += base::concat("Without the pass ", shrunk_.pass, " nothing differs.\n");
    if (!shrunk_.is_reproduced) text_ += "Only the call itself differed; what is written here may agree.\n";
    text_ += base::concat("\"\"\"\n", kHead, "\ndef inputs():\n");
    memories(at_.inputs, "x", true);
    text_ += base::concat("    return ", tuple(names_of(at_.graph.inputs())), "\n\n\n");
    if (!at_.constants.empty()) {
      text_ += "def constants():\n";
      memories(at_.constants, "c", false);
      text_ += base::concat("    return ", tuple(names_of(at_.graph.constants())), "\n\n\n");
      text_ += base::concat(tuple(names_of(at_.graph.constants())), " = constants()\n\n\n");
    }
    program();
    settings();
    text_ += kTail;
    return {std::move(text_), std::move(files_)};
  }

 private:
  std::vector<std::string> names_of(const std::vector<ValueId>& ids) const {
    std::vector<std::string> names;
    for (const ValueId id : ids) names.push_back(id.valid() ? names_[id.index()] : "None");
    return names;
  }

  static std::string tuple(const std::vector<std::string>& names) {
    return base::concat("(", joined(names, [](const std::string& name) { return name; }),
                        names.size() == 1 ? ",)" : ")");
  }

  // One line for each piece of memory, one for each tensor in it.
  void memories(const std::vector<at::Tensor>& tensors, const char* letter, bool are_inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      size_t first = i;
      for (size_t k = i; k-- > 0;)
        if (tensors[k].storage().is_alias_of(tensor.storage())) first = k;
      const std::string memory = base::concat("memory_", letter, first), name = base::concat(letter, i);
      if (first == i) {
        const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
        const at::Tensor all = at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {count}, {1}).cpu();
        text_ += base::concat("    ", memory, " = ", content(all, i, name, are_inputs && shrunk_.is_seeded[i]));
        if (!tensor.device().is_cpu()) text_ += base::concat(".to(", quoted(tensor.device().str()), ")");
        text_ += "\n";
      }
      text_ += base::concat("    ", name, " = tensor(", memory, ", ", numbers(tensor.sizes()), ", ",
                            numbers(tensor.strides()), ", ", tensor.storage_offset(), ", ",
                            dtype_name(tensor.scalar_type()), ")");
      if (tensor.requires_grad()) text_ += tensor.is_leaf() ? ".requires_grad_()" : ".requires_grad_().clone()";
      text_ += "\n";
    }
  }

  std::string content(const at::Tensor& all, size_t seed, const std::string& name, bool is_seeded) {
    if (is_seeded) {
      const auto [low, high] = range_of(all);
      std::string text = base::concat("numbers(", seed, ", ", all.numel(), ", ", dtype_name(all.scalar_type()));
      if (c10::isIntegralType(all.scalar_type(), true)) text += base::concat(", ", low, ", ", high);
      return text + ")";
    }
    const auto* data = static_cast<const unsigned char*>(all.const_data_ptr());
    const size_t count = all.nbytes();
    constexpr size_t kShort = 4096;
    if (count > kShort) {
      files_.emplace_back(base::concat(".", name, ".bin"), std::string(reinterpret_cast<const char*>(data), count));
      return base::concat("stored(file(\".", name, ".bin\"), ", dtype_name(all.scalar_type()), ")");
    }
    std::string text = "stored(bytes.fromhex(\"";
    for (size_t b = 0; b < count; ++b) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", data[b]);
      text += digits;
    }
    return base::concat(text, "\"), ", dtype_name(all.scalar_type()), ")");
  }

  std::string argument(const graph::Arg& arg) const {
    const auto value = [&](ValueId id) { return id.valid() ? names_[id.index()] : std::string("None"); };
    const auto expr = [](const types::Expr& e) { return types::to_string(e); };
    const auto truth = [](bool b) { return std::string(b ? "True" : "False"); };
    if (const auto* id = std::get_if<ValueId>(&arg)) return value(*id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) return base::concat("[", joined(*list, value), "]");
    if (const auto* integer = std::get_if<types::Expr>(&arg)) return expr(*integer);
    if (const auto* list = std::get_if<std::vector<types::Expr>>(&arg))
      return base::concat("[", joined(*list, expr), "]");
    if (const auto* number = std::get_if<double>(&arg)) return real(*number);
    if (const auto* number = std::get_if<graph::Real>(&arg))
      return base::concat("__import__('struct').unpack('d', __import__('struct').pack('q', s", number->symbol, "))[0]");
    if (const auto* list = std::get_if<std::vector<double>>(&arg)) return base::concat("[", joined(*list, real), "]");
    if (const auto* is = std::get_if<bool>(&arg)) return truth(*is);
    if (const auto* list = std::get_if<std::vector<bool>>(&arg)) return base::concat("[", joined(*list, truth), "]");
    if (const auto* c = std::get_if<std::complex<double>>(&arg))
      return base::concat("complex(", real(c->real()), ", ", real(c->imag()), ")");
    if (const auto* text = std::get_if<std::string>(&arg)) return quoted(*text);
    if (const auto* type = std::get_if<types::Dtype>(&arg)) return dtype_name(to_scalar_type(*type));
    if (const auto* device = std::get_if<types::Device>(&arg))
      return base::concat("torch.device(", quoted(to_torch(*device).str()), ")");
    if (std::holds_alternative<types::Layout>(arg)) return "torch.strided";
    if (const auto* memory = std::get_if<types::MemoryFormat>(&arg)) return format(*memory);
    return "None";
  }

  static std::string callee(const std::string& name) {  // aten::add.Tensor
    const size_t colons = name.find("::"), dot = name.find('.', colons);
    return base::concat("torch.ops.", name.substr(0, colons), ".", name.substr(colons + 2, dot - colons - 2), ".",
                        dot == std::string::npos ? "default" : name.substr(dot + 1));
  }

  /// What stands before the call: names for its results.
  std::string results(const graph::Node& node, const Operator& op) {
    std::vector<std::string> names;
    for (const ValueId id : node.outputs) {
      if (id.valid() && names_[id.index()].empty()) names_[id.index()] = base::concat("v", id.index());
      names.push_back(id.valid() ? names_[id.index()] : "_");
    }
    const auto& returns = op.handle.schema().returns();
    if (returns.empty()) return "";
    if (returns.size() == 1 && kind_of(returns[0]) == ArgKind::kTensor) return names.at(0) + " = ";
    std::vector<std::string> parts;
    size_t next = 0;
    for (const c10::Argument& result : returns) {
      const ArgKind kind = kind_of(result);
      if (kind == ArgKind::kTensor) {
        parts.push_back(names.at(next++));
      } else if (kind == ArgKind::kTensors) {  // one list at most, and it takes what the others leave
        const size_t count = names.size() - (returns.size() - 1);
        const auto begin = names.begin() + static_cast<ptrdiff_t>(next);
        parts.push_back(tuple(std::vector<std::string>(begin, begin + static_cast<ptrdiff_t>(count))));
        next += count;
      } else {
        parts.push_back("_");
      }
    }
    return (parts.size() == 1 ? parts[0] : tuple(parts)) + " = ";
  }

  void program() {
    std::vector<std::string> parameters = names_of(at_.graph.inputs());
    for (size_t s = 0; s < at_.symbols.size(); ++s) parameters.push_back(base::concat("s", s));
    text_ += base::concat("def program(", joined(parameters, [](const std::string& name) { return name; }), "):\n");
    bool grad = true;
    for (const graph::Node& node : at_.graph.nodes()) {
      const Operator& op = operator_named(node.op);
      if (grad && !node.grad) text_ += "    with torch.no_grad():\n";
      grad = node.grad;
      std::string arguments;
      for (size_t a = 0; a < node.args.size(); ++a) {
        const c10::Argument& place = op.handle.schema().arguments()[a];
        if (op.arguments[a] == ArgKind::kOther && std::holds_alternative<std::monostate>(node.args[a])) continue;
        arguments +=
            base::concat(arguments.empty() ? "" : ", ",
                         place.kwarg_only() ? base::concat(place.name(), "=") : std::string(), argument(node.args[a]));
      }
      const std::string before = results(node, op);
      const graph::Place& place = at_.graph.places().at(node.place);
      text_ += base::concat(grad ? "    " : "        ", before, callee(node.op), "(", arguments, ")",
                            place.file.empty() ? "" : base::concat("  # ", place.file, ":", place.line), "\n");
    }
    text_ += base::concat("    return ", tuple(names_of(at_.graph.outputs)), "\n\n\n");
  }

  void settings() {
    c10::ScalarType narrowest = at::kDouble;  // the tolerance is that of the coarsest
    for (const graph::Value& value : at_.graph.values()) {
      const c10::ScalarType type = c10::toRealValueType(to_scalar_type(value.type.dtype));
      if (c10::isFloatingType(type) && c10::elementSize(type) < c10::elementSize(narrowest)) narrowest = type;
    }
    text_ += base::concat("DTYPE, SYMBOLS, CHOICE = ", dtype_name(narrowest), ", ", numbers(at_.symbols), ", ",
                          at_.number, "\n");
  }

  const Shrunk& shrunk_;
  const Case& at_;
  const std::string& title_;
  std::vector<std::string> names_;  ///< by value
  std::string text_;
  std::vector<std::pair<std::string, std::string>> files_;
};

}  // namespace

Script script_of(const Shrunk& shrunk, const std::string& title) { return Printer(shrunk, title).run(); }

}  // namespace magneto::aten
