// codegen/llvm/target_internal.h: a function of LLVM IR being written.
//
// Values are SSA names or constants. A scope is the text from one label to the next, inside one loop; equal
// instructions without effect are written once in a scope and those inside it. Half precision is LLVM's half; bf16 is
// its bits in an i16, since its conversions differ from machine to machine. A bool is an i1, and a byte in memory.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/machine.h"
#include "codegen/target.h"
#include "loop/uses.h"

namespace magneto::codegen::llvm {

class LlvmTarget : public Target {
 public:
  LlvmTarget(const loop::Program& program, const loop::Kernel& kernel, const Machine& machine,
             std::map<std::string, std::string>& declarations)
      : program_(program), kernel_(kernel), machine_(machine), declarations_(declarations) {}

  std::string function(const std::string& name, const loop::Uses& uses);

  Value constant(Type type, loop::Number number) override;
  Value symbol(uint32_t index) override { return symbols_.at(index); }
  Value unary(loop::Op op, const Value& a) override;
  Value binary(loop::Op op, const Value& a, const Value& b) override;
  Value where(const Value& condition, const Value& a, const Value& b) override;
  Value fma(const Value& a, const Value& b, const Value& c) override;
  Value library_unless(const Value& fine, const Value& result, loop::Op op, const Value& a, const Value* b) override;
  std::optional<Value> scaled(const Value& a, const Value& n) override;
  Value cast(loop::Dtype to, const Value& a) override;
  Value bits(loop::Dtype to, const Value& a) override;
  Value splat(const Value& a, int lanes) override;
  Value steps(const Value& first, int lanes) override;
  Value lane(const Value& a, int lane) override;
  Value horizontal(loop::Fold fold, const Value& a) override;
  Value keep(const Value& a, std::string_view) override { return a; }
  Value load(const Access& access) override;
  void store(const Access& access, const Value& a, bool of_row) override;
  void update(const Access& access, loop::Fold fold, const Value& a, bool atomic, bool of_row) override;
  Value variable(std::string_view, const Value& first) override { return first; }
  void assign(Value& variable, const Value& a) override { variable = a; }
  void loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
            const std::function<void()>& body) override;
  void write_at(size_t depth) override { at_ = depth; }
  size_t writing() const override { return at_; }

 private:
  struct Scope {
    std::string text, label;
    std::map<std::string, std::string> known;
  };

  std::string fresh() { return "%v" + std::to_string(++count_); }
  void line(const std::string& text) { scopes_[at_].text += "  " + text + "\n"; }
  /// An instruction without effect; `type` is that of its result.
  Value pure(const std::string& instruction, Type type);
  Value effect(const std::string& instruction, Type type);  ///< one whose place matters: a load
  /// A call of an intrinsic or library function; operands are typed texts.
  Value call(const std::string& name, Type result, const std::string& operands, const std::string& parameters,
             const std::string& flags = "");
  Value intrinsic(const std::string& name, std::initializer_list<const Value*> operands);
  Value by_lanes(const std::string& name, std::initializer_list<const Value*> operands);  ///< of the math library
  Value one_operand(const std::string& instruction, const Value& a);
  Value two_operands(const std::string& instruction, const Value& a, const Value& b);
  Value convert(const std::string& instruction, const Value& a, loop::Dtype to);
  Value integer_division(loop::Op op, const Value& a, const Value& b);
  Value real_division(loop::Op op, const Value& a, const Value& b);
  Value integer_power(const Value& a, const Value& b);
  Value extreme(loop::Op op, const Value& a, const Value& b);
  Value shift(loop::Op op, const Value& a, const Value& b);
  Value compare(loop::Op op, const Value& a, const Value& b);
  void fault_where(const Value& condition);     ///< sets the fault flag when it holds in any lane
  std::string address(const Access& access);    ///< of one place
  std::string addresses(const Access& access);  ///< of one for each lane, typed
  Value from_memory(const Value& a, loop::Dtype dtype);
  Value in_memory(const Value& a);

  const loop::Program& program_;
  const loop::Kernel& kernel_;
  const Machine& machine_;
  std::map<std::string, std::string>& declarations_;
  std::vector<Scope> scopes_;
  size_t at_ = 0;
  int count_ = 0, labels_ = 0;
  std::map<uint32_t, Value> symbols_;
  std::map<loop::BufferId, std::string> pointers_;
};

std::string type_name(Type type);    ///< float, <16 x float>
std::string typed(const Value& a);   ///< <16 x float> %3
std::string mangled(Type type);      ///< v16f32, as intrinsics are named
std::string memory_type(Type type);  ///< bool is a byte there
bool is_literal(const Value& a);
std::optional<int64_t> literal(const Value& a);  ///< the integer that it is, in every lane

}  // namespace magneto::codegen::llvm
