// aten/trace.h: ATen operators of one thread, recorded into a graph instead of being computed.
//
// While a trace is entered, every operator of the thread, factories too, reaches us below autograd (dispatch key Fake
// in thread-local state). Its results are pending tensors: true metadata over a storage without data. A flush runs what
// was recorded and not yet run, and moves the results into those storages, so that every tensor, view, saved variable
// and list that holds them is right at once. Whoever reads data of a pending tensor causes a flush by itself.
//
// A flush does not end the trace: the graph goes on growing after it, and replay runs all of it in one go. Only the
// owner (capture) decides where a segment ends; it learns of reads of data through data_reads().
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

struct CustomFunction;
class Program;
class Symbols;

class Trace {
 public:
  struct State;
  Trace();
  /// A symbolic trace: sizes may be symbols, no tensor of it ever has data, and nothing is run. An operator that would
  /// have to be run to know what comes out throws. `live` records the same program with data: where only a kernel knows
  /// what comes out, it has been run there.
  Trace(std::shared_ptr<Symbols> symbols, const Trace& live);
  /// A symbolic trace that repeats a graph which was recorded before, and may go on after it: torch's autograd engine
  /// records here, and asks who else holds a storage without reading it.
  Trace(std::shared_ptr<Symbols> symbols, const graph::Graph& recorded);
  /// The operators from now on are those of this node of it; after its last one: what comes after.
  void repeat_node(size_t node);
  ~Trace();  ///< flushes; never throws (what a flush raises here was raised before)
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Recording on and off for this thread. `leave` does not flush. Not nested.
  void enter();
  void leave();
  bool entered() const;

  /// Runs everything that was recorded and not yet run. Throws what the operators throw.
  void flush(std::string_view why);
  /// The same for a program that is to begin again: no error, and the generators are back where they were when the
  /// trace began. False: an operator has changed something else outside, or may have.
  bool flush_without_effect();
  /// Called before recorded operators are run, in the thread that runs them, with or without the GIL: whoever keeps
  /// tensors of the trace that the program let go lets go of them now. Must not throw.
  void set_before_run(std::function<void()> release);

  /// The value of a tensor that this trace made or knows as an input.
  std::optional<graph::ValueId> find(const at::Tensor& tensor) const;
  bool made_here(const at::Tensor& tensor) const;
  /// Made of numbers that stand in the graph alone: whoever reads its data reads the same in each call.
  bool has_known_data(const at::Tensor& tensor) const;
  /// Registers a tensor from outside as an input (once; the same id ever after). `name` is for readers.
  graph::ValueId add_input(const at::Tensor& tensor, std::string name);
  /// SymbolicTrace: a new input that stands for `tensor`, with the same aliasing among them as among the tensors.
  at::Tensor stand_in(const at::Tensor& tensor, types::Sizes sizes, types::Sizes strides, types::Expr offset,
                      std::string name);
  /// SymbolicTrace: a new input of this type, with memory of its own.
  at::Tensor stand_in(types::TensorType type, std::string name);
  /// A tensor of the caller that belongs to the graph.
  graph::ValueId add_constant(const at::Tensor& tensor);
  /// The tensor behind an input, as long as the trace lives.
  const at::Tensor& input_tensor(graph::ValueId id) const;
  /// Inputs that operators met before anyone registered them, since the last call: tensors that came from nowhere
  /// capture knows of. (Wrapped Python numbers are constants of the graph, not inputs.)
  std::vector<graph::ValueId> take_unclaimed();
  bool has_unclaimed() const;

  /// Times that data was read, that an operator with a size known only from data ran, or that an operator met something
  /// a graph cannot hold (sparse, quantised, subclass, dispatch mode, generator). Each was served, and was right; but
  /// a graph cannot repeat it. `last_data_read` says what and which operator; `last_refusal` why, where the reason is
  /// not that it depends on data.
  uint64_t data_reads() const;
  const std::string& last_data_read() const;
  const std::string& last_refusal() const;

  /// A size that only a kernel knows: a number that is read of its result (aten/reading.h).
  struct Measure {
    size_t node = 0;
    int64_t dim = 0;
    uint32_t symbol = 0;
    bool changes = false;  ///< the symbolic trace has the symbol in its place; else it is what it is now
  };
  /// Records operators with such sizes, as symbols of these; nullptr: they are served, and count as reads of data.
  void set_measures(Symbols* symbols, bool changes);
  std::vector<Measure> take_measures();  ///< those since the last call

  /// Whether a run of what was recorded could be taken back, as if it had never been: nothing of another library was
  /// called, and few elements of inputs were written to.
  /// `read`: a number of it is read next. What it does not need may come after it.
  bool may_be_taken_back(const at::Tensor* read = nullptr) const;

  /// Where the recording stands. rewind forgets the nodes after a mark; all of them must have been run (flush first).
  struct Mark {
    size_t nodes = 0;
  };
  Mark mark() const;
  void rewind(Mark mark);

  /// As long as one lives, nothing that is recorded has an effect: what would write to older memory, draw random
  /// numbers, or look at data raises. The nodes are to be taken or dropped when it ends.
  class Rehearsal {
   public:
    explicit Rehearsal(Trace& trace);
    ~Rehearsal();
    Rehearsal(const Rehearsal&) = delete;

   private:
    Trace& trace_;
    const std::optional<uint32_t> before_;
  };
  /// As long as one lives, autograd's engine runs as a part of the program.
  class EngineRun {
   public:
    explicit EngineRun(Trace& trace);
    ~EngineRun();
    EngineRun(const EngineRun&) = delete;

   private:
    const std::shared_ptr<State> state_;
  };
  /// Nodes as a graph of their own. Its inputs are `given`, made by the first of them, then what they read of the nodes
  /// before, and `also`: `reads`, in values of the trace.
  struct Part {
    graph::Graph graph;
    std::vector<graph::ValueId> reads;
  };
  Part part(Mark since, const std::vector<graph::ValueId>& given, const std::vector<graph::ValueId>& outputs,
            const std::vector<graph::ValueId>& also) const;
  /// Forgets the nodes since, though they were not run. False: somebody holds a tensor that they made, which will never
  /// have data.
  bool drop(Mark since);
  /// Whether a node can hold such a backward of a custom function: it has few floats that are symbols.
  static bool holds(const graph::Graph& backward);
  /// The results, tensors of the trace, have the gradient of a custom function from now on. `numbers` are the values of
  /// the symbols in its backward.
  void add_function(const CustomFunction& function, const std::vector<at::Tensor>& results,
                    const std::vector<graph::ValueId>& inputs, const std::vector<graph::ValueId>& saved,
                    const std::vector<int64_t>& numbers);

  /// The place in the user's program that the next operators come from.
  void set_place(std::string file, int line, std::string function);
  void set_checkpoint(uint32_t region);  ///< graph::Node::checkpoint of the next operators

  const graph::Graph& graph() const;
  /// Everything recorded up to now, ready to be run again, with these outputs. `inputs` receives the value ids (of this
  /// trace) of the program's inputs in its order. Flush first.
  std::shared_ptr<Program> finish(const std::vector<graph::ValueId>& outputs,
                                  std::vector<graph::ValueId>* inputs) const;

 private:
  std::shared_ptr<State> state_;  // shared with threads that flush it because they read its tensors
};

/// The trace of this thread that is entered, or nullptr.
Trace* current_trace();

/// How a thread that must wait for another one's flush calls `wait(argument)`. Python sets one that releases the GIL
/// meanwhile: the other thread may need it.
using WaitRunner = void (*)(void (*wait)(void*), void* argument);
void set_wait_runner(WaitRunner runner);
/// Runs work that must not hold the GIL: torch's autograd engine.
void run_waiting(void (*work)(void*), void* argument);

}  // namespace magneto::aten
