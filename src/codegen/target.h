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

  // loops: `carried` are the values that the body changes through `assign`; behind the loop they are what they were
  // last
  virtual Value variable(std::string_view hint, const Value& first) = 0;
  virtual void assign(Value& variable, const Value& a) = 0;
  virtual void loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
                    const std::function<void()>& body) = 0;

  // threads that share a point; a CPU has one
  virtual Value first_of_thread(const Value& begin) { return begin; }
  virtual int64_t thread_step(int lanes) { return lanes; }        ///< from one copy of an unrolled loop to the next
  virtual bool vectors() const { return true; }                   ///< false: a vector is so many threads' work
  virtual Value shared(loop::Fold, const Value& a) { return a; }  ///< the fold of what all threads have
  virtual void shared_position(loop::Fold, Value&, Value&) {}
  /// Behind a phase; `rereads`: one phase of the kernel may read or overwrite what another one stored.
  virtual void end_phase(bool /*rereads*/) {}

  /// Text goes into scope `depth` until the next call; scopes are numbered from the outside.
  virtual void write_at(size_t depth) = 0;
  virtual size_t writing() const = 0;
};

}  // namespace magneto::codegen
