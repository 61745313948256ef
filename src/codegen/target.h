// codegen/target.h: what a printer has to know: how its language writes one operation, one load, one loop. Everything
// else (order, copies, vectors, tails, folds, hoisting) is walk.h's, once for all targets.
//
// A value is a piece of text: a name, or an expression that may be written once where it is needed. `keep` turns it
// into a name. Text goes into scopes that lie in one another like loops; a value that does not change inside a loop is
// written into the scope around it, while the loop's own text is still being made.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/program.h"

namespace magneto::codegen {

struct Type {
  loop::Dtype dtype = loop::Dtype::kI64;
  int lanes = 1;
  friend bool operator==(const Type&, const Type&) = default;
};

struct Value {
  std::string text;
  Type type;
};

/// A place in memory, or one for each lane.
struct Access {
  enum class Kind : uint8_t { kOne, kVector, kStrided, kGather };
  loop::BufferId buffer;
  Type type;
  Kind kind = Kind::kOne;
  Value offset;                 ///< in elements; kGather: one for each lane
  Value stride;                 ///< kStrided: elements from lane to lane
  const Value* mask = nullptr;  ///< read only where it holds (one bool, or one for each lane)
  const Value* otherwise = nullptr;
};

/// What a target knows where several threads share a point. They have no vectors: values have one lane, and `copies` of
/// them. A *group* is a few neighbouring elements that one thread reads or writes at once.
class Sharing {
 public:
  virtual ~Sharing() = default;
  virtual int threads() const = 0;
  /// Threads stand in rows of `along`: the place of this one in its row, and the number of the row. i64.
  virtual Value thread_along(int along) = 0;
  virtual Value thread_across(int along) = 0;

  virtual Value aligned(const std::vector<Access>& places, int group) = 0;  ///< whether all may be groups; a bool
  virtual Value load_group(const Access& first, int group) = 0;             ///< a name
  virtual Value of_group(const Value& group, int k) = 0;
  virtual void store_group(const Access& first, const std::vector<Value>& values) = 0;

  /// The fold of what all threads have that stand at one place of their rows; `along` 1: all threads.
  virtual Value shared(loop::Fold fold, const Value& a, int along) = 0;
  virtual void shared_position(loop::Fold fold, Value& value, Value& position, int along) = 0;
  virtual void meet() = 0;                        ///< all threads wait for one another, and see what each has stored
  virtual void when(const Value& condition) = 0;  ///< the next store or update is made only where it holds
  virtual void unroll_next(int times) = 0;        ///< the next loop, by the compiler; 0: it has one step at most
};

class Target {
 public:
  virtual ~Target() = default;

  // values
  virtual Value constant(Type type, loop::Number number) = 0;
  virtual Value symbol(uint32_t index) = 0;
  Value size(const types::Expr& size);  ///< written in scope 0: symbols are known from the start
  virtual Value unary(loop::Op op, const Value& a) = 0;
  virtual Value binary(loop::Op op, const Value& a, const Value& b) = 0;
  virtual Value where(const Value& condition, const Value& a, const Value& b) = 0;
  virtual Value fma(const Value& a, const Value& b, const Value& c) = 0;
  /// a * 2^n for a whole n (of a's type), where one instruction does it; overflow and denormal results included.
  virtual std::optional<Value> scaled(const Value& /*a*/, const Value& /*n*/) { return std::nullopt; }
  /// `result` where all lanes are `fine`, else what the library's function of one or two numbers gives.
  virtual Value library_unless(const Value& fine, const Value& result, loop::Op op, const Value& a,
                               const Value* b = nullptr) = 0;
  virtual Value cast(loop::Dtype to, const Value& a) = 0;
  virtual Value bits(loop::Dtype to, const Value& a) = 0;
  virtual Value splat(const Value& a, int lanes) = 0;
  virtual Value steps(const Value& first, int lanes) = 0;  ///< first, first + 1, ...
  virtual Value lane(const Value& a, int lane) = 0;
  virtual Value horizontal(loop::Fold fold, const Value& a) = 0;  ///< of all lanes; not argmax and argmin
  virtual Value keep(const Value& a, std::string_view hint) = 0;

  // memory
  virtual Value load(const Access& access) = 0;
  virtual void store(const Access& access, const Value& a, bool of_row) = 0;
  virtual void update(const Access& access, loop::Fold fold, const Value& a, bool atomic, bool of_row) = 0;

  // loops: `carried` are the values that the body changes through `assign`; after the loop they are what they were
  // last
  virtual Value variable(std::string_view hint, const Value& first) = 0;
  virtual void assign(Value& variable, const Value& a) = 0;
  virtual void loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
                    const std::function<void()>& body) = 0;

  virtual Sharing* sharing() { return nullptr; }  ///< none: one thread, which works with vectors

  /// Text goes into scope `depth` until the next call; scopes are numbered from the outside.
  virtual void write_at(size_t depth) = 0;
  virtual size_t writing() const = 0;
};

}  // namespace magneto::codegen
