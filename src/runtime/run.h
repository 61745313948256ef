// runtime/run.h: runs a plan on plain memory. Knows neither Python nor torch: kernels, extern calls and the allocator
// are functions that are passed in.
//
// A Runner walks the steps; a Launcher starts a kernel: on the threads of a CPU, or on a stream of a GPU. There memory
// is the device's, nothing is waited for, and a gather out of bounds ends as it does in eager torch: the kernel stops
// with a device-side assert, which the next call that waits for the device reports.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  const Team* threads = nullptr;  ///< none: the caller's alone
  void* stream = nullptr;         ///< of a GPU; null: its default stream
  Call call;                      ///< needed when the plan has calls
  /// The last reader of an input, of what a call made, or of what is alone, has run.
  std::function<void(plan::BufferId)> drop;
  /// Memory for an output or for what is alone, before the first step that touches it; empty: `memory` has all of them.
  std::function<void*(plan::BufferId)> provide;
  std::function<void*(size_t bytes)> allocate;  ///< aligned to 64; with `release`, else the C library's
  std::function<void(void*)> release;
};

enum class Outcome : uint8_t {
  kDone,
  kFault,      ///< a gather out of bounds or an integer divided by zero; outputs hold what was computed nonetheless
  kCondition,  ///< a condition of the plan does not hold; nothing was computed
};

/// Starts the kernels of one plan.
class Launcher {
 public:
  virtual ~Launcher() = default;

  /// One kernel on all its points, which are more than none.
  struct Launch {
    size_t step;              ///< its number in the plan
    void* const* place;       ///< the memory of each buffer of the plan
    const int64_t* symbols;   ///< at least one
    int64_t points, scratch;  ///< of this step
    char* rows;               ///< scratch_copies() times the scratch of the step that wants most
    int32_t* fault;           ///< becomes 1
    const Environment& with;
  };
  virtual void launch(const Launch& launch) const = 0;
  virtual int scratch_copies(const Environment& with) const = 0;  ///< that must be allocated
};

/// On a CPU. `find` gives the function of each kernel by its name; it must outlive the launcher. Throws base::Fault
/// when it gives none.
std::unique_ptr<Launcher> cpu_launcher(const plan::Plan& plan, const std::function<Kernel*(const std::string&)>& find);

using MakeLauncher = std::function<std::unique_ptr<Launcher>(const plan::Plan&)>;

class Runner {
 public:
  Runner(plan::Plan plan, const MakeLauncher& make);

  /// `memory` holds a pointer for each buffer of the plan; those of temporaries are not looked at. Several threads may
  /// run one runner at a time: a run has its own arena and changes nothing here.
  Outcome run(const std::vector<void*>& memory, const std::vector<int64_t>& symbols, const Environment& with) const;

  const plan::Plan& plan() const { return *plan_; }

 private:
  /// What the expressions of the plan come to for some values of its symbols.
  struct Sizes {
    int64_t arena = 0, scratch = 0;           ///< bytes
    std::vector<int64_t> at;                  ///< by buffer
    std::vector<int64_t> points, scratch_of;  ///< by step
  };
  Sizes measure(const std::vector<int64_t>& symbols) const;
  void find_lives();

  std::unique_ptr<const plan::Plan> plan_;  ///< the launcher looks at it
  std::unique_ptr<Launcher> launcher_;
  std::optional<Sizes> fixed_;                           ///< when no symbol matters
  std::vector<std::vector<plan::BufferId>> beginnings_;  ///< by step: outputs and what is alone, new there
  std::vector<std::vector<plan::BufferId>> endings_;     ///< by step: all but outputs that nobody reads later
};

}  // namespace magneto::runtime
