// aten/probe.cpp
#include "aten/probe_internal.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>

#include "aten/convert_internal.h"
#include "aten/state_internal.h"
#include "types/fit.h"

namespace magneto::aten {

namespace {

using graph::ValueId;
using types::Expr;
using Kind = ops::Result::Kind;

constexpr size_t kMostSymbols = 6;
constexpr int64_t kMostElements = 1 << 16;  ///< that an operator is tried on

class Probing {
 public:
  Probing(const Operator& op, std::span<const graph::Arg> args, const graph::Graph& graph, Symbols& symbols)
      : op_(op), args_(args), graph_(graph), symbols_(symbols) {}

  Results run() {
    if (op_.writes_anything || op_.is_foreign || op_.gives_numbers || op_.takes_out) return std::nullopt;
    if (op_.returns == 0) return std::vector<ops::Result>{};
    if (op_.way != Way::kRecord && op_.way != Way::kAtOnce) return std::nullopt;
    if (!collect() || !ask()) return std::nullopt;
    std::vector<ops::Result> results;
    for (size_t r = 0; r < answers_[0].size(); ++r) {
      auto result = fitted(r);
      if (!result) return std::nullopt;
      results.push_back(std::move(*result));
    }
    for (const std::vector<uint32_t>& group : groups_)
      for (const uint32_t s : group) symbols_.equal(Expr::symbol(group.front()), Expr::symbol(s));
    for (ops::Result& result : results)
      for (Expr& size : result.type.sizes) admit(size);
    return results;
  }

 private:
  // ---- what is asked -----------------------------------------------------------------------------------------------

  /// The symbols that the arguments depend on, and all sizes. False: an argument that cannot be given.
  bool collect() {
    std::vector<uint32_t> symbols;
    const auto note = [&](const Expr& expr) {
      expr.collect_symbols(symbols);
      if (std::find(known_.begin(), known_.end(), expr) == known_.end()) known_.push_back(expr);
    };
    const auto note_tensor = [&](ValueId id) {
      if (!id.valid()) return;
      ++tensors_;
      for (const Expr& size : graph_.value(id).type.sizes) note(size);
      for (const Expr& stride : graph_.value(id).type.strides) stride.collect_symbols(symbols);
      is_on_cpu_ = is_on_cpu_ && graph_.value(id).type.device == types::Device{};
    };
    for (const graph::Arg& arg : args_) {
      if (std::holds_alternative<graph::Real>(arg)) return false;
      if (const auto* id = std::get_if<ValueId>(&arg)) note_tensor(*id);
      if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg))
        for (const ValueId id : *ids) note_tensor(id);
      if (const auto* number = std::get_if<Expr>(&arg)) note(*number);
      if (const auto* numbers = std::get_if<types::Sizes>(&arg))
        for (const Expr& number : *numbers) note(number);
      if (const auto* device = std::get_if<types::Device>(&arg)) is_on_cpu_ = is_on_cpu_ && *device == types::Device{};
    }
    std::sort(symbols.begin(), symbols.end());
    symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
    used_ = std::move(symbols);
    return !used_.empty() && used_.size() <= kMostSymbols;
  }

  bool is_allowed(const std::vector<int64_t>& point) const {
    return std::all_of(used_.begin(), used_.end(), [&](uint32_t s) { return point[s] >= 2; }) &&
           std::all_of(symbols_.conditions().begin(), symbols_.conditions().end(),
                       [&](const types::Condition& condition) { return condition.holds(point); });
  }

  /// Asks at the sizes of now, at others of one symbol, and at others of two. Where torch refuses another size of one
  /// symbol alone, two that are equal may have to be so. False: there are too few answers.
  bool ask() {
    if (!add(symbols_.hints())) return false;
    for (const uint32_t s : used_)
      if (std::none_of(groups_.begin(), groups_.end(), [&](const auto& group) { return holds(group, s); }))
        groups_.push_back(equal_to(s));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const size_t others = groups_.size();
      bool is_answered = move_one(g);
      for (size_t h = 0; h < others && !is_answered; ++h) {
        if (h == g || now(h) != now(g)) continue;
        const std::vector<uint32_t> alone = groups_[g];
        groups_[g].insert(groups_[g].end(), groups_[h].begin(), groups_[h].end());
        if (!(is_answered = move_one(g))) {
          groups_[g] = alone;
          continue;
        }
        groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(h));
        if (h < g) --g;
      }
      if (!is_answered) return false;
    }
    for (size_t a = 0; a < groups_.size(); ++a)
      for (size_t b = a + 1; b < groups_.size(); ++b) {
        for (const auto& [i, j] :
             {std::pair<int64_t, int64_t>{1, 1}, {2, 3}, {5, 2}, {-1, -1}, {-2, -1}, {-1, -2}, {4, -1}, {-1, 4}})
          add(moved({{a, now(a) + i}, {b, now(b) + j}}));
        add(moved({{a, now(b) + 1}, {b, now(a)}}));
      }
    return true;
  }
  static bool holds(const std::vector<uint32_t>& group, uint32_t symbol) {
    return std::find(group.begin(), group.end(), symbol) != group.end();
  }
  /// By the conditions.
  std::vector<uint32_t> equal_to(uint32_t symbol) const {
    std::vector<uint32_t> group = {symbol};
    for (size_t k = 0; k < group.size(); ++k) {
      const Expr one = Expr::symbol(group[k]);
      for (const types::Condition& condition : symbols_.conditions()) {
        if (condition.relation != types::Relation::kEq || (condition.left != one && condition.right != one)) continue;
        const Expr& other = condition.left == one ? condition.right : condition.left;
        std::vector<uint32_t> of;
        other.collect_symbols(of);
        if (of.size() == 1 && other == Expr::symbol(of[0]) && !holds(group, of[0])) group.push_back(of[0]);
      }
    }
    return group;
  }
  int64_t now(size_t group) const { return symbols_.hints()[groups_[group].front()]; }
  std::vector<int64_t> moved(std::initializer_list<std::pair<size_t, int64_t>> moves) const {
    std::vector<int64_t> point = symbols_.hints();
    for (const auto& [group, to] : moves)
      for (const uint32_t s : groups_[group]) point[s] = to;
    return point;
  }
  bool move_one(size_t group) {
    constexpr size_t kEnough = 4;
    const int64_t n = now(group);
    size_t answers = 0;
    for (const int64_t to :
         {n + 1, n + 2, n + 3, n + 4, n + 5, n + 8, 2 * n + 1, n - 1, n / 2, int64_t{4}, int64_t{3}, int64_t{2}})
      if (to != n && add(moved({{group, to}}))) ++answers;
    return answers >= kEnough;
  }

  bool add(const std::vector<int64_t>& point) {
    if (!is_allowed(point) || std::find(points_.begin(), points_.end(), point) != points_.end()) return false;
    Results answer = answer_at(point);
    if (!answer || (!answers_.empty() && answer->size() != answers_[0].size())) return false;
    points_.push_back(point);
    answers_.push_back(std::move(*answer));
    return true;
  }

  // ---- one answer --------------------------------------------------------------------------------------------------

  Results answer_at(const std::vector<int64_t>& point) const {
    try {
      int64_t elements = 0;
      std::vector<c10::IValue> arguments;
      for (size_t a = 0; a < args_.size(); ++a) arguments.push_back(argument_at(a, point, elements));
      if (op_.meta) return results_by_kernel(op_, arguments);
      if (!is_on_cpu_ || op_.random || elements > kMostElements || trusts_its_arguments()) return std::nullopt;
      return results_by_trial(op_, arguments);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  /// Only torch's own code calls it: with sizes that do not belong together it might write beside its tensors.
  bool trusts_its_arguments() const {
    if (op_.declared && op_.declared->checks_arguments) return false;
    const std::string_view name = std::string_view(op_.name).substr(op_.name.find("::") + 2);
    const auto is_one = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (is_one("fbgemm") || is_one("packed") || is_one("quantized")) return true;  // numbers that are addresses
    return (name.starts_with("_") || is_one("backward") || is_one("native") || is_one("cudnn") || is_one("mkldnn")) &&
           tensors_ > 1;
  }

  c10::IValue argument_at(size_t a, const std::vector<int64_t>& point, int64_t& elements) const {
    const graph::Arg& arg = args_[a];
    const ArgKind kind = op_.arguments[a];
    const auto tensor = [&](ValueId id) { return id.valid() ? tensor_at(id, point, elements) : at::Tensor(); };
    if (const auto* id = std::get_if<ValueId>(&arg)) return tensor(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) {
      if (kind == ArgKind::kOptionalTensors) {
        c10::List<std::optional<at::Tensor>> list;
        for (const ValueId id : *ids) list.push_back(id.valid() ? std::optional(tensor(id)) : std::nullopt);
        return list;
      }
      c10::List<at::Tensor> list;
      for (const ValueId id : *ids) list.push_back(tensor(id));
      return list;
    }
    if (const auto* number = std::get_if<Expr>(&arg)) {
      const graph::Arg now = Expr(number->evaluate(point));
      return kind == ArgKind::kTensor ? c10::IValue(wrapped_number(now)) : to_ivalue(now, kind);
    }
    if (const auto* numbers = std::get_if<types::Sizes>(&arg)) {
      types::Sizes now;
      for (const Expr& number : *numbers) now.emplace_back(number.evaluate(point));
      return to_ivalue(now, kind);
    }
    if (kind == ArgKind::kTensor && !std::holds_alternative<std::monostate>(arg)) return wrapped_number(arg);
    return to_ivalue(arg, kind);
  }

  /// Without memory: whoever runs the operator makes some.
  at::Tensor tensor_at(ValueId id, const std::vector<int64_t>& point, int64_t& elements) const {
    const types::TensorType& type = graph_.value(id).type;
    const auto [sizes, strides] = extents_of(type, point);
    const auto meta = c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype));
    const c10::Device device = to_torch(type.device);
    const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
    const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, device)), c10::DispatchKeySet(key),
        meta);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    elements += made.numel();
    return made;
  }

  // ---- what fits ---------------------------------------------------------------------------------------------------

  std::optional<ops::Result> fitted(size_t r) const {
    const ops::Result& first = answers_[0][r];
    for (const std::vector<ops::Result>& answer : answers_)
      if (answer[r].kind != first.kind || answer[r].type.dtype != first.type.dtype ||
          answer[r].type.sizes.size() != first.type.sizes.size() || answer[r].type.offset != Expr(0))
        return std::nullopt;
    if (first.kind == Kind::kUndefined) return first;
    if (first.kind != Kind::kFresh) return std::nullopt;
    ops::Result result = first;
    std::vector<int64_t> seen;
    std::vector<uint32_t> symbols;
    for (const auto& group : groups_) symbols.push_back(group.front());
    for (size_t d = 0; d < first.type.sizes.size(); ++d) {
      seen.clear();
      for (const auto& answer : answers_) seen.push_back(answer[r].type.sizes[d].value_or(0));
      const auto size = types::fit(points_, seen, symbols, known_);
      if (!size) return std::nullopt;
      result.type.sizes[d] = *size;
    }
    if (!fit_strides(r, result.type)) return std::nullopt;
    return result;
  }

  /// Without gaps, in some order of the dimensions that is the same at all sizes.
  bool fit_strides(size_t r, types::TensorType& type) const {
    const types::Sizes& now = answers_[0][r].type.strides;
    std::vector<size_t> order(now.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return now[a].value_or(0) > now[b].value_or(0); });
    Expr stride = 1;
    for (size_t k = order.size(); k-- > 0; stride = stride * type.sizes[order[k]]) type.strides[order[k]] = stride;
    for (size_t p = 0; p < points_.size(); ++p)
      for (size_t d = 0; d < now.size(); ++d)
        if (answers_[p][r].type.strides[d] != Expr(type.strides[d].evaluate(points_[p]))) return false;
    return true;
  }

  /// Sizes of 0 and 1 behave differently, and are never symbols.
  void admit(Expr& size) {
    if (size.is_constant()) return;
    if (symbols_.hint(size) < 2)
      size = symbols_.fix(size);
    else
      symbols_.less(1, size);
  }

  const Operator& op_;
  const std::span<const graph::Arg> args_;
  const graph::Graph& graph_;
  Symbols& symbols_;
  bool is_on_cpu_ = true;
  size_t tensors_ = 0;
  std::vector<Expr> known_;
  std::vector<uint32_t> used_;
  std::vector<std::vector<uint32_t>> groups_;  ///< of those: symbols that are equal
  types::Points points_;
  std::vector<std::vector<ops::Result>> answers_;
};

}  // namespace

Results results_by_probing(const Operator& op, std::span<const graph::Arg> args, const graph::Graph& graph,
                           Symbols& symbols) {
  // The operator itself has run, and has warned of what there is to warn of.
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard nobody_hears(&silent);
  return Probing(op, args, graph, symbols).run();
}

}  // namespace magneto::aten
