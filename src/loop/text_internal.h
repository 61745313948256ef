// loop/text_internal.h: words and signs of a text, for the parser. White space, line ends and remarks (# to the end of
// the line) separate them and mean nothing else.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace magneto::loop {

struct Literal {
  bool is_real = false;
  double real = 0;
  int64_t whole = 0;
};

class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  [[noreturn]] void fail(std::string_view expected) const;
  bool peek(std::string_view sign);
  bool take(std::string_view sign);
  void expect(std::string_view sign);
  bool peek_word(std::string_view word);  ///< the whole word, not the head of a longer one
  bool take_word(std::string_view word);
  bool peek_near(std::string_view sign) const;  ///< without white space before it
  bool take_near(std::string_view sign);
  std::string_view name(std::string_view expected);
  std::string quoted();
  std::optional<uint64_t> digits();
  bool peek_number();        ///< a literal, with or without a minus
  bool peek_suffix() const;  ///< :f64 after a literal
  bool peek_range();         ///< i < ... or i in ...
  Literal literal();
  void expect_end();
  std::string_view& rest() {  ///< for readers of their own
    skip();
    return rest_;
  }

 private:
  void skip();
  size_t word_length(size_t from) const;

  std::string_view rest_;
  int line_ = 1;
};

}  // namespace magneto::loop
