// Reading arguments, and what is known of sizes.
#include <cmath>
#include <limits>

#include "ops/rules_internal.h"

namespace magneto::ops {

using graph::Arg;
using graph::ValueId;

static const Arg* argument(const Call& call, size_t i) { return i < call.args.size() ? &call.args[i] : nullptr; }

template <class Kind>
static const Kind* get(const Call& call, size_t i) {
  const Arg* arg = argument(call, i);
  return arg ? std::get_if<Kind>(arg) : nullptr;
}

const TensorType* tensor(const Call& call, size_t i) {
  const auto* id = get<ValueId>(call, i);
  return id && id->valid() ? &call.type(*id) : nullptr;
}

bool is_absent(const Call& call, size_t i) {
  if (get<std::monostate>(call, i)) return true;
  const auto* id = get<ValueId>(call, i);
  return id && !id->valid();
}

std::optional<std::vector<const TensorType*>> tensors(const Call& call, size_t i) {
  const auto* list = get<std::vector<ValueId>>(call, i);
  if (!list) return std::nullopt;
  std::vector<const TensorType*> found;
  for (const ValueId id : *list) {
    if (!id.valid()) return std::nullopt;
    found.push_back(&call.type(id));
  }
  return found;
}

std::optional<Expr> integer(const Call& call, size_t i) {
  const auto* e = get<Expr>(call, i);
  return e ? std::optional(*e) : std::nullopt;
}

std::optional<int64_t> number(const Call& call, size_t i) {
  const auto* e = get<Expr>(call, i);
  return e ? e->constant() : std::nullopt;
}

const Sizes* integers(const Call& call, size_t i) { return get<Sizes>(call, i); }

std::optional<std::vector<int64_t>> numbers(const Call& call, size_t i) {
  const Sizes* list = integers(call, i);
  if (!list) return std::nullopt;
  std::vector<int64_t> found;
  for (const Expr& e : *list) {
    if (!e.is_constant()) return std::nullopt;
    found.push_back(e.value_or(0));
  }
  return found;
}

std::optional<bool> flag(const Call& call, size_t i) {
  const auto* truth = get<bool>(call, i);
  return truth ? std::optional(*truth) : std::nullopt;
}

std::optional<double> real(const Call& call, size_t i) {
  if (const auto* value = get<double>(call, i)) return *value;
  if (const auto value = number(call, i)) return static_cast<double>(*value);
  return std::nullopt;
}

bool takes_real(const Call& call, size_t i) {
  if (!get<graph::Real>(call, i)) return false;
  if (call.reals) call.reals->taken |= uint64_t{1} << i;
  return true;
}
bool converts_real(const Call& call, size_t i) {
  if (!takes_real(call, i)) return false;
  if (call.reals) call.reals->converted |= uint64_t{1} << i;
  return true;
}
bool orders_real(const Call& call, size_t i) {
  if (!converts_real(call, i)) return false;
  if (call.reals) call.reals->ordered |= uint64_t{1} << i;
  return true;
}

bool takes_between(const Call& call, size_t i, double least, double most) {
  if (!takes_real(call, i)) return false;
  if (call.reals) call.reals->ranges.push_back({i, least, most});
  return true;
}
bool takes_unless_negative(const Call& call, size_t i) { return takes_between(call, i, 0, HUGE_VAL); }
bool takes_positive(const Call& call, size_t i) {
  return takes_between(call, i, std::numeric_limits<double>::denorm_min(), HUGE_VAL);
}

const std::string* text(const Call& call, size_t i) { return get<std::string>(call, i); }

std::optional<Dtype> dtype_or(const Call& call, size_t i, Dtype otherwise) {
  if (is_absent(call, i)) return otherwise;
  const auto* dtype = get<Dtype>(call, i);
  return dtype ? std::optional(*dtype) : std::nullopt;
}

std::optional<MemoryFormat> format_or(const Call& call, size_t i, MemoryFormat otherwise) {
  if (is_absent(call, i)) return otherwise;
  const auto* format = get<MemoryFormat>(call, i);
  return format ? std::optional(*format) : std::nullopt;
}

std::optional<size_t> dimension(int64_t dim, size_t rank) {
  const int64_t n = rank == 0 ? 1 : static_cast<int64_t>(rank);
  if (dim < -n || dim >= n) return std::nullopt;
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

std::optional<size_t> dimension(const Call& call, size_t i, size_t rank) {
  const auto dim = number(call, i);
  return dim ? dimension(*dim, rank) : std::nullopt;
}

// ---- results -------------------------------------------------------------------------------------------------------

TensorType row_major(Dtype dtype, Device device, Sizes sizes) {
  Sizes strides = types::contiguous_strides(sizes);
  return {dtype, device, std::move(sizes), std::move(strides), 0};
}

Result fresh(TensorType type) {
  type.offset = 0;
  return {Result::Kind::kFresh, std::move(type), -1, -1};
}
Result fresh(Dtype dtype, Device device, Sizes sizes) { return fresh(row_major(dtype, device, std::move(sizes))); }
Result view_of(int argument, TensorType type) { return {Result::Kind::kView, std::move(type), argument, -1}; }
Result same_as(const Call& call, int argument) {
  return {Result::Kind::kSame, *tensor(call, static_cast<size_t>(argument)), argument, -1};
}
Result undefined() { return {Result::Kind::kUndefined, {}, -1, -1}; }

Results just(Result result) {
  std::vector<Result> results;
  results.push_back(std::move(result));
  return results;
}

Results first_argument(const Call& call) {
  if (!tensor(call, 0)) return std::nullopt;
  return just(same_as(call, 0));
}

// ---- truths about sizes --------------------------------------------------------------------------------------------

// The least value of each symbol that the graph's conditions promise, as in 2 <= s0.
static std::vector<int64_t> least_values(const Call& call) {
  std::vector<int64_t> least;
  if (!call.graph) return least;
  for (const types::Condition& condition : call.graph->conditions) {
    if (!condition.left.is_constant() || condition.right.is_constant()) continue;
    if (condition.relation != types::Relation::kLe && condition.relation != types::Relation::kLt) continue;
    std::vector<uint32_t> symbols;
    condition.right.collect_symbols(symbols);
    if (symbols.size() != 1 || condition.right != Expr::symbol(symbols[0])) continue;
    const int64_t low = condition.left.value_or(0) + (condition.relation == types::Relation::kLt ? 1 : 0);
    if (least.size() <= symbols[0]) least.resize(symbols[0] + 1, 0);
    least[symbols[0]] = std::max(least[symbols[0]], low);
  }
  return least;
}

Truth equal(const Call& call, const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a.is_constant() && b.is_constant()) return false;
  if (const Truth answer = types::known({a, types::Relation::kEq, b}, least_values(call))) return answer;
  if (call.decide) return call.decide({a, types::Relation::kEq, b});
  return std::nullopt;
}

std::optional<int64_t> fixed_size(const Call& call, const Expr& size) {
  if (size.is_constant() || !call.fix) return size.constant();
  return call.fix(size);
}

Truth less(const Call& call, const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return a.value_or(0) < b.value_or(0);
  if (const Truth answer = types::known({a, types::Relation::kLt, b}, least_values(call))) return answer;
  if (call.decide) return call.decide({a, types::Relation::kLt, b});
  return std::nullopt;
}

Truth equal(const Call& call, const Sizes& a, const Sizes& b) {
  if (a.size() != b.size()) return false;
  Truth all = true;
  for (size_t i = 0; i < a.size(); ++i) {
    const Truth one = equal(call, a[i], b[i]);
    if (one == false) return false;
    if (!one) all = std::nullopt;
  }
  return all;
}

Truth is_empty(const Call& call, const Sizes& sizes) {
  Truth some = false;
  for (const Expr& size : sizes) {
    const Truth zero = equal(call, size, 0);
    if (known(zero)) return true;
    if (!zero) some = std::nullopt;
  }
  return some;
}

std::optional<Sizes> reduced(const Sizes& sizes, const std::vector<int64_t>& dims, bool keep) {
  std::vector<bool> drop(sizes.size(), dims.empty());
  for (const int64_t dim : dims) {
    const auto d = dimension(dim, sizes.size());
    if (!d) return std::nullopt;
    if (sizes.empty()) continue;
    if (drop[*d]) return std::nullopt;  // named twice: torch raises
    drop[*d] = true;
  }
  Sizes left;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!drop[i])
      left.push_back(sizes[i]);
    else if (keep)
      left.push_back(1);
  }
  return left;
}

}  // namespace magneto::ops
