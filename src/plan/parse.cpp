// One statement a line; each begins with its word.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/check.h"
#include "plan/plan.h"

namespace magneto::plan {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Plan read() {
    next_line();
    expect("plan");
    expect("{");
    while (next_line(), !take("}")) statement();
    while (!text_.empty()) {
      next_line();
      if (!line_.empty()) fail("the end");
    }
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    base::check(false, "plan: line ", number_, ": expected ", expected, ", found '", line_.substr(0, 30), "'");
    std::abort();
  }

  void next_line() {
    do {
      if (text_.empty()) {
        line_ = {};
        fail("'}'");
      }
      const size_t end = std::min(text_.find('\n'), text_.size());
      line_ = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
      skip();
    } while (line_.empty() && !text_.empty());
  }

  void skip() {
    while (!line_.empty() && line_.front() == ' ') line_.remove_prefix(1);
  }
  bool take(std::string_view word) {
    skip();
    if (!line_.starts_with(word)) return false;
    line_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(word);
  }
  std::string name() {
    skip();
    size_t n = 0;
    while (n < line_.size() && (std::isalnum(static_cast<unsigned char>(line_[n])) || line_[n] == '_')) ++n;
    if (n == 0) fail("a name");
    std::string made(line_.substr(0, n));
    line_.remove_prefix(n);
    return made;
  }
  std::string quoted() {
    expect("\"");
    std::string made;
    for (size_t n = 0; n < line_.size(); ++n) {
      if (line_[n] == '"') {
        line_.remove_prefix(n + 1);
        return made;
      }
      if (line_[n] == '\\' && n + 1 < line_.size()) ++n;
      made += line_[n];
    }
    fail("a closing quote");
  }
  types::Expr size() {
    skip();
    const auto found = types::take_expr(line_);
    if (!found) fail("a size");
    return *found;
  }
  BufferId known() {
    const auto found = known_.find(name());
    if (found == known_.end()) fail("a buffer that was declared");
    return found->second;
  }
  std::vector<BufferId> buffers() {
    std::vector<BufferId> list;
    expect("(");
    if (take(")")) return list;
    do {
      list.push_back(known());
    } while (take(","));
    expect(")");
    return list;
  }

  void buffer(Place place) {
    Buffer b;
    b.place = place;
    b.name = name();
    expect(":");
    b.bytes = size();
    if (place == Place::kTemp) {
      expect("at");
      b.at = size();
    }
    if (!known_.emplace(b.name, BufferId(plan_.buffers.size())).second) fail("a name that is new");
    plan_.buffers.push_back(std::move(b));
  }

  void condition() {
    types::Condition c;
    c.left = size();
    using types::Relation;
    if (take("=="))
      c.relation = Relation::kEq;
    else if (take("!="))
      c.relation = Relation::kNe;
    else if (take("<="))
      c.relation = Relation::kLe;
    else if (take("<"))
      c.relation = Relation::kLt;
    else
      fail("a comparison");
    c.right = size();
    plan_.conditions.push_back(std::move(c));
  }

  void run() {
    Step s;
    s.name = name();
    expect("(");
    if (!take(")")) {
      do {
        const bool both = take("<->"), writes = both || take("->");
        const BufferId id = known();
        if (std::find(s.buffers.begin(), s.buffers.end(), id) == s.buffers.end()) {
          if (both || !writes) s.reads.push_back(id);
          if (writes) s.writes.push_back(id);
        }
        s.buffers.push_back(id);
      } while (take(","));
      expect(")");
    }
    expect("points");
    s.points = size();
    if (take("grain")) s.grain = size().value_or(0);
    if (take("threads")) s.threads = static_cast<int>(size().value_or(0));
    if (take("with")) {
      do {
        std::vector<uint32_t> found;
        size().collect_symbols(found);
        if (found.size() != 1) fail("a symbol");
        s.symbols.push_back(found.front());
      } while (take(","));
    }
    if (take("scratch")) s.scratch = size();
    plan_.steps.push_back(std::move(s));
  }

  void call() {
    Step s;
    s.kind = Step::Kind::kCall;
    s.name = quoted();
    s.reads = buffers();
    expect("->");
    s.writes = buffers();
    s.arguments = quoted();
    plan_.steps.push_back(std::move(s));
  }

  void statement() {
    if (take("in "))
      buffer(Place::kIn);
    else if (take("out "))
      buffer(Place::kOut);
    else if (take("constant "))
      buffer(Place::kConstant);
    else if (take("temp "))
      buffer(Place::kTemp);
    else if (take("alone "))
      buffer(Place::kAlone);
    else if (take("made "))
      buffer(Place::kCall);
    else if (take("arena "))
      plan_.arena = size();
    else if (take("where "))
      condition();
    else if (take("run "))
      run();
    else if (take("call "))
      call();
    else
      fail("in, out, constant, temp, alone, made, arena, where, run or call");
    skip();
    if (!line_.empty()) fail("the end of the line");
  }

  std::string_view text_, line_;
  int number_ = 0;
  Plan plan_;
  std::unordered_map<std::string, BufferId> known_;
};

}  // namespace

Plan parse(std::string_view text) { return Parser(text).read(); }

}  // namespace magneto::plan
