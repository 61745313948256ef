// base/report.h: one record of everything that happened. explain(), report(), logs and tests are views of it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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

/// A kernel that was made: the operators in it, and the lines of the program they come from.
struct KernelNote {
  std::string name;
  size_t runs = 0;  ///< in one run of the graph
  std::vector<std::string> operators;
  std::vector<Line> lines;
};

/// An operator that torch computes, and why.
struct CallNote {
  std::string op;
  Line where;
  std::string reason;
};

/// What the compiler made of a graph, or of its forward or backward half.
struct CodeNote {
  std::string part;  ///< "", "forward", "backward"
  std::string by;    ///< the toolchain
  std::vector<KernelNote> kernels;
  std::vector<CallNote> calls;
  int64_t bytes_before = -1, bytes_after = -1;        ///< moved by operators one by one, and now; -1: sizes are symbols
  std::vector<std::pair<std::string, double>> times;  ///< seconds of each stage and pass
  std::vector<std::pair<std::string, std::string>> texts;  ///< of each stage, where somebody asked for them
};

/// Code that was made after its graph was noted: a backward when the first gradients came.
struct LateCode {
  std::mutex mutex;
  std::vector<CodeNote> code;
  std::string fallback;
};

struct GraphNote {
  uint64_t callable = 0;  ///< which compiled callable
  Line where;
  std::string text;  ///< in the graph language
  size_t nodes = 0;
  std::vector<std::string> guards;
  std::string fixed_sizes;   ///< sizes that change could not be symbols: why
  std::string backend;       ///< not empty: the function of the user's that compiled it
  std::string fallback;      ///< not empty: why it runs operator by operator
  std::string warning;       ///< not empty: what a user should know at once: nothing can be compiled here
  bool keeps_texts = false;  ///< asked for: CodeNote::texts
  int check = 0;             ///< asked for: eager beside every n-th run; -1: beside the first; 0: never
  std::vector<CodeNote> code;
  std::shared_ptr<LateCode> late;  ///< is in `code` and `fallback`, too, in what Report::content() gives
};

/// A compiled graph that did not do what eager does, found by the check.
struct CheckNote {
  uint64_t callable = 0;
  Line where;                          ///< the last operator that is left of it
  std::string what;                    ///< differs
  std::vector<std::string> operators;  ///< the few that show it
  std::string pass;                    ///< without which nothing differs, where there is one
  std::string script;                  ///< path of a program that shows it; empty: it could not be written
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
  void add(CheckNote note);
  void add_checked(uint64_t callable);  ///< a run was compared with eager
  void clear();

  /// Told of each note as it comes, without a lock.
  struct Listener {
    void (*graph)(const GraphNote& note);
    void (*graph_break)(const BreakNote& note, bool is_new);
    void (*recompile)(const RecompileNote& note);
    void (*fallback)(const FallbackNote& note);
    void (*code)(const CodeNote& note, const Line& where);
  };
  void set_listener(const Listener* listener) { listener_ = listener; }
  /// Code was made: its note goes where its graph's does.
  void tell(const CodeNote& note, const Line& where) const;

  struct Content {
    std::vector<GraphNote> graphs;
    std::vector<BreakNote> breaks;
    std::vector<RecompileNote> recompiles;
    std::vector<FallbackNote> fallbacks;
    std::vector<CheckNote> checks;
    uint64_t checked = 0;  ///< runs of graphs that were compared with eager
  };
  /// A copy, of one callable or of all (0).
  Content content(uint64_t callable = 0) const;

 private:
  mutable std::mutex mutex_;
  Content content_;
  std::map<uint64_t, uint64_t> checked_;  ///< by callable
  std::atomic<const Listener*> listener_ = nullptr;
};

/// The record of this process.
Report& process_report();

}  // namespace magneto::base
