#include "runtime/launch.h"

#include "base/check.h"

namespace magneto::runtime {

namespace {

constexpr int64_t kFreeShared = 48 << 10;  ///< bytes that a block may have without asking
constexpr size_t kMostArguments = 1024;    ///< 4 KB of pointers and symbols, all that a kernel takes

class CudaLauncher final : public Launcher {
 public:
  CudaLauncher(const plan::Plan& plan, const Cuda& cuda,
               const std::function<CudaModule::Function*(const std::string&)>& find)
      : plan_(plan), cuda_(cuda), functions_(plan.steps.size()) {
    for (size_t n = 0; n < plan.steps.size(); ++n) {
      const plan::Step& s = plan.steps[n];
      if (s.kind != plan::Step::Kind::kRun) continue;
      base::check(s.threads > 0, "run: kernel ", s.name, " was made for a CPU");
      base::check(s.buffers.size() + s.symbols.size() <= kMostArguments, "run: kernel ", s.name, " has ",
                  s.buffers.size(), " buffers");
      functions_[n] = find(s.name);
      base::check(functions_[n] != nullptr, "run: nobody has kernel ", s.name);
      const int64_t scratch = s.scratch.value_or(0);
      if (scratch > kFreeShared) cuda.allow_shared(functions_[n], (scratch + 63) / 64 * 64);
    }
  }

  int scratch_copies(const Environment&) const override { return 0; }  // a block has its own shared memory

  void launch(const Launch& l) const override {
    const plan::Step& s = plan_.steps[l.step];
    void* arguments[kMostArguments];  // only what is used is touched
    size_t count = 0;
    for (const plan::BufferId id : s.buffers) arguments[count++] = const_cast<void**>(&l.place[id.index()]);
    for (const uint32_t symbol : s.symbols) arguments[count++] = const_cast<int64_t*>(&l.symbols[symbol]);
    if (l.scratch > kFreeShared && !s.scratch.is_constant()) cuda_.allow_shared(functions_[l.step], l.scratch);
    cuda_.launch(functions_[l.step], l.points, s.threads, l.scratch, l.with.stream, arguments);
  }

 private:
  const plan::Plan& plan_;
  const Cuda& cuda_;
  std::vector<CudaModule::Function*> functions_;  ///< by step; null for calls
};

}  // namespace

std::unique_ptr<Launcher> cuda_launcher(const plan::Plan& plan, const Cuda& cuda,
                                        const std::function<CudaModule::Function*(const std::string&)>& find) {
  return std::make_unique<CudaLauncher>(plan, cuda, find);
}

}  // namespace magneto::runtime
