// ops/rules_internal.h: what shape rules are made of.
//
// A rule answers exactly or not at all, so every question about sizes has three answers: yes, no, unknown (Truth). A
// helper that meets something unknown returns nothing, and so does the rule. Numbers are compared at once; with symbols
// an answer is known when the normal forms or the bounds of the symbols (from the graph's conditions) decide it.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace magneto::ops {

using types::Device;
using types::Dtype;
using types::Expr;
using types::MemoryFormat;
using types::Sizes;
using types::TensorType;

using Results = std::optional<std::vector<Result>>;
using Truth = std::optional<bool>;

// ---- arguments (arguments.cpp) -------------------------------------------------------------------------------------

const TensorType* tensor(const Call& call, size_t i);  ///< nullptr: argument i is no defined tensor
bool is_absent(const Call& call, size_t i);            ///< none, or an undefined tensor
inline bool on_cpu(const TensorType& type) { return type.device.kind == types::Device::Kind::kCpu; }
/// The tensors of a list, or nothing when one is missing.
std::optional<std::vector<const TensorType*>> tensors(const Call& call, size_t i);
std::optional<Expr> integer(const Call& call, size_t i);
std::optional<int64_t> number(const Call& call, size_t i);  ///< an integer without symbols
const Sizes* integers(const Call& call, size_t i);          ///< nullptr: no list of integers
std::optional<std::vector<int64_t>> numbers(const Call& call, size_t i);
std::optional<bool> flag(const Call& call, size_t i);
std::optional<double> real(const Call& call, size_t i);  ///< a float, or an integer without symbols
/// A float that is known when the graph is called. The rule holds for each value it may have; a number that no rule
/// took is made a constant.
bool takes_real(const Call& call, size_t i);
/// The same, and the rule holds for those values only that the element types of the call can hold: torch converts the
/// number, and raises an error for the others.
bool converts_real(const Call& call, size_t i);
/// The same, and the rule holds for those values only that are no NaN.
bool orders_real(const Call& call, size_t i);
/// The rule holds between these numbers, both included.
bool takes_between(const Call& call, size_t i, double least, double most);
/// The rule holds for 0 and what is above it; for what is above it.
bool takes_unless_negative(const Call& call, size_t i);
bool takes_positive(const Call& call, size_t i);
/// A rule that asks nothing of these numbers: it has an answer whatever they are.
template <TypeRule rule, size_t... numbers>
std::optional<std::vector<Result>> with_reals(const Call& call) {
  (takes_real(call, numbers), ...);
  return rule(call);
}
const std::string* text(const Call& call, size_t i);
/// The dtype argument, `otherwise` when it is none; nothing when it is something else.
std::optional<Dtype> dtype_or(const Call& call, size_t i, Dtype otherwise);
/// The memory format argument, `otherwise` when it is none; nothing when it is something else.
std::optional<MemoryFormat> format_or(const Call& call, size_t i, MemoryFormat otherwise);
/// A dimension in [0, rank), counted from the end when negative. A tensor without dimensions has the dimension 0, too.
std::optional<size_t> dimension(int64_t dim, size_t rank);
std::optional<size_t> dimension(const Call& call, size_t i, size_t rank);

// ---- results -------------------------------------------------------------------------------------------------------

TensorType row_major(Dtype dtype, Device device, Sizes sizes);
Result fresh(TensorType type);
Result fresh(Dtype dtype, Device device, Sizes sizes);  ///< row-major
Result view_of(int argument, TensorType type);
Result same_as(const Call& call, int argument);
Result undefined();
Results just(Result result);

// ---- truths about sizes (arguments.cpp) ----------------------------------------------------------------------------

Truth equal(const Call& call, const Expr& a, const Expr& b);
Truth less(const Call& call, const Expr& a, const Expr& b);             ///< a < b
std::optional<int64_t> fixed_size(const Call& call, const Expr& size);  ///< as a number; a symbol becomes one if it may
inline bool known(Truth truth) { return truth.value_or(false); }        ///< known to hold
Truth equal(const Call& call, const Sizes& a, const Sizes& b);
inline bool same(const Call& call, const Sizes& a, const Sizes& b) { return known(equal(call, a, b)); }
Truth is_empty(const Call& call, const Sizes& sizes);  ///< has no elements

// ---- layouts (layout.cpp) ------------------------------------------------------------------------------------------

Truth contiguous(const Call& call, const TensorType& type);
bool row_major(const Call& call, const TensorType& type);  ///< it has the strides of a fresh tensor, all of them
Truth contiguous_in(const Call& call, const TensorType& type, MemoryFormat format);
Truth dense(const Call& call, const TensorType& type);  ///< non-overlapping and dense
std::optional<MemoryFormat> suggested_format(const Call& call, const TensorType& type);
std::optional<Sizes> strides_in(const Sizes& sizes, MemoryFormat format);  ///< of a fresh tensor
/// Strides of empty_like with preserve_format: those of a dense tensor, else dense ones in the same order.
std::optional<Sizes> strides_like(const Call& call, const TensorType& type);
/// A fresh tensor in the layout that `type` suggests: channels last, or row-major.
std::optional<Result> fresh_in_suggested(const Call& call, Dtype dtype, Sizes sizes, const TensorType& of);
std::optional<Result> fresh_like(const Call& call, const TensorType& type, Dtype dtype, MemoryFormat format);

// ---- type promotion (promotion.cpp) --------------------------------------------------------------------------------

/// A tensor or a Python number among the operands of an elementwise operator.
struct Operand {
  TensorType type;
  bool wrapped = false;  ///< a Python number
};
std::optional<Operand> operand(const Call& call, size_t i);
/// Operands of these arguments; nothing when one is neither tensor nor number.
std::optional<std::vector<Operand>> operands(const Call& call, std::initializer_list<size_t> arguments);

std::optional<Dtype> promote(Dtype a, Dtype b);
std::optional<Dtype> common_dtype(const Call& call, std::span<const Operand> operands);
bool can_cast(Dtype from, Dtype to);
/// Whether the number at argument i can be stored as `dtype`: torch refuses a number beyond its range.
bool number_fits(const Call& call, size_t i, Dtype dtype);
std::optional<Device> common_device(std::span<const Operand> operands);
Dtype real_dtype(Dtype dtype);  ///< of the parts of a complex number
bool is_plain(Dtype dtype);     ///< bool, the common integers, f16 to f64, c64, c128

/// Kinds of element types, for what an operator accepts.
enum Accept : unsigned {
  kBools = 1,
  kIntegers = 2,
  kFloats = 4,
  kComplexes = 8,
  kReals = 6,
  kNoComplex = 7,
  kAll = 15,
  kNoBool = 14,
  kInexact = 12,
  kBits = 3
};
bool accepts(unsigned accepted, Dtype dtype);

// ---- elementwise operators (iterator.cpp) --------------------------------------------------------------------------

std::optional<Sizes> broadcast(const Call& call, const Sizes& a, const Sizes& b);
std::optional<Sizes> broadcast(const Call& call, std::span<const Operand> operands);
/// Sizes and strides of the fresh result of an elementwise operator, as TensorIterator chooses them. `common`: operands
/// of another dtype are converted to it first.
struct Layout {
  Sizes sizes, strides;
};
std::optional<Layout> iterate(const Call& call, std::vector<Operand> operands, std::optional<Dtype> common);
/// The fresh result of an elementwise operator over `operands`, with element type `result`.
Results elementwise(const Call& call, const std::vector<Operand>& operands, std::optional<Dtype> common, Dtype result);
/// The first argument, when a result of `sizes` and dtype `from` can be stored in it; it must not overlap itself.
Results in_place(const Call& call, const Sizes& sizes, Dtype from);

// ---- shared by families --------------------------------------------------------------------------------------------

/// sizes without (or with 1 for) the dimensions of `dims`; none of them, or no list at all, stands for all.
std::optional<Sizes> reduced(const Sizes& sizes, const std::vector<int64_t>& dims, bool keep);

/// Rules of operators that write their first argument and return it, whatever the others are.
Results first_argument(const Call& call);

inline constexpr int kFirst[] = {0};  ///< Op::writes of in-place operators

std::span<const Op> activation_ops();
std::span<const Op> attention_ops();
std::span<const Op> convolution_ops();
std::span<const Op> distance_ops();
std::span<const Op> factory_ops();
std::span<const Op> indexing_ops();
std::span<const Op> joining_ops();
std::span<const Op> loss_ops();
std::span<const Op> matmul_ops();
std::span<const Op> norm_ops();
std::span<const Op> pointwise_ops();
std::span<const Op> pooling_ops();
std::span<const Op> random_ops();
std::span<const Op> reduction_ops();
std::span<const Op> scan_ops();
std::span<const Op> scattered_view_ops();
std::span<const Op> unary_ops();
std::span<const Op> view_ops();

}  // namespace magneto::ops
