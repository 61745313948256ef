// aten/symbols.cpp
#include "aten/symbols.h"

#include <ATen/ScalarOps.h>
#include <c10/core/SymNodeImpl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "types/solve.h"

namespace magneto::aten {

using types::Condition;
using types::Expr;
using types::Relation;

namespace {

// An expression, or the answer to a question about two of them.
class Node final : public c10::SymNodeImpl {
 public:
  Node(std::shared_ptr<Symbols> symbols, Expr expr) : symbols_(std::move(symbols)), expr_(std::move(expr)) {}
  Node(std::shared_ptr<Symbols> symbols, Condition question)
      : symbols_(std::move(symbols)), question_(std::move(question)) {}

  const Expr& expr() const {
    TORCH_CHECK(!question_, "a truth where a size is needed");
    return expr_;
  }

  bool is_int() override { return !question_; }
  bool is_bool() override { return question_.has_value(); }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  bool is_symbolic() override { return true; }
  c10::SymNode clone() override { return c10::SymNode::reclaim_copy(this); }
  std::string str() override { return question_ ? types::to_string(*question_) : types::to_string(expr_); }

  c10::SymNode wrap_int(int64_t number) override { return make(Expr(number)); }
  c10::SymNode wrap_bool(bool truth) override { return make(Condition{0, truth ? Relation::kEq : Relation::kNe, 0}); }

  c10::SymNode add(const c10::SymNode& other) override { return make(expr() + of(other)); }
  c10::SymNode sub(const c10::SymNode& other) override { return make(expr() - of(other)); }
  c10::SymNode mul(const c10::SymNode& other) override { return make(expr() * of(other)); }
  c10::SymNode neg() override { return make(-expr()); }
  c10::SymNode floordiv(const c10::SymNode& other) override { return make(Expr::floor_div(expr(), divisor(other))); }
  c10::SymNode mod(const c10::SymNode& other) override { return make(Expr::mod(expr(), divisor(other))); }
  c10::SymNode sym_min(const c10::SymNode& other) override { return make(Expr::min(expr(), of(other))); }
  c10::SymNode sym_max(const c10::SymNode& other) override { return make(Expr::max(expr(), of(other))); }
  c10::SymNode ceil() override { return clone(); }
  c10::SymNode floor() override { return clone(); }

  c10::SymNode eq(const c10::SymNode& other) override { return make(Condition{expr(), Relation::kEq, of(other)}); }
  c10::SymNode ne(const c10::SymNode& other) override { return make(Condition{expr(), Relation::kNe, of(other)}); }
  c10::SymNode lt(const c10::SymNode& other) override { return make(Condition{expr(), Relation::kLt, of(other)}); }
  c10::SymNode le(const c10::SymNode& other) override { return make(Condition{expr(), Relation::kLe, of(other)}); }
  c10::SymNode gt(const c10::SymNode& other) override { return make(Condition{of(other), Relation::kLt, expr()}); }
  c10::SymNode ge(const c10::SymNode& other) override { return make(Condition{of(other), Relation::kLe, expr()}); }

  // Truths are decided where they are joined: that may fix more than needed, never less.
  c10::SymNode sym_and(const c10::SymNode& other) override { return wrap_bool(truth() && of_bool(other)); }
  c10::SymNode sym_or(const c10::SymNode& other) override { return wrap_bool(truth() || of_bool(other)); }
  c10::SymNode sym_not() override { return wrap_bool(!truth()); }
  c10::SymNode sym_ite(const c10::SymNode& then, const c10::SymNode& otherwise) override {
    return truth() ? then : otherwise;
  }

  int64_t guard_int(const char*, int64_t) override { return symbols_->fix(expr()); }
  int64_t int_() override { return symbols_->fix(expr()); }
  bool guard_bool(const char*, int64_t) override { return truth(); }
  bool bool_() override { return truth(); }
  std::optional<int64_t> maybe_as_int() override { return question_ ? std::nullopt : expr_.constant(); }
  std::optional<int64_t> constant_int() override { return maybe_as_int(); }

  using Nodes = c10::ArrayRef<c10::SymNode>;
  c10::SymNode is_contiguous(Nodes sizes, Nodes strides) override {
    std::vector<size_t> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), 0);
    return wrap_bool(is_dense(sizes, strides, order));
  }
  c10::SymNode is_channels_last_contiguous_2d(Nodes sizes, Nodes strides) override {
    return wrap_bool(sizes.size() == 4 && is_dense(sizes, strides, {1, 3, 2, 0}));
  }
  c10::SymNode is_channels_last_contiguous_3d(Nodes sizes, Nodes strides) override {
    return wrap_bool(sizes.size() == 5 && is_dense(sizes, strides, {1, 4, 3, 2, 0}));
  }
  c10::SymNode is_channels_last_strides_2d(Nodes sizes, Nodes strides) override {
    return wrap_bool(sizes.size() == 4 && grows(sizes, strides, {1, 3, 2, 0}));
  }
  c10::SymNode is_channels_last_strides_3d(Nodes sizes, Nodes strides) override {
    return wrap_bool(sizes.size() == 5 && grows(sizes, strides, {1, 4, 3, 2, 0}));
  }
  c10::SymNode is_non_overlapping_and_dense(Nodes sizes, Nodes strides) override {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return hint(strides[a]) < hint(strides[b]); });
    return wrap_bool(is_dense(sizes, strides, order));
  }

 private:
  template <class Content>
  c10::SymNode make(Content content) const {
    return c10::make_intrusive<Node>(symbols_, std::move(content));
  }
  const Expr& of(const c10::SymNode& other) const {
    const auto* node = dynamic_cast<const Node*>(other.get());
    TORCH_CHECK(node, "a symbolic size of another compiler");
    return node->expr();
  }
  static bool of_bool(const c10::SymNode& other) { return other->guard_bool(__FILE__, __LINE__); }
  Expr divisor(const c10::SymNode& other) const {
    const Expr& value = of(other);
    TORCH_CHECK(!symbols_->equal(value, 0), "division by zero");
    return value;
  }
  int64_t hint(const c10::SymNode& other) const { return symbols_->hint(of(other)); }
  bool truth() const {
    TORCH_CHECK(question_, "a size where a truth is needed");
    return symbols_->decide(*question_);
  }

  // Whether the dimensions, taken in this order, lie one after the other without gaps. Those of size 1 may have any
  // stride.
  bool is_dense(Nodes sizes, Nodes strides, const std::vector<size_t>& order) const {
    for (const c10::SymNode& size : sizes)
      if (symbols_->equal(of(size), 0)) return true;
    Expr expected = 1;
    for (size_t dim : order) {
      if (symbols_->equal(of(sizes[dim]), 1)) continue;
      if (!symbols_->equal(of(strides[dim]), expected)) return false;
      expected = expected * of(sizes[dim]);
    }
    return true;
  }

  // torch's weaker notion of channels last: strides grow in this order, and channels do not look like rows.
  bool grows(Nodes sizes, Nodes strides, const std::vector<size_t>& order) const {
    Expr least = 0;
    if (symbols_->equal(of(strides[1]), 0)) return false;
    for (size_t dim : order) {
      if (symbols_->equal(of(sizes[dim]), 0)) return false;
      if (symbols_->less(of(strides[dim]), least)) return false;
      if (dim == 0 && symbols_->equal(least, of(strides[1]))) return false;
      least = of(strides[dim]);
      if (symbols_->less(1, of(sizes[dim]))) least = least * of(sizes[dim]);
    }
    return true;
  }

  const std::shared_ptr<Symbols> symbols_;
  const Expr expr_;
  const std::optional<Condition> question_;
};

// A float that is a symbol, or a number beside one. What is not answered here (sums, products) torch refuses.
class RealNode final : public c10::SymNodeImpl {
 public:
  RealNode(std::shared_ptr<Symbols> symbols, graph::Arg content)
      : symbols_(std::move(symbols)), content_(std::move(content)) {}

  const graph::Arg& content() const { return content_; }

  bool is_int() override { return false; }
  bool is_bool() override { return false; }
  bool is_float() override { return true; }
  bool has_hint() override { return true; }
  bool is_symbolic() override { return true; }
  c10::SymNode clone() override { return c10::SymNode::reclaim_copy(this); }
  std::string str() override { return std::to_string(now()); }

  c10::SymNode wrap_float(double number) override { return c10::make_intrusive<RealNode>(symbols_, number); }
  c10::SymNode sym_float() override { return clone(); }
  c10::SymNode eq(const c10::SymNode& other) override { return truth(is(other)); }
  c10::SymNode ne(const c10::SymNode& other) override { return truth(!is(other)); }
  c10::SymNode lt(const c10::SymNode& other) override { return truth(fixed() < of(other).fixed()); }
  c10::SymNode le(const c10::SymNode& other) override { return truth(fixed() <= of(other).fixed()); }
  c10::SymNode gt(const c10::SymNode& other) override { return truth(fixed() > of(other).fixed()); }
  c10::SymNode ge(const c10::SymNode& other) override { return truth(fixed() >= of(other).fixed()); }

  double guard_float(const char*, int64_t) override {
    const auto lent = real() && symbols_->lends() ? symbols_->lend(*real()) : std::nullopt;
    return lent ? *lent : fixed();
  }

 private:
  const graph::Real* real() const { return std::get_if<graph::Real>(&content_); }
  double now() const { return real() ? symbols_->hint(*real()) : std::get<double>(content_); }
  double fixed() const { return real() ? symbols_->fix(*real()) : std::get<double>(content_); }
  bool is(const c10::SymNode& other) const {
    const RealNode& second = of(other);
    if (real() && !second.real()) return symbols_->equal(*real(), second.now());
    if (!real() && second.real()) return symbols_->equal(*second.real(), now());
    return fixed() == second.fixed();
  }
  static const RealNode& of(const c10::SymNode& other) {
    const auto* node = dynamic_cast<const RealNode*>(other.get());
    TORCH_CHECK(node, "a symbolic float of another compiler");
    return *node;
  }
  c10::SymNode truth(bool holds) const {
    return c10::make_intrusive<Node>(symbols_, Condition{0, holds ? Relation::kEq : Relation::kNe, 0});
  }

  const std::shared_ptr<Symbols> symbols_;
  const graph::Arg content_;
};

Condition opposite(const Condition& condition) {
  switch (condition.relation) {
    case Relation::kEq:
      return {condition.left, Relation::kNe, condition.right};
    case Relation::kNe:
      return {condition.left, Relation::kEq, condition.right};
    case Relation::kLt:
      return {condition.right, Relation::kLe, condition.left};
    case Relation::kLe:
      return {condition.right, Relation::kLt, condition.left};
  }
  return condition;
}

std::atomic<Symbols::Unwrap> unwrap{nullptr};

}  // namespace

std::atomic<Symbols::Inner> inner{nullptr};

void Symbols::set_unwrap(Unwrap function) { unwrap = function; }
void Symbols::set_inner(Inner function) { inner = function; }

std::optional<graph::Arg> Symbols::wrapped(const at::Tensor& tensor) const {
  for (const auto& [known, number] : wraps_)
    if (known.is_same(tensor)) return number;
  const Unwrap function = unwrap;
  return function ? function(tensor) : std::nullopt;
}

Expr Symbols::add(int64_t hint) {
  Expr symbol = Expr::symbol(static_cast<uint32_t>(hints_.size()));
  hints_.push_back(hint);
  least_.push_back(0);
  return symbol;
}

graph::Real Symbols::add_real(double hint) {
  add(std::bit_cast<int64_t>(hint));
  return {static_cast<uint32_t>(hints_.size() - 1)};
}

double Symbols::hint(graph::Real real) const { return std::bit_cast<double>(hints_.at(real.symbol)); }

void Symbols::require(RealCondition condition) {
  if (std::find(real_conditions_.begin(), real_conditions_.end(), condition) == real_conditions_.end())
    real_conditions_.push_back(condition);
}

bool Symbols::equal(graph::Real real, double number) {
  if (std::isnan(number)) return false;
  if (hint(real) == number) return fix(real) == number;
  require({real.symbol, RealCondition::kIsNot, std::bit_cast<int64_t>(number)});
  if (number == 0) require({real.symbol, RealCondition::kIsNot, std::bit_cast<int64_t>(-number)});
  return false;
}

bool Symbols::bound(graph::Real real, double most) {
  const double number = hint(real);
  if (std::isfinite(number) && std::abs(number) > most) return false;
  require({real.symbol, RealCondition::kWithin, std::bit_cast<int64_t>(most)});
  return true;
}

bool Symbols::order(graph::Real real) {
  if (std::isnan(hint(real))) return false;
  require({real.symbol, RealCondition::kOrdered, 0});
  return true;
}

bool Symbols::keep_between(graph::Real real, double least, double most) {
  if (!(hint(real) >= least && hint(real) <= most)) return false;
  if (least != -HUGE_VAL) require({real.symbol, RealCondition::kAtLeast, std::bit_cast<int64_t>(least)});
  if (most != HUGE_VAL) require({real.symbol, RealCondition::kAtMost, std::bit_cast<int64_t>(most)});
  return true;
}

double Count::of(double number) const {
  switch (kind) {
    case kItself:
      return number;
    case kRest:
      return 1 - number;
    case kQuotient:
      return number / by;
    case kRounded:
      return static_cast<float>(number);
    case kRoot:
      return std::sqrt(number);
    case kInverseOfRest:
      return 1 / (1 - number);
  }
  return number;
}

std::string to_string(const Count& count, const std::string& number) {
  switch (count.kind) {
    case Count::kItself:
      return number;
    case Count::kRest:
      return "1 - " + number;
    case Count::kQuotient:
      return number + " / " + std::to_string(static_cast<int64_t>(count.by));
    case Count::kRounded:
      return "f32(" + number + ")";
    case Count::kRoot:
      return "sqrt(" + number + ")";
    case Count::kInverseOfRest:
      return "1 / (1 - " + number + ")";
  }
  return number;
}

graph::Real Symbols::count(graph::Real real, const Count& count) {
  if (count.kind == Count::kItself) return real;
  for (const Counted& known : counted_)
    if (known.of == real.symbol && known.count == count) return {known.result};
  const graph::Real made = add_real(count.of(hint(real)));
  counted_.push_back({made.symbol, real.symbol, count});
  return made;
}

std::optional<double> Symbols::lend(graph::Real real) {
  if (!std::isnormal(hint(real))) return std::nullopt;
  if (terms_ && (terms_->least != -HUGE_VAL || terms_->most != HUGE_VAL) &&
      !keep_between(real, terms_->least, terms_->most))
    return std::nullopt;
  auto loan = std::find_if(loans_.begin(), loans_.end(), [&](const Loan& known) { return known.real == real; });
  if (loan == loans_.end()) {
    // The last bits are a mark that no number of a program has by chance. One of the first bits is another one, so that
    // what is rounded, or computed from it, is not what comes of the float itself.
    constexpr uint64_t kMarked = (uint64_t{1} << 40) - 1, kFirst = uint64_t{1} << 46, kStep = 0x9e3779b97f4a7c15;
    const uint64_t bits = std::bit_cast<uint64_t>(hint(real)) ^ kFirst;
    const uint64_t marked = (bits & ~kMarked) | (kStep * (real.symbol + 1) >> 24 & kMarked);
    loan = loans_.insert(loan, {real, std::bit_cast<double>(marked)});
  }
  loan->met = terms_ && terms_->may_be_ignored;
  const auto know = [&](const Count& count) {
    const double counted = count.of(loan->mark);
    if (std::isnormal(counted) && (count.kind != Count::kRounded || std::isnormal(static_cast<float>(counted))))
      lent_.emplace(std::bit_cast<int64_t>(counted), Lent{static_cast<size_t>(loan - loans_.begin()), count});
  };
  know({});
  for (const Counted& counted : counted_)
    if (counted.of == real.symbol) know(counted.count);
  if (!terms_) return loan->mark;
  for (const Count::Kind kind : {Count::kRest, Count::kRounded, Count::kRoot}) know({kind});
  for (const int64_t size : terms_->sizes)
    if (size > 1) know({Count::kQuotient, static_cast<double>(size)});
  return loan->mark;
}

std::optional<graph::Real> Symbols::lent(double number) {
  const auto found = lent_.find(std::bit_cast<int64_t>(number));
  if (found == lent_.end()) return std::nullopt;
  Loan& loan = loans_[found->second.loan];
  loan.met = true;
  return count(loan.real, found->second.count);
}

bool Symbols::fix_unmet() {
  bool any = false;
  for (Loan& loan : loans_)
    if (!std::exchange(loan.met, true)) {
      fix(loan.real);
      any = true;
    }
  return any;
}

double Symbols::fix(graph::Real real) {
  require({real.symbol, RealCondition::kIs, hints_.at(real.symbol)});
  return hint(real);
}

static at::Tensor wrapped_scalar(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor Symbols::wrap(graph::Real real) { return wraps_.emplace_back(wrapped_scalar(hint(real)), real).first; }

at::Tensor Symbols::wrap(Expr number) {
  at::Tensor tensor = wrapped_scalar(hint(number));
  return wraps_.emplace_back(std::move(tensor), std::move(number)).first;
}

c10::SymFloat Symbols::to_torch(graph::Real real) {
  return c10::SymFloat(c10::SymNode(c10::make_intrusive<RealNode>(shared_from_this(), real)));
}

std::optional<graph::Arg> Symbols::from_torch(const c10::SymFloat& number) {
  if (!number.is_symbolic()) return number.as_float_unchecked();
  c10::SymNode node = number.toSymNodeImpl();
  const Inner function = inner;
  if (!dynamic_cast<const RealNode*>(node.get()) && function) node = function(*node);
  const auto* ours = dynamic_cast<const RealNode*>(node.get());
  return ours ? std::optional(ours->content()) : std::nullopt;
}

bool Symbols::admit(const Expr& expr) {
  std::vector<uint32_t> symbols;
  expr.collect_symbols(symbols);
  for (uint32_t symbol : symbols)
    if (hints_[symbol] < 2) return false;
  for (uint32_t symbol : symbols) {
    require({2, Relation::kLe, Expr::symbol(symbol)});
    least_[symbol] = 2;
  }
  return true;
}

void Symbols::require(Condition condition) {
  const size_t hash = condition.left.hash() * 31 + condition.right.hash() * 4 + static_cast<size_t>(condition.relation);
  const auto [first, last] = by_hash_.equal_range(hash);
  if (std::any_of(first, last, [&](const auto& known) { return conditions_[known.second] == condition; })) return;
  by_hash_.emplace(hash, conditions_.size());
  conditions_.push_back(std::move(condition));
}

bool Symbols::decide(const Condition& question) {
  // Bounds are known only of symbols that take part in sizes; a Python int may be anything.
  std::vector<uint32_t> symbols;
  question.left.collect_symbols(symbols);
  question.right.collect_symbols(symbols);
  if (std::all_of(symbols.begin(), symbols.end(), [&](uint32_t symbol) { return least_[symbol] == 2; }))
    if (const auto answer = types::known(question, least_)) return *answer;
  const bool holds = question.holds(hints_);
  Condition truth = holds ? question : opposite(question);
  // A size that is one must look like it in every type (types/solve.h).
  const bool is_one = truth.relation == Relation::kEq && (truth.left == Expr(1) || truth.right == Expr(1));
  if (is_one && !types::Solution({truth}).implies(truth))
    for (const uint32_t symbol : symbols) require({Expr::symbol(symbol), Relation::kEq, hints_[symbol]});
  require(std::move(truth));
  return holds;
}

int64_t Symbols::fix(const Expr& expr) {
  const int64_t value = hint(expr);
  const bool is_hint = equal(expr, value);
  base::check(is_hint, "symbols: ", types::to_string(expr), " is not its hint ", value);
  return value;
}

c10::SymInt Symbols::to_torch(const Expr& expr) {
  if (const auto number = expr.constant()) return c10::SymInt(*number);
  return c10::SymInt(c10::SymNode(c10::make_intrusive<Node>(shared_from_this(), expr)));
}

std::optional<Expr> Symbols::from_torch(const c10::SymInt& number) {
  if (const auto plain = number.maybe_as_int()) return Expr(*plain);
  const auto node = number.toSymNode();
  const auto* ours = dynamic_cast<const Node*>(node.get());
  return ours ? std::optional<Expr>(ours->expr()) : std::nullopt;
}

}  // namespace magneto::aten
