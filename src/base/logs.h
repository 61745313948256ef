// base/logs.h: what a user asked to be told as it happens, by name: MAGNETO_LOGS, TORCH_LOGS, magneto.set_logs.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace magneto::base {

enum class Log : uint8_t {
  kGraphBreaks,
  kRecompiles,
  kFallbacks,
  kGraphCode,
  kGuards,
  kDynamic,
  kPerfHints,
  kGraph,
  kLoop,
  kFusion,
  kPlan,
  kOutputCode,
  kPasses,
  kVerify,
  kValidate,
};
constexpr size_t kLogs = static_cast<size_t>(Log::kValidate) + 1;

struct LogName {
  std::string_view name, meaning;
};
/// In the order of the enum.
std::span<const LogName> log_names();

class Logs {
 public:
  /// kMore: what was told before is told each time it happens.
  enum class Level : uint8_t { kOff, kOn, kMore };
  /// "graph_breaks,+recompiles,-loop": what it names is told, told each time, or not told; what it does not name stays
  /// as it is. Names of torch.compile's logs stand for ours. Returns the names that nobody knows.
  std::vector<std::string> set(std::string_view names);
  void clear();

  Level level(Log log) const { return levels_[static_cast<size_t>(log)].load(std::memory_order_relaxed); }
  bool tells(Log log) const { return level(log) != Level::kOff; }
  bool tells_any(std::span<const Log> logs) const;

  /// `part`: "forward", "backward", or nothing.
  void tell(Log log, std::string_view part, std::string_view text) const;

  /// Where it goes; nullptr: stderr. Called without any lock of ours.
  using Sink = void (*)(Log log, Level level, const std::string& text);
  void set_sink(Sink sink) { sink_.store(sink); }

 private:
  std::array<std::atomic<Level>, kLogs> levels_ = {};
  std::atomic<Sink> sink_ = nullptr;
};

/// The logs of this process.
Logs& logs();

}  // namespace magneto::base
