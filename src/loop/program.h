// loop/program.h: language 2. Loop nests over buffers, on two levels of one language.
//
// *Equations* are what lowering gives: what each element is, without order and storage.
//
//   mean[i] = sum(j < 768, x[i, j]) / 768.0
//
// *Kernels* are what scheduling gives and what every printer prints: an outer space whose points are independent, and a
// body of statements for each point: values, phases (loops over an inner space), stores.
//
//   kernel mean(i < s0) threads 128 {
//     phase j < 768, vector 16, unroll 4 {
//       sum s = x[i, j]
//     }
//     store mean[i] = s / 768.0
//   }
//
// Both are made of *terms*: expressions on single elements, hash-consed in one arena, so that equal terms have equal
// ids. Indices are terms, too. An axis is a name; its range stands where it is bound. Equal names are equal axes, so
// that equal equations are made of equal terms.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "loop/op.h"
#include "types/dtype.h"
#include "types/expr.h"
#include "types/tensor_type.h"

namespace magneto::loop {

using TermId = base::Id<struct TermTag>;
using AxisId = base::Id<struct AxisTag>;
using BufferId = base::Id<struct BufferTag>;
using LocalId = base::Id<struct LocalTag>;
using types::Dtype;

/// A number of any element type: `real` for floats, `whole` for integers and bool.
struct Number {
  double real = 0;
  int64_t whole = 0;
  static Number of(double real) { return {real, 0}; }
  static Number of_int(int64_t whole) { return {0, whole}; }
};

struct Range {
  AxisId axis;
  TermId begin, end;  ///< i64; the axis takes begin, begin + 1, ..., end - 1
  friend bool operator==(const Range&, const Range&) = default;
};

struct Term {
  Op op = Op::kConstant;
  Dtype dtype = Dtype::kF32;
  Fold fold = Fold::kSum;        ///< of kReduce
  uint32_t id = 0;               ///< axis, local, buffer; of kConstant and kSize an index into a table
  std::vector<TermId> operands;  ///< of a load its indices; of kGuarded then the condition and the other value
  std::vector<AxisId> axes;      ///< of kReduce; operands: the body, then begin and end of each axis
  friend bool operator==(const Term&, const Term&) = default;
};

enum class Role : uint8_t { kIn, kOut, kTemp, kRow /* kept in registers, L1 or shared memory; belongs to a kernel */ };

struct Buffer {
  std::string name;
  types::TensorType type;
  Role role = Role::kTemp;
  BufferId of{};  ///< a flat view: element k is element k of the storage of that buffer, whose role it has
};

struct Local {
  std::string name;
  Dtype dtype = Dtype::kF32;
};

// ---- equations -----------------------------------------------------------------------------------------------------

struct Equation {
  enum class Kind : uint8_t {
    kMap,      ///< y[i, j] = term: the axes run over the sizes of y
    kScatter,  ///< scatter y from z over i < n: [ix[i]] += term; without `from`, elements nobody writes are zero
    kScan,     ///< scan y[i, j] = sum over j: term; the fold of all elements up to and including this one
    kSort,     ///< sort y, at over j descending: [i, j] term; stable; `at` takes the positions
    kExtern,   ///< extern "aten::mm" (a, b) -> (c) "rest": whole buffers, known to the caller alone
  };
  Kind kind = Kind::kMap;
  BufferId target;
  BufferId positions;         ///< kSort: i64, may be invalid
  BufferId base;              ///< kScatter: the elements that are not written; may be invalid
  std::vector<AxisId> axes;   ///< kMap, kScan, kSort: one for each size of the target
  std::vector<Range> over;    ///< kScatter
  std::vector<TermId> index;  ///< kScatter
  std::optional<Fold> fold;   ///< kScan; kScatter: none: the last one written wins
  AxisId along;               ///< kScan, kSort
  bool descending = false;    ///< kSort
  TermId value;
  bool joined = false;                  ///< with ...: computed by the same kernel as the equation before it
  std::string callee, arguments;        ///< kExtern
  bool stays = false;                   ///< kExtern: it has an effect; it runs whoever reads what it writes
  std::vector<BufferId> reads, writes;  ///< kExtern
};

// ---- kernels -------------------------------------------------------------------------------------------------------

struct Loop;

struct Statement {
  enum class Kind : uint8_t {
    kLet,     ///< let d = term
    kFold,    ///< sum s = term: a value of the row once the phase is over
    kScan,    ///< scan sum s = term: the same, and inside the phase the fold so far
    kStore,   ///< store y[i, j] = term; `overwrites` (overwrite y[k] = term): several steps may mean one place
    kUpdate,  ///< update y[k] += term; `atomic` where points of the outer space may meet
    kLoop,
  };
  Kind kind = Kind::kLet;
  LocalId local;
  std::optional<Fold> fold;  ///< kFold, kScan; kUpdate
  TermId value;
  TermId position;  ///< of argmax and argmin: the index that is reported
  BufferId buffer;
  std::vector<TermId> index;
  bool atomic = false;
  bool overwrites = false;  ///< kStore
  std::vector<Loop> loop;   ///< exactly one for kLoop
};

/// A loop of a kernel. A *phase* walks an inner space; its last axis is the one that is vectorised. *Lanes* wrap the
/// rest of the body: every value in them is a vector along the lane axis, so that phases inside them walk rows while
/// the columns stay in registers. *Each* wraps lets, phases and stores that are done for one row after the other, while
/// kept rows hold what all of them add to.
struct Loop {
  enum class Kind : uint8_t { kPhase, kLanes, kEach };
  enum class Tail : uint8_t { kScalar, kNone /* vector * unroll divides the extent of the last axis */ };
  Kind kind = Kind::kPhase;
  std::vector<Range> ranges;
  int vector = 1;        ///< elements of the last axis in one vector
  int unroll = 1;        ///< vectors in one step
  int accumulators = 1;  ///< independent partial results of each fold; at most `unroll`
  Tail tail = Tail::kScalar;
  std::vector<Statement> body;
};

struct Kernel {
  std::string name;
  size_t after = 0;             ///< so many equations run before it: the order of the text is the order of the run
  std::vector<Range> outer;     ///< independent points, in row-major order; none: one point
  int threads = 1;              ///< that share a point, on a GPU
  std::vector<BufferId> rows;   ///< role kRow
  std::vector<Statement> once;  ///< lets that hold for all points
  std::vector<Statement> body;
};

// ---- program -------------------------------------------------------------------------------------------------------

class Program {
 public:
  BufferId add_buffer(std::string name, types::TensorType type, Role role);
  BufferId flat_view(BufferId of);     ///< made once for each buffer
  AxisId axis(std::string_view name);  ///< the axis of that name
  LocalId add_local(std::string name, Dtype dtype);

  TermId constant(double value, Dtype dtype);       ///< rounded to a floating dtype
  TermId constant_int(int64_t value, Dtype dtype);  ///< wrapped to an integer dtype
  TermId boolean(bool value) { return constant_int(value, Dtype::kBool); }
  TermId size(const types::Expr& size);  ///< i64
  TermId axis_value(AxisId axis);        ///< i64
  TermId local(LocalId local);
  TermId load(BufferId buffer, std::vector<TermId> index);
  TermId guarded(BufferId buffer, std::vector<TermId> index, TermId condition, TermId otherwise);
  TermId reduce(Fold fold, const std::vector<Range>& ranges, TermId body);
  TermId cast(Dtype dtype, TermId a);
  TermId bits(Dtype dtype, TermId a);
  TermId unary(Op op, TermId a);
  TermId binary(Op op, TermId a, TermId b);  ///< folds integer expressions of symbols into one size
  TermId where(TermId condition, TermId a, TermId b);
  TermId fma(TermId a, TermId b, TermId c);

  const Term& term(TermId id) const { return terms_[id.index()]; }
  size_t terms() const { return terms_.size(); }
  const Buffer& buffer(BufferId id) const { return buffers_[id.index()]; }
  Buffer& buffer(BufferId id) { return buffers_[id.index()]; }
  /// The buffer that has the memory: of a view the one it is a view of.
  BufferId storage(BufferId id) const { return buffer(id).of.valid() ? buffer(id).of : id; }
  size_t buffers() const { return buffers_.size(); }
  const std::string& axis_name(AxisId id) const { return axes_[id.index()]; }
  size_t axes() const { return axes_.size(); }
  const Local& local_of(LocalId id) const { return locals_[id.index()]; }
  size_t locals() const { return locals_.size(); }
  Number number(const Term& constant) const { return numbers_[constant.id]; }
  const types::Expr& size_of(const Term& size) const { return sizes_[size.id]; }
  std::vector<Range> ranges_of(const Term& reduce) const;
  /// The integer expression of symbols that an i64 term is, if it is one.
  std::optional<types::Expr> as_size(TermId id) const;

  std::vector<Equation> equations;
  std::vector<Kernel> kernels;

 private:
  TermId intern(Term term);
  TermId number(Number value, Dtype dtype);

  size_t slot_of(const Term& term, size_t hash) const;  ///< where it is, or a free one

  static constexpr uint32_t kFree = UINT32_MAX;
  std::vector<Term> terms_;
  std::vector<size_t> hashes_;   ///< of each term
  std::vector<uint32_t> slots_;  ///< terms by their hash; a power of two, at most half of it taken
  std::vector<Buffer> buffers_;
  std::unordered_map<BufferId, BufferId> view_of_;
  std::vector<std::string> axes_;
  std::unordered_map<std::string, AxisId> axis_of_;
  std::vector<Local> locals_;
  std::vector<Number> numbers_;
  std::map<std::pair<uint64_t, uint8_t>, uint32_t> number_of_;
  std::vector<types::Expr> sizes_;
  std::unordered_map<types::Expr, uint32_t> size_index_;
};

/// Calls `equation` and `kernel` with those of the program, in the order in which they run.
template <class OnEquation, class OnKernel>
void in_order(const Program& program, const OnEquation& equation, const OnKernel& kernel) {
  size_t next = 0;
  const auto up_to = [&](size_t end) {
    for (; next < end && next < program.equations.size(); ++next) equation(program.equations[next]);
  };
  for (const Kernel& k : program.kernels) {
    up_to(k.after);
    kernel(k);
  }
  up_to(program.equations.size());
}

/// Calls `visit` with every term that a statement reads itself, in order: index, value, position; not those of loops.
template <class Visit>
void for_each_term(const Statement& statement, const Visit& visit) {
  for (const TermId id : statement.index) visit(id);
  if (statement.value.valid()) visit(statement.value);
  if (statement.position.valid()) visit(statement.position);
}

double round_to(Dtype dtype, double value);   ///< the nearest f64, f32, f16 or bf16, ties to even
int64_t wrap_to(Dtype dtype, int64_t value);  ///< modulo 2^n; bool: not zero

}  // namespace magneto::loop
