#include "types/tensor_type.h"

#include <cctype>

#include "base/text.h"

namespace magneto::types {

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  Expr next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next = next * Expr::max(sizes[i], 1);
  }
  return strides;
}

Expr numel(const Sizes& sizes) {
  Expr count = 1;
  for (const Expr& size : sizes) count = count * size;
  return count;
}

bool is_contiguous(const TensorType& type) {
  for (const Expr& size : type.sizes)
    if (size == Expr(0)) return true;
  // With symbols both products may stand for the same number: they differ only in tensors that are empty.
  Expr expected = 1, fresh = 1;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    const Expr& size = type.sizes[i];
    if (size == Expr(1)) continue;
    if (type.strides[i] != expected && type.strides[i] != fresh) return false;
    expected = expected * size;
    fresh = fresh * Expr::max(size, 1);
  }
  return true;
}

static std::string print_list(const Sizes& list, char open, char close) {
  std::string text(1, open);
  for (size_t i = 0; i < list.size(); ++i) text += base::concat(i ? ", " : "", to_string(list[i]));
  return text + close;
}

std::string to_string(const TensorType& type) {
  std::string text(name(type.dtype));
  text += print_list(type.sizes, '[', ']');
  const bool has_offset = type.offset != Expr(0);
  if (has_offset || type.strides != contiguous_strides(type.sizes)) text += print_list(type.strides, '{', '}');
  // an expression of several words would run into the device or the rest of the line
  if (has_offset) {
    const std::string offset = to_string(type.offset);
    const bool bare = offset.find_first_not_of("0123456789s") == std::string::npos;
    text += bare ? base::concat("+", offset) : base::concat("+(", offset, ")");
  }
  if (type.device != Device{}) text += base::concat("@", to_string(type.device));
  return text;
}

static bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

static void skip(std::string_view& text) {
  while (take(text, ' ')) {
  }
}

static std::optional<Sizes> take_list(std::string_view& text, char open, char close) {
  if (!take(text, open)) return std::nullopt;
  Sizes list;
  skip(text);
  if (take(text, close)) return list;
  while (true) {
    auto item = take_expr(text);
    if (!item) return std::nullopt;
    list.push_back(std::move(*item));
    skip(text);
    if (take(text, close)) return list;
    if (!take(text, ',')) return std::nullopt;
  }
}

static std::optional<std::string_view> take_word(std::string_view& text, std::string_view allowed_signs) {
  size_t n = 0;
  while (n < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[n])) || allowed_signs.find(text[n]) != std::string_view::npos))
    ++n;
  if (n == 0) return std::nullopt;
  const std::string_view word = text.substr(0, n);
  text.remove_prefix(n);
  return word;
}

// One item of the offset: a number, a symbol or something in parentheses, so that "+4 + ..." of the surroundings is not
// swallowed.
static std::optional<Expr> take_offset(std::string_view& text) {
  size_t n = 0;
  if (!text.empty() && text.front() == '(') {
    for (int depth = 0; n < text.size();) {
      depth += text[n] == '(' ? 1 : text[n] == ')' ? -1 : 0;
      ++n;
      if (depth == 0) break;
    }
  } else {
    while (n < text.size() && std::isalnum(static_cast<unsigned char>(text[n]))) ++n;
  }
  auto value = parse_expr(text.substr(0, n));
  if (value) text.remove_prefix(n);
  return value;
}

std::optional<TensorType> take_tensor_type(std::string_view& text) {
  std::string_view rest = text;
  TensorType type;
  const auto word = take_word(rest, "");
  const auto dtype = word ? parse_dtype(*word) : std::nullopt;
  if (!dtype) return std::nullopt;
  type.dtype = *dtype;
  auto sizes = take_list(rest, '[', ']');
  if (!sizes) return std::nullopt;
  type.sizes = std::move(*sizes);
  if (!rest.empty() && rest.front() == '{') {
    auto strides = take_list(rest, '{', '}');
    if (!strides || strides->size() != type.sizes.size()) return std::nullopt;
    type.strides = std::move(*strides);
  } else {
    type.strides = contiguous_strides(type.sizes);
  }
  if (take(rest, '+')) {
    auto offset = take_offset(rest);
    if (!offset) return std::nullopt;
    type.offset = std::move(*offset);
  }
  if (take(rest, '@')) {
    const auto where = take_word(rest, ":");
    const auto device = where ? parse_device(*where) : std::nullopt;
    if (!device) return std::nullopt;
    type.device = *device;
  }
  text = rest;
  return type;
}

std::optional<TensorType> parse_tensor_type(std::string_view text) {
  auto type = take_tensor_type(text);
  if (!text.empty()) return std::nullopt;
  return type;
}

}  // namespace magneto::types
