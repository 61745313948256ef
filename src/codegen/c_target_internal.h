// codegen/c_target_internal.h: what C++ for a CPU and CUDA C++ have in common: scalar expressions, names, loops.
//
// Scalars of half types are their bits (f16 and bf16 are unsigned short); bool is bool, and a byte in memory.
#pragma once
#include <functional>
#include <set>
#include <string>

#include "codegen/scopes_internal.h"
#include "codegen/target.h"

namespace magneto::codegen {

class CTarget : public Target {
 public:
  CTarget(const loop::Program& program, const loop::Kernel& kernel, std::set<std::string>& library_names,
          std::string& library)
      : program_(program), kernel_(kernel), library_names_(library_names), library_(library) {
    scopes_.open();
  }

  Value constant(Type type, loop::Number number) override;
  Value symbol(uint32_t index) override;
  Value unary(loop::Op op, const Value& a) override;
  Value binary(loop::Op op, const Value& a, const Value& b) override;
  Value where(const Value& condition, const Value& a, const Value& b) override;
  Value fma(const Value& a, const Value& b, const Value& c) override;
  Value library_unless(const Value& fine, const Value& result, loop::Op op, const Value& a, const Value* b) override;
  Value cast(loop::Dtype to, const Value& a) override;
  Value bits(loop::Dtype to, const Value& a) override;
  Value splat(const Value& a, int lanes) override;
  Value steps(const Value& first, int lanes) override;
  Value lane(const Value& a, int lane) override;
  Value horizontal(loop::Fold fold, const Value& a) override;
  Value keep(const Value& a, std::string_view hint) override;
  Value load(const Access& access) override;
  void store(const Access& access, const Value& a, bool of_row) override;
  void update(const Access& access, loop::Fold fold, const Value& a, bool atomic, bool of_row) override;
  Value variable(std::string_view hint, const Value& first) override;
  void assign(Value& variable, const Value& a) override;
  void loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
            const std::function<void()>& body) override;
  void write_at(size_t depth) override { scopes_.write_at(depth); }
  size_t writing() const override { return scopes_.at(); }

 protected:
  virtual std::string function_head() const = 0;  ///< static inline, __device__
  /// How the language calls its own f(x) of the math library, for one element.
  virtual std::string library_call(loop::Op op, loop::Dtype dtype, const std::string& operands) const = 0;
  virtual bool uses_formulas() const { return false; }
  /// A fault is a word that kernels set, and their functions take a pointer to it; else `out_of_bounds` ends the
  /// kernel.
  virtual bool sets_fault() const { return true; }
  virtual std::string out_of_bounds() { return "*fault = 1;"; }
  virtual std::string_view before_loop() const { return ""; }   ///< a line of its own
  virtual Value half_of(loop::Dtype half, const Value& a) = 0;  ///< of an f32, any number of lanes
  virtual Value from_half(const Value& a) = 0;                  ///< to f32

  /// The type of an element in memory, and the element from what was read there. A bool is a byte, and any but zero
  /// means true: other memory that is viewed as bools has all of them.
  static std::string_view memory_name(loop::Dtype dtype);
  static std::string from_memory(const std::string& element, loop::Dtype dtype);

  /// A function of the text's own library: made once for a text, by `make`, and called.
  void need(const std::string& name, const std::function<std::string()>& make);
  std::string type(Type type);  ///< its name; a vector type is declared before its first use
  std::string list(std::initializer_list<const Value*> operands) const;
  /// f(a, b, ...) for one element or, lane by lane, for vectors. `scalar` makes the text of the function for one.
  Value function(const std::string& name, Type result, std::initializer_list<const Value*> operands, bool fault,
                 const std::function<std::string()>& scalar);
  Value library_function(loop::Op op, std::initializer_list<const Value*> operands);
  Value division(loop::Op op, const Value& a, const Value& b);
  Value extreme(loop::Op op, const Value& a, const Value& b);
  Value mask(const Value& compared);  ///< of the width that masks have
  Value as_formula(loop::Op op, std::initializer_list<const Value*> operands);
  Value function_of_two(loop::Op op, const Value& a, const Value& b);
  Value vector_load(const Access& access, const std::string& from);
  const std::string& pointer(loop::BufferId id);

  const loop::Program& program_;
  const loop::Kernel& kernel_;
  std::set<std::string>& library_names_;
  std::string& library_;
  Scopes scopes_;
  std::map<loop::BufferId, std::string> pointers_;
};

std::string type_name(Type type);  ///< f32, f32x16
std::string literal(loop::Dtype dtype, loop::Number number);

}  // namespace magneto::codegen
