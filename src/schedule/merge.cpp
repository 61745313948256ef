// y[i0, i1] = x[i0, i1] * 2.0 over [8, 5], both contiguous: one step along i0 is five along i1, for x and for y. So
// y_flat[i0] = x_flat[i0] * 2.0 over [40], through flat views of their storage. b[i1] does not move along i0: with it
// the axes stay apart. The place in a flat view is the sum of index times stride, with the merged axis for the last one
// and 0 for the others.
#include <algorithm>

#include "schedule/merge_internal.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

class Merger {
 public:
  Merger(Program& program, const Uses& uses, const std::vector<TermId>& sizes, std::vector<Walked>& values)
      : program_(program), uses_(uses), sizes_(sizes), values_(values), fixed_(sizes.size()) {
    for (size_t k = 0; k < sizes.size(); ++k) axes_.push_back(canonical_axis(program, k));
  }

  std::optional<std::vector<TermId>> run(int64_t long_enough, size_t apart) {
    const size_t rank = sizes_.size();
    if (rank < 2 || program_.as_size(sizes_.back())->value_or(0) >= long_enough) return std::nullopt;
    first_.assign(rank, true);
    for (const Walked& w : values_) {
      own_.push_back(w.target);
      value(w.value);
      if (w.stored) place(w.into, w.place);
    }
    size_t from = rank - 1;
    while (from > apart && first_[from - 1] && !fixed_[from - 1] && !fixed_[from]) --from;
    if (from == rank - 1) return std::nullopt;
    Expr all = 1;
    for (size_t k = from; k < rank; ++k) all = all * *program_.as_size(sizes_[k]);
    rewrite(from, program_.size(all));
    std::vector<TermId> merged(sizes_.begin(), sizes_.begin() + static_cast<long>(from));
    merged.push_back(program_.size(all));
    return merged;
  }

 private:
  bool is_own(BufferId id) const { return std::find(own_.begin(), own_.end(), id) != own_.end(); }

  void fix(TermId id) {
    for (size_t k = 0; k < axes_.size(); ++k) fixed_[k] = fixed_[k] || uses_.depends(id, axes_[k]);
  }

  void value(TermId root) {
    std::vector<TermId> stack = {root};
    std::unordered_map<TermId, bool> seen;
    while (!stack.empty()) {
      const TermId id = stack.back();
      stack.pop_back();
      if (!seen.emplace(id, true).second) continue;
      const Term t = program_.term(id);
      if (t.op == Op::kAxis) fix(id);
      if (t.op == Op::kReduce) {  // its ranges are the space
        stack.push_back(t.operands[0]);
        continue;
      }
      if (!is_load(t)) {
        stack.insert(stack.end(), t.operands.begin(), t.operands.end());
        continue;
      }
      const size_t rank = program_.buffer(BufferId(t.id)).type.sizes.size();
      stack.insert(stack.end(), t.operands.begin() + static_cast<long>(rank), t.operands.end());
      if (is_own(BufferId(t.id))) continue;  // read in place: never memory
      place(BufferId(t.id), {t.operands.begin(), t.operands.begin() + static_cast<long>(rank)});
    }
  }

  void place(BufferId buffer, const std::vector<TermId>& index) {
    std::vector<std::optional<Expr>> strides;
    for (const TermId id : index)
      if (uses_.of(id).loads) fix(id);
    for (const AxisId axis : axes_) strides.push_back(stride_along(program_, uses_, buffer, index, axis));
    for (size_t k = 0; k < axes_.size(); ++k) {
      if (!strides[k]) fixed_[k] = true;
      if (k + 1 == axes_.size() || !strides[k] || !strides[k + 1]) continue;
      if (!(*strides[k] == *program_.as_size(sizes_[k + 1]) * *strides[k + 1])) first_[k] = false;
    }
  }

  void rewrite(size_t from, TermId extent) {
    Rewrite* self = nullptr;
    const auto flat = [&](BufferId buffer, const std::vector<TermId>& index) {
      const types::TensorType type = program_.buffer(buffer).type;
      TermId sum;
      const auto add = [&](TermId part) { sum = sum.valid() ? program_.binary(Op::kAdd, sum, part) : part; };
      const TermId zero = program_.constant_int(0, Dtype::kI64);
      for (size_t d = 0; d < index.size(); ++d) {
        const TermId at = (*self)(index[d]);
        if (at == zero) continue;
        const bool one = type.strides[d] == Expr(1);
        add(one ? at : program_.binary(Op::kMul, at, program_.size(type.strides[d])));
      }
      if (!(type.offset == Expr(0))) add(program_.size(type.offset));
      return sum.valid() ? sum : zero;
    };
    const auto moves = [&](const std::vector<TermId>& index) {
      for (const TermId id : index)
        for (size_t k = from; k < axes_.size(); ++k)
          if (uses_.depends(id, axes_[k])) return true;
      return false;
    };
    Rewrite change(program_, [&](TermId id) -> std::optional<TermId> {
      const Term t = program_.term(id);
      if (t.op == Op::kAxis) {
        if (AxisId(t.id) == axes_.back()) return program_.axis_value(axes_[from]);
        for (size_t k = from; k + 1 < axes_.size(); ++k)
          if (AxisId(t.id) == axes_[k]) return program_.constant_int(0, Dtype::kI64);
        return id;
      }
      if (t.op == Op::kReduce) {
        std::vector<Range> ranges;
        for (const Range& r : program_.ranges_of(t))
          if (std::find(axes_.begin() + static_cast<long>(from), axes_.end(), r.axis) == axes_.end())
            ranges.push_back(r);
        ranges.push_back({axes_[from], program_.constant_int(0, Dtype::kI64), extent});
        return program_.reduce(t.fold, ranges, (*self)(t.operands[0]));
      }
      if (!is_load(t) || is_own(BufferId(t.id))) return std::nullopt;
      const BufferId buffer(t.id);
      const size_t rank = program_.buffer(buffer).type.sizes.size();
      const std::vector<TermId> index(t.operands.begin(), t.operands.begin() + static_cast<long>(rank));
      if (!moves(index)) return std::nullopt;
      const TermId at = flat(buffer, index);
      if (t.op == Op::kLoad) return program_.load(program_.flat_view(buffer), {at});
      return program_.guarded(program_.flat_view(buffer), {at}, (*self)(t.operands[rank]),
                              (*self)(t.operands[rank + 1]));
    });
    self = &change;
    for (Walked& w : values_) {
      w.value = change(w.value);
      if (!w.stored || !moves(w.place)) continue;
      w.place = {flat(w.into, w.place)};
      w.into = program_.flat_view(w.into);
    }
  }

  Program& program_;
  const Uses& uses_;
  const std::vector<TermId>& sizes_;
  std::vector<Walked>& values_;
  std::vector<AxisId> axes_;
  std::vector<BufferId> own_;
  std::vector<bool> fixed_;  ///< used for more than a place, or not by steps of one length
  std::vector<bool> first_;  ///< by axis k: a step along it is all of k + 1, everywhere
};

}  // namespace

std::optional<std::vector<TermId>> merge_axes(Program& program, const Uses& uses, const std::vector<TermId>& sizes,
                                              std::vector<Walked>& values, int64_t long_enough, size_t apart) {
  return Merger(program, uses, sizes, values).run(long_enough, apart);
}

}  // namespace magneto::schedule
