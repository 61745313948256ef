// plan/plan.h: language 3. What a run does, step by step, on plain memory.
//
//   plan {
//     in x: 4*s0
//     temp t: 4*s0 at 0
//     alone a: 4*s0
//     made m: 4*s0
//     out y: 4*s0
//     arena 64*((4*s0 + 63) // 64)
//     where 1 <= s0
//     run k_t(x, -> t) points s0 grain 4 scratch 3072
//     run k_u(x, <-> t) points s0
//     call "aten::mm" (t, x) -> (y) "transpose_b"
//   }
//
// A kernel writes what an arrow leads to; what has two it reads as well. On a GPU it says more: `run k_t(x, -> t)
// points s0 threads 128 with s0 scratch 3072` has a block of 128 threads and 3072 bytes of shared memory for each
// point, and takes the symbol s0 after its buffers.
//
// Sizes are bytes, and expressions of the symbols that are known when the plan is called. A kernel is named; who runs
// the plan knows the function of that name. Equal kernels have one name, called with other buffers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "types/expr.h"
#include "types/tensor_type.h"

namespace magneto::plan {

using BufferId = base::Id<struct PlanBufferTag>;

enum class Place : uint8_t {
  kIn,        ///< memory of the caller
  kOut,       ///< memory of the caller, which allocates it with the strides it wants
  kConstant,  ///< memory that is the same in every run
  kTemp,      ///< in the arena
  kAlone,     ///< memory of its own, from the first step that touches it to the last
  kCall,      ///< made by the call that writes it, which says where it is; let go after its last reader
};

struct Buffer {
  std::string name;
  Place place = Place::kIn;
  types::Expr bytes;  ///< from the first to the last element that is used
  types::Expr at;     ///< kTemp: where in the arena it begins
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Step {
  enum class Kind : uint8_t { kRun, kCall };
  Kind kind = Kind::kRun;
  std::string name;                     ///< of the kernel or of the function that is called
  std::vector<BufferId> buffers;        ///< kRun: all that the kernel takes, in the order in which it wants them
  std::vector<BufferId> reads, writes;  ///< of a kernel in the same order; what it reads back only is not in `reads`
  types::Expr points = 1;               ///< kRun: of the outer space; on a GPU blocks
  int64_t grain = 1;                    ///< kRun: points that are worth a thread
  int threads = 0;                      ///< kRun: of a block, on a GPU; 0: on a CPU
  std::vector<uint32_t> symbols;        ///< kRun on a GPU: those that the kernel takes, after its buffers
  types::Expr scratch;                  ///< kRun: bytes of kept rows, for each thread; on a GPU for each block
  std::string arguments;                ///< kCall: known to the caller alone
  friend bool operator==(const Step&, const Step&) = default;
};

struct Plan {
  std::vector<Buffer> buffers;
  types::Expr arena;                         ///< bytes
  std::vector<types::Condition> conditions;  ///< under which the plan may run
  std::vector<Step> steps;
  const Buffer& operator[](BufferId id) const { return buffers[id.index()]; }
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// What the caller has to know of a plan: which buffers are its tensors, and how they look.
struct Signature {
  /// A tensor of `type` over the memory of `buffer`; the offset and the strides of the type count in that memory.
  struct Output {
    BufferId buffer;  ///< invalid: an undefined tensor
    types::TensorType type;
    bool is_itself = false;  ///< the input, not a view of it
  };
  /// Once all steps have run, the elements of `value` become those of a tensor of `type` over the memory of the input
  /// `into`. Stores happen in order.
  struct Store {
    BufferId value, into;
    types::TensorType type;
  };
  std::vector<types::TensorType> types;     ///< of each buffer
  std::vector<BufferId> inputs, constants;  ///< of the graph, in its order; invalid: never read
  std::vector<Output> outputs;
  std::vector<Store> stores;
};

/// print(parse(text)) == text for every text that print wrote. parse throws base::Fault with the line.
std::string print(const Plan& plan);
Plan parse(std::string_view text);

/// What does not hold, one sentence each. Names are distinct, steps name buffers that exist. Every buffer is written
/// before it is read, inputs and constants never, outputs at least once; what a call makes is written by that call
/// alone. Temporaries lie in the arena, at multiples of 64, and no two overlap from the first step that touches them to
/// the last. Points and grains are positive.
std::vector<std::string> verify(const Plan& plan);
/// The same of a plan and its signature: buffers hold their types, and what is allocated for a run begins where its
/// memory does; inputs and constants are the caller's memory; outputs
/// and what is stored lie in memory that outlives the steps; a store fits into its input; a call looks at parts that
/// lie in what it reads. What depends on symbols and is not proved becomes conditions in `asked`, where that is given:
/// whoever runs the plan asks them of the sizes of a call.
std::vector<std::string> verify(const Plan& plan, const Signature& signature,
                                std::vector<types::Condition>* asked = nullptr);

}  // namespace magneto::plan
