#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "codegen/scopes_internal.h"

namespace magneto::codegen {

namespace {
// Words that a value must not be called: of C++ and CUDA, and those that our own texts use.
constexpr std::string_view kTaken[] = {
    "and",      "asm",      "auto",    "bool",    "break",    "case",    "char",     "class",  "const",
    "continue", "default",  "delete",  "do",      "double",   "else",    "enum",     "extern", "false",
    "float",    "for",      "goto",    "if",      "inline",   "int",     "long",     "new",    "not",
    "or",       "register", "return",  "short",   "signed",   "sizeof",  "static",   "struct", "switch",
    "this",     "true",     "typedef", "union",   "unsigned", "void",    "volatile", "while",  "xor",
    "i8",       "u8",       "i16",     "i32",     "i64",      "f16",     "bf16",     "f32",    "f64",
    "s",        "lo",       "hi",      "scratch", "fault",    "buffers", "thread",   "exp",    "log",
    "sin",      "cos",      "tan",     "tanh",    "erf",      "pow",     "sqrt",     "min",    "max"};
}  // namespace

std::string Scopes::close() {
  std::string text = std::move(texts_.back());
  texts_.pop_back();
  kept_.pop_back();
  at_ = texts_.empty() ? 0 : texts_.size() - 1;
  return text;
}

void Scopes::line(std::string_view text) {
  texts_[at_] += std::string(2 * at_ + 2, ' ');
  texts_[at_] += base::concat(text, '\n');
}

std::string Scopes::fresh(std::string_view hint) {
  const bool taken = std::find(std::begin(kTaken), std::end(kTaken), hint) != std::end(kTaken);
  int& count = used_[std::string(hint)];
  while (true) {
    const std::string name = count == 0 && !taken ? std::string(hint) : base::concat(hint, "_", count + 1);
    ++count;
    // another hint may have led to the same name: x_2
    if (name == hint || used_.try_emplace(name, 1).second) return name;
  }
}

const std::string* Scopes::find(const std::string& text) const {
  for (size_t depth = at_ + 1; depth-- > 0;)
    if (const auto found = kept_[depth].find(text); found != kept_[depth].end()) return &found->second;
  return nullptr;
}

bool is_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string_view bare(std::string_view text) {
  if (!text.starts_with('(')) return text;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) return i + 1 == text.size() ? text.substr(1, text.size() - 2) : text;
  }
  return text;
}

}  // namespace magneto::codegen
