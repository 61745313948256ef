// codegen/scopes_internal.h: text in scopes that lie in one another, and the names in it: what the C-like targets
// share.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace magneto::codegen {

class Scopes {
 public:
  void open() {
    texts_.emplace_back();
    kept_.emplace_back();
    at_ = texts_.size() - 1;
  }
  /// The text of the innermost scope, which ends.
  std::string close();
  void write_at(size_t depth) { at_ = depth; }
  size_t at() const { return at_; }
  size_t depth() const { return texts_.size() - 1; }
  void line(std::string_view text);                           ///< indented
  void block(std::string_view text) { texts_[at_] += text; }  ///< as it is

  std::string fresh(std::string_view hint);  ///< a name that nobody has yet
  /// The name under which `text` was kept in this scope or one around it; "" when it was not.
  const std::string* find(const std::string& text) const;
  void remember(const std::string& text, const std::string& name) { kept_[at_][text] = name; }

 private:
  std::vector<std::string> texts_;
  std::vector<std::map<std::string, std::string>> kept_;
  std::map<std::string, int, std::less<>> used_;
  size_t at_ = 0;
};

bool is_name(std::string_view text);           ///< letters, digits and _ alone: a name or a whole number
std::string_view bare(std::string_view text);  ///< without parentheses around the whole of it

}  // namespace magneto::codegen
