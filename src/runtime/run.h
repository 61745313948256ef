// runtime/run.h: runs a plan on plain memory. Knows neither Python nor torch: kernels, extern calls and the allocator
// are functions that are passed in.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/threads.h"

namespace magneto::runtime {

/// A kernel on a CPU, as codegen/abi.h describes it: computes the points lo .. hi.
using Kernel = void(void* const* buffers, const int64_t* symbols, int64_t lo, int64_t hi, char* scratch,
                    int32_t* fault);
/// An extern call: `buffers` has the memory of what it reads, then of what it writes. Where a buffer is of
/// Place::kCall, it puts the address there.
using Call = std::function<void(const plan::Step& step, void** buffers, const std::vector<int64_t>& symbols)>;

struct Environment {
  const Team* threads = nullptr;                ///< none: the caller's alone
  Call call;                                    ///< needed when the plan has calls
  std::function<void(plan::BufferId)> drop;     ///< the last reader of what a call made has run
  std::function<void*(size_t bytes)> allocate;  ///< aligned to 64; with `release`, else the C library's
  std::function<void(void*)> release;
};

enum class Outcome : uint8_t {
  kDone,
  kFault,      ///< a gather out of bounds or an integer divided by zero; outputs hold what was computed nonetheless
  kCondition,  ///< a condition of the plan does not hold; nothing was computed
};

class Runner {
 public:
  /// `find` gives the function of each kernel by its name; it must outlive the runner. Throws base::Fault when it gives
  /// none.
  Runner(plan::Plan plan, const std::function<Kernel*(const std::string&)>& find);

  /// `memory` holds a pointer for each buffer of the plan; those of temporaries are not looked at. Several threads may
  /// run one runner at a time: a run has its own arena and changes nothing here.
  Outcome run(const std::vector<void*>& memory, const std::vector<int64_t>& symbols, const Environment& with) const;

  const plan::Plan& plan() const { return plan_; }

 private:
  plan::Plan plan_;
  std::vector<Kernel*> kernels_;                      ///< by step; null for calls
  std::vector<std::vector<plan::BufferId>> endings_;  ///< by step: what a call made and nobody reads later
};

}  // namespace magneto::runtime
