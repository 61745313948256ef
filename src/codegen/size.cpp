// Integer expressions of symbols as operations of a target. They are read from their text: sums of products of symbols,
// numbers, divisions, minima and maxima.
#include <charconv>

#include "base/check.h"
#include "codegen/target.h"

namespace magneto::codegen {

using loop::Dtype;
using loop::Number;
using loop::Op;

namespace {

class Reader {
 public:
  Reader(Target& target, std::string_view text) : target_(target), rest_(text) {}

  Value sum() {
    Value value = take("-") ? target_.unary(Op::kNeg, product()) : product();
    while (true) {
      if (take("+"))
        value = target_.binary(Op::kAdd, value, product());
      else if (take("-"))
        value = target_.binary(Op::kSub, value, product());
      else
        return value;
    }
  }
  bool done() const { return rest_.empty(); }

 private:
  bool take(std::string_view sign) {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    if (!rest_.starts_with(sign)) return false;
    rest_.remove_prefix(sign.size());
    return true;
  }

  Value product() {
    Value value = factor();
    while (true) {
      if (take("//"))
        value = target_.binary(Op::kFloorDiv, value, factor());
      else if (take("*"))
        value = target_.binary(Op::kMul, value, factor());
      else if (take("%"))
        value = target_.binary(Op::kMod, value, factor());
      else
        return value;
    }
  }

  Value factor() {
    if (take("(")) {
      Value value = sum();
      take(")");
      return value;
    }
    if (take("-")) return target_.unary(Op::kNeg, factor());
    const bool least = take("min(");
    if (least || take("max(")) {
      Value value = sum();
      while (take(",")) value = target_.binary(least ? Op::kMin : Op::kMax, value, sum());
      take(")");
      return value;
    }
    const bool symbol = take("s");
    int64_t number = 0;
    const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    base::check(read.ec == std::errc(), "codegen: cannot read the size ", rest_);
    rest_.remove_prefix(static_cast<size_t>(read.ptr - rest_.data()));
    return symbol ? target_.symbol(static_cast<uint32_t>(number))
                  : target_.constant({Dtype::kI64, 1}, Number::of_int(number));
  }

  Target& target_;
  std::string_view rest_;
};

}  // namespace

Value Target::size(const types::Expr& size) {
  if (const auto number = size.constant()) return constant({Dtype::kI64, 1}, Number::of_int(*number));
  const size_t before = writing();
  write_at(0);
  const std::string text = to_string(size);
  Reader reader(*this, text);
  Value value = reader.sum();
  base::check(reader.done(), "codegen: cannot read the size ", text);
  write_at(before);
  return value;
}

}  // namespace magneto::codegen
