#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "loop/text_internal.h"

namespace magneto::loop {

void Words::fail(std::string_view expected) const {
  const std::string_view found = rest_.substr(0, std::min({size_t{40}, rest_.find('\n'), rest_.size()}));
  throw base::Fault(base::concat("loop text, line ", line_, ": found '", found, "', expected ", expected));
}

void Words::skip() {
  while (!rest_.empty()) {
    if (rest_.front() == '#') {
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
    } else if (std::isspace(static_cast<unsigned char>(rest_.front()))) {
      line_ += rest_.front() == '\n';
      rest_.remove_prefix(1);
    } else {
      return;
    }
  }
}

bool Words::peek(std::string_view sign) {
  skip();
  return rest_.starts_with(sign);
}

bool Words::take(std::string_view sign) {
  if (!peek(sign)) return false;
  rest_.remove_prefix(sign.size());
  return true;
}

void Words::expect(std::string_view sign) {
  if (!take(sign)) fail(base::concat("'", sign, "'"));
}

size_t Words::word_length(size_t from) const {
  size_t n = from;
  if (n < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[n]))) return 0;
  while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
  return n - from;
}

bool Words::peek_word(std::string_view word) {
  skip();
  return word_length(0) == word.size() && rest_.starts_with(word);
}

bool Words::take_word(std::string_view word) {
  if (!peek_word(word)) return false;
  rest_.remove_prefix(word.size());
  return true;
}

bool Words::peek_near(std::string_view sign) const { return rest_.starts_with(sign); }

bool Words::take_near(std::string_view sign) {
  if (!peek_near(sign)) return false;
  rest_.remove_prefix(sign.size());
  return true;
}

std::string_view Words::name(std::string_view expected) {
  skip();
  const size_t n = word_length(0);
  if (n == 0) fail(expected);
  const std::string_view word = rest_.substr(0, n);
  rest_.remove_prefix(n);
  return word;
}

std::string Words::quoted() {
  expect("\"");
  std::string text;
  for (size_t at = 0; at < rest_.size(); ++at) {
    if (rest_[at] == '"') {
      rest_.remove_prefix(at + 1);
      return text;
    }
    if (rest_[at] == '\\' && at + 1 < rest_.size()) ++at;
    text += rest_[at];
  }
  fail("a closing '\"'");
}

std::optional<uint64_t> Words::digits() {
  skip();
  uint64_t value = 0;
  const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (read.ec != std::errc()) return std::nullopt;
  rest_.remove_prefix(static_cast<size_t>(read.ptr - rest_.data()));
  return value;
}

bool Words::peek_number() {
  skip();
  const size_t at = rest_.starts_with('-') ? 1 : 0;
  if (at < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[at]))) {
    // -2*s0 is a size and no literal; a literal that stands before a product is taken all the same: -2 * x
    return true;
  }
  const size_t length = word_length(at);
  const std::string_view word = rest_.substr(std::min(at, rest_.size()), length);
  return word == "inf" || word == "nan";
}

bool Words::peek_suffix() const {
  return rest_.size() > 1 && rest_[0] == ':' && std::isalpha(static_cast<unsigned char>(rest_[1]));
}

bool Words::peek_range() {
  skip();
  const size_t length = word_length(0);
  if (length == 0) return false;
  const std::string_view after = rest_.substr(length);
  return after.starts_with(" < ") || after.starts_with(" in ");
}

Literal Words::literal() {
  Literal made;
  skip();
  const bool negative = take("-");
  if (take_word("inf") || peek_word("nan")) {
    made.is_real = true;
    made.real = take_word("nan") ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    if (negative) made.real = -made.real;
    return made;
  }
  const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
  const bool range = rest_.substr(digits).starts_with("..");
  made.is_real = !range && digits < rest_.size() && (rest_[digits] == '.' || rest_[digits] == 'e');
  const char* end = rest_.data() + rest_.size();
  std::from_chars_result read{};
  if (made.is_real) {
    read = std::from_chars(rest_.data(), end, made.real);
    if (negative) made.real = -made.real;
  } else {
    uint64_t value = 0;
    read = std::from_chars(rest_.data(), end, value);
    made.whole = static_cast<int64_t>(negative ? 0 - value : value);
  }
  if (read.ec != std::errc()) fail("a number");
  rest_.remove_prefix(static_cast<size_t>(read.ptr - rest_.data()));
  return made;
}

void Words::expect_end() {
  skip();
  if (!rest_.empty()) fail("the end of the text");
}

}  // namespace magneto::loop
