// aten/reading.h: programs that read numbers from their tensors while they run: x.item(), if x.any():
//
//     %3: f32[] = aten::sum(%0, none)
//     magneto::read(%3, [2])                       # from here on, s2 has the bits of that number
//     %4: f32[8] = aten::mul.Tensor(%1, real(s2))
//
// The size of what only a kernel knows (nonzero, x[mask]) is such a number, too:
//
//     %6: i64[s3, 1] = aten::nonzero(%5)
//     magneto::read_size(%6, 0, [3])
//
// A program is cut after such nodes. Each piece is computed by itself, and whoever has recorded the program is told the
// numbers in between: he computes others of them, and says whether the program is right for them. Until then nothing
// has happened that cannot be taken back.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "aten/executable.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program;

/// Takes the elements of a tensor, or one of its sizes, as the values of symbols. Computes nothing.
inline constexpr const char *kRead = "magneto::read", *kReadSize = "magneto::read_size";
inline bool is_read(const graph::Node& node) { return node.op == kRead || node.op == kReadSize; }
void read_numbers(const at::Tensor& tensor, at::IntArrayRef symbols);

class Reading : public Executable {
 public:
  /// The numbers of the n-th read, ints or the bits of doubles. They stand among the symbols of the run afterwards,
  /// with all that is computed of them. False: the program was recorded for others.
  using Take = std::function<bool(size_t read, std::span<const int64_t> numbers)>;
  /// `missed` in the failure: the numbers were others.
  virtual Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
                      const Take& take) const = 0;
  using Executable::run;
};

bool reads_numbers(const graph::Graph& graph);
/// Makes a piece fast, or gives it back.
using CompilePiece = std::function<std::shared_ptr<Executable>(const std::shared_ptr<Program>& piece,
                                                               std::span<const at::Tensor> examples)>;
/// `examples` are the program's inputs, `hints` the values of its symbols then. `read_at` says of each symbol how many
/// reads it needs; nothing of those that are not there: 0.
std::shared_ptr<Reading> make_reading(const std::shared_ptr<Program>& program, std::span<const at::Tensor> examples,
                                      std::span<const int64_t> hints, const std::vector<size_t>& read_at,
                                      const CompilePiece& compile);

}  // namespace magneto::aten
