// base/report.h: one record of everything that happened. explain(), report(), logs and tests are views of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace magneto::base {

struct Line {
  std::string file;
  int line = 0;
  std::string function;
  friend bool operator==(const Line&, const Line&) = default;
};

/// The line of the user's program, without indentation; empty when the file cannot be read.
std::string source_line(const Line& where);

struct GraphNote {
  uint64_t callable = 0;  ///< which compiled callable
  Line where;
  std::string text;  ///< in the graph language
  size_t nodes = 0;
  std::vector<std::string> guards;
  std::string fixed_sizes;                            ///< sizes that change could not be symbols: why
  std::string fallback;                               ///< not empty: why it runs operator by operator
  size_t kernels = 0;                                 ///< different ones
  std::vector<std::pair<std::string, double>> times;  ///< seconds of each stage and pass
};

struct BreakNote {
  uint64_t callable = 0;
  Line where;
  std::string what, cure;
  uint64_t count = 1;  ///< how often it was met while recording
};

struct RecompileNote {
  uint64_t callable = 0;
  Line where;
  std::string reason;
};

struct FallbackNote {
  uint64_t callable = 0;
  Line where;
  std::string reason, cure;
};

class Report {
 public:
  size_t add(GraphNote note);
  void add(BreakNote note);  ///< the same break again only counts
  void add(RecompileNote note);
  void add(FallbackNote note);  ///< once each
  void clear();

  struct Content {
    std::vector<GraphNote> graphs;
    std::vector<BreakNote> breaks;
    std::vector<RecompileNote> recompiles;
    std::vector<FallbackNote> fallbacks;
  };
  /// A copy, of one callable or of all (0).
  Content content(uint64_t callable = 0) const;

 private:
  mutable std::mutex mutex_;
  Content content_;
};

/// The record of this process.
Report& process_report();

}  // namespace magneto::base
