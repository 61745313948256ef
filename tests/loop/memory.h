// tests/loop/memory.h: memory for the buffers of a program, filled at random, and comparisons of it.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "loop/interpret.h"
#include "loop/program.h"
#include "loop/semantics.h"

namespace magneto::loop {

class Memory {
 public:
  /// Small numbers everywhere: floats in [-3, 3], integers from 0 to 7.
  Memory(const Program& program, const std::vector<int64_t>& symbols, unsigned seed) : program_(program) {
    std::mt19937 random(seed);
    for (size_t b = 0; b < program.buffers(); ++b) {
      const Buffer& buffer = program.buffer(BufferId(b));
      const size_t item = types::item_size(buffer.type.dtype);
      const auto count = static_cast<size_t>(storage_size(buffer.type, symbols));
      // exactly as long as it must be, so that a sanitizer sees who goes beyond it; never a null pointer
      std::unique_ptr<char[]> bytes(buffer.role == Role::kRow ? nullptr : new char[count * item]());
      if (buffer.role == Role::kIn) {
        for (size_t k = 0; k < count; ++k) {
          const double real = std::uniform_real_distribution<double>(-3, 3)(random);
          const int64_t whole = static_cast<int64_t>(random() % 8);
          write(buffer.type.dtype, bytes.get() + k * item, {real, whole});
        }
      }
      bytes_.push_back(std::move(bytes));
      counts_.push_back(count);
    }
  }

  std::vector<void*> pointers() {
    std::vector<void*> list;
    for (auto& bytes : bytes_) list.push_back(bytes.get());
    return list;
  }

  Number number(BufferId id, size_t k) const {
    const Dtype dtype = program_.buffer(id).type.dtype;
    return read(dtype, bytes_[id.index()].get() + k * types::item_size(dtype));
  }
  void set(BufferId id, size_t k, Number value) {
    const Dtype dtype = program_.buffer(id).type.dtype;
    write(dtype, bytes_[id.index()].get() + k * types::item_size(dtype), value);
  }
  size_t count(BufferId id) const { return counts_[id.index()]; }
  const Program& program() const { return program_; }

 private:
  const Program& program_;
  std::vector<std::unique_ptr<char[]>> bytes_;
  std::vector<size_t> counts_;
};

inline BufferId find_buffer(const Program& program, const std::string& name) {
  for (size_t b = 0; b < program.buffers(); ++b)
    if (program.buffer(BufferId(b)).name == name) return BufferId(b);
  return {};
}

/// "" when the outputs of `given` are those of `expected` (by name): integers equal, floats within `tolerance` times
/// the larger of one and their size, and a unit of a half type.
inline std::string difference(const Memory& expected, const Memory& given, double tolerance) {
  for (size_t b = 0; b < expected.program().buffers(); ++b) {
    const Buffer& buffer = expected.program().buffer(BufferId(b));
    if (buffer.role != Role::kOut) continue;
    const BufferId other = find_buffer(given.program(), buffer.name);
    const double unit = buffer.type.dtype == Dtype::kBF16 ? 1.0 / 64 : buffer.type.dtype == Dtype::kF16 ? 1.0 / 512 : 0;
    for (size_t k = 0; k < expected.count(BufferId(b)); ++k) {
      const Number x = expected.number(BufferId(b), k), y = given.number(other, k);
      bool same = x.whole == y.whole;
      if (types::is_floating(buffer.type.dtype) && same) {
        const double size = std::max(1.0, std::fabs(x.real));
        same = x.real == y.real || (x.real != x.real && y.real != y.real) ||
               std::fabs(x.real - y.real) <= (tolerance + unit) * size;
      }
      if (same) continue;
      std::ostringstream text;
      text.precision(10);
      text << buffer.name << " element " << k << ": expected " << x.real << " / " << x.whole << ", found " << y.real
           << " / " << y.whole;
      return text.str();
    }
  }
  return "";
}

}  // namespace magneto::loop
