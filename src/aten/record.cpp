// aten/record.cpp: what happens to an operator of a thread that traces.
//
//   1  Look at the arguments. Anything that a graph cannot hold: flush, let it run, count it as a read of data.
//   2  The types of the results: our own rule, torch's kernel for a view, torch's C++ shape kernel, in this order.
//   3  Write the call down and return pending tensors, or tensors that are the argument itself.
//   4  No types, or an operator that may fail on data: flush, run it now, and write it down as run.
//
// An error of the user's is no type in step 2: the operator then runs for real and raises eager's own error in step 4.
#include <c10/core/InferenceMode.h>

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_set>

#include "aten/convert_internal.h"
#include "aten/data_of.h"
#include "aten/kernels.h"
#include "aten/probe_internal.h"
#include "aten/reading.h"
#include "aten/shapes_internal.h"
#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"
#include "aten/symbols.h"
#include "aten/watch_internal.h"
#include "base/check.h"
#include "base/text.h"
#include "ops/numbers.h"
#include "types/overlap.h"

namespace magneto::aten {

using graph::ValueId;
using Stack = torch::jit::Stack;
using Kind = ops::Result::Kind;

namespace {

constexpr const char* kDependsOnData = "its result depends on data";

// Calls that torch's kernels have been seen to accept, by operator and element types. Types of results say nothing of
// that: a kernel refuses what it has no code for ("not implemented for 'Byte'"), and the error must come at its line.
class Tried {
 public:
  /// False where it is not known yet.
  bool contains(const std::string& call) {
    const std::lock_guard lock(mutex_);
    return calls_.contains(call);
  }
  void add(std::string call) {
    const std::lock_guard lock(mutex_);
    calls_.insert(std::move(call));
  }
  static Tried& instance() {
    static auto* tried = new Tried;
    return *tried;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> calls_;
};

void run_below(const c10::OperatorHandle& handle, Stack* stack) {
  BelowUs below;
  handle.callBoxed(stack);
}

// One operator on its way into the graph.
class Recording {
 public:
  Recording(Trace::State& state, const Operator& op, Stack& stack)
      : state_(state), op_(op), stack_(stack), begin_(stack.size() - op.arguments.size()) {}

  /// Traces that must be flushed before this one may look at the arguments.
  std::vector<std::shared_ptr<Trace::State>> foreign_traces() const {
    std::vector<std::shared_ptr<Trace::State>> traces;
    for (const c10::IValue& argument : arguments())
      each_tensor(argument, [&](const at::Tensor& tensor, int) {
        if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->unsafe_storage()) return;
        if (auto owner = state_.foreign_owner(tensor)) traces.push_back(std::move(owner));
      });
    return traces;
  }

  /// True: done, the results are on the stack. False: everything is flushed, and the operator is to be run below us.
  bool record() {
    if (state_.rehearsed_from) check_rehearsed();
    if (const char* reason = unrecordable()) {
      if (reason == kDependsOnData && (state_.symbols ? measure_again() : measure())) return true;
      return refuse(reason);
    }
    if (!op_.is_foreign && op_.name != kDataOf &&
        above(op_) > Above::kTorch)  // those of other libraries were seen above (foreign.cpp)
      return refuse("somebody has replaced its gradient");
    if (state_.repeats_autograd && op_.zeros != Zeros::kNever && record_zeros()) return true;
    switch (op_.way) {
      case Way::kMetadata:
        return ask_metadata();
      case Way::kReadsData:
        if (reads_known_data()) return run_below_us();
        if (state_.symbols ? measure_again() : measure()) return true;
        return refuse(kDependsOnData);
      case Way::kOpaque:
        return refuse("it changes a tensor in a way that a graph cannot hold");
      case Way::kConstant:
        return keep_constant();
      default:
        break;
    }
    if (args_.empty() && !convert()) return refuse("an argument that a graph cannot hold");
    if (!state_.symbols && (op_.way == Way::kAtOnce || must_run_at_once())) return run_at_once();
    Results results = op_.gives_numbers ? results_with_numbers() : types_of_results();
    if (!results && op_.is_foreign && !state_.symbols) {
      if (op_.returns > 0 && !is_told())
        return refuse("what it returns is known when it has run, and not before; register a fake for it");
      if (above(op_) == Above::kNobody && wants_gradient())
        return refuse("it has no gradient of its own; register one for it");
    }
    if (!results || (!state_.symbols && is_untried())) return try_at_once();
    commit(*results);
    return true;
  }

 private:
  c10::ArrayRef<c10::IValue> arguments() const {
    return c10::ArrayRef<c10::IValue>(stack_.data() + begin_, op_.arguments.size());
  }

  const char* unrecordable() const {
    if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python)) return "a dispatch mode is active";
    const char* reason = nullptr;
    for (const c10::IValue& argument : arguments()) {
      if (argument.isDevice() && !argument.toDevice().is_cpu() && !argument.toDevice().is_cuda())
        reason = "a device that is neither CPU nor CUDA";
      each_tensor(argument, [&](const at::Tensor& tensor, int) {
        if (!tensor.defined()) return;
        c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
        if (const char* why = not_plain(impl))
          reason = why;
        else if (impl.is_wrapped_number() && !is_wrapped_number(tensor))
          reason = "a number of an unusual dtype";
        else if (op_.masks_are_dynamic && (tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte) &&
                 tensor.unsafeGetTensorImpl() != arguments()[0].toTensor().unsafeGetTensorImpl())
          reason = kDependsOnData;
      });
    }
    return reason;
  }

  /// Numbers, of tensors whose data are the same in each call.
  bool reads_known_data() const {
    if (state_.symbols || op_.returns != 1 || !op_.gives_numbers) return false;
    bool known = true;
    for (const c10::IValue& argument : arguments())
      each_tensor(argument, [&](const at::Tensor& tensor, int) {
        const auto id = state_.find(tensor);
        known = known && id && state_.storages[state_.values[id->index()].storage].known;
      });
    return known;
  }

  bool run_below_us() {
    state_.run_recorded();
    return false;
  }

  // A Rehearsal: nothing is to happen outside.
  void check_rehearsed() const {
    TORCH_CHECK(!op_.random, op_.name, " draws random numbers");
    if (op_.way == Way::kMetadata) return;
    TORCH_CHECK(op_.way != Way::kOpaque, op_.name, " changes a tensor in a way that a graph cannot hold");
    for (size_t a = 0; a < op_.arguments.size(); ++a) {
      if (!op_.writes[a]) continue;
      each_tensor(arguments()[a], [&](const at::Tensor& tensor, int) {
        if (!tensor.defined()) return;
        const auto known =
            state_.by_storage.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
        TORCH_CHECK(known != state_.by_storage.end() && known->second >= *state_.rehearsed_from, op_.name,
                    " writes to a tensor from outside");
      });
    }
  }

  bool refuse(const char* reason) {
    TORCH_CHECK(!state_.rehearsed_from, op_.name, ": ", reason);
    state_.note_data_read(op_.name + ": " + reason, reason == kDependsOnData ? "" : reason);
    // A read of the caller's tensor that no recorded write touches needs nothing of what we have.
    bool sealed = op_.way != Way::kReadsData;
    for (const c10::IValue& argument : arguments())
      each_tensor(argument, [&](const at::Tensor& tensor, int) {
        if (!tensor.defined()) return;
        if (state_.symbols && is_wrapped_number(tensor))
          if (const auto number = state_.symbols->wrapped(tensor))
            if (const auto* real = std::get_if<graph::Real>(&*number)) state_.symbols->fix(*real);
        const c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        sealed = sealed || !storage || is_sealed(*storage);
      });
    if (sealed) state_.run_recorded();
    if (op_.way == Way::kOpaque)
      for (const c10::IValue& argument : arguments())
        each_tensor(argument, [&](const at::Tensor& tensor, int) {
          if (tensor.defined()) state_.forget(tensor);
        });
    return false;
  }

  // How the sizes of a result follow: all but this one from data; as they are; as those of the first argument.
  static constexpr int64_t kAsIs = -1, kAsFirst = -2;

  /// Of each result of an operator whose sizes depend on data by one number; empty: it is no such operator.
  std::vector<int64_t> measured_dims() const {
    if (op_.writes_anything || op_.takes_out) return {};
    const auto is_asked = [&](size_t argument) { return arguments()[argument].toBool(); };
    const auto unique = [&](bool inverse, bool counts) -> std::vector<int64_t> {
      return {0, inverse ? kAsFirst : kAsIs, counts ? 0 : kAsIs};
    };
    if (op_.name == "aten::nonzero" || op_.name == "aten::masked_select" || op_.name == "aten::bincount" ||
        op_.name == "aten::repeat_interleave.Tensor")
      return {0};
    if (op_.name == "aten::_unique2") return unique(is_asked(2), is_asked(3));
    if (op_.name == "aten::unique_consecutive" && arguments()[3].isNone()) return unique(is_asked(1), is_asked(2));
    if (!op_.masks_are_dynamic) return {};
    int64_t before = 0;
    bool found = false;
    for (const c10::IValue& index : arguments()[1].toListRef()) {
      const bool defined = index.isTensor() && index.toTensor().defined();
      if (defined && (found || (index.toTensor().scalar_type() != c10::kBool))) return {};
      if (!defined && !found) ++before;
      found = found || defined;
    }
    return found ? std::vector<int64_t>{before} : std::vector<int64_t>();
  }

  // A replay runs it, and reads its size.
  bool measure() {
    const std::vector<int64_t> dims =
        state_.measures && !state_.rehearsed_from ? measured_dims() : std::vector<int64_t>();
    if (dims.empty() || (args_.empty() && !convert())) return false;
    const size_t node = state_.graph.nodes().size();
    run_at_once();
    if (state_.graph.nodes().size() != node + 1) return true;
    const ValueId result = state_.graph.nodes()[node].outputs.at(0);
    const int64_t size = state_.graph.value(result).type.sizes.at(static_cast<size_t>(dims[0])).value_or(0);
    std::vector<uint32_t> symbol;
    state_.measures->add(size).collect_symbols(symbol);
    state_.measured.push_back({node, dims[0], symbol.at(0), state_.measures_change && size >= 2});
    read_size(result, state_.measured.back());
    state_.done = state_.graph.nodes().size();
    return true;
  }

  void read_size(ValueId result, const Trace::Measure& measure) {
    static const Operator* const read = &operator_named(kReadSize);
    state_.add_node(
        *read, {result, types::Expr(measure.dim), types::Sizes{types::Expr(static_cast<int64_t>(measure.symbol))}}, {});
  }

  static bool is_dense(const types::TensorType& type) { return type.strides == types::contiguous_strides(type.sizes); }
  static bool is_transposed(const types::TensorType& type) {
    return type.sizes.size() == 2 && type.strides[0] == types::Expr(1) && type.strides[1] == type.sizes[0];
  }

  /// The type of a result, from the one that the live trace has met. Nothing: its layout is told by neither rule.
  std::optional<types::TensorType> measured_type(const types::TensorType& live, int64_t dim,
                                                 const std::optional<types::Expr>& size) {
    types::TensorType type = live;
    if (dim == kAsIs) return type;
    const types::Sizes of = state_.graph.value(value_at(0, -1)).type.sizes;
    if (dim == kAsFirst) type.sizes = of;
    if (dim >= 0 && size) type.sizes[static_cast<size_t>(dim)] = *size;
    if (dim >= 0 && op_.masks_are_dynamic) {  // the sizes around those of the mask are the tensor's
      const auto at = static_cast<size_t>(dim);
      std::copy_n(of.begin(), at, type.sizes.begin());
      const size_t rest = type.sizes.size() - at - 1;
      std::copy(of.end() - static_cast<std::ptrdiff_t>(rest), of.end(), type.sizes.begin() + dim + 1);
    }
    if (is_dense(live))
      type.strides = types::contiguous_strides(type.sizes);
    else if (is_transposed(live))
      type.strides = {types::Expr(1), type.sizes[0]};
    else if (type.sizes != live.sizes)
      return std::nullopt;
    return type;
  }

  // SymbolicTrace: the live trace has met it as the same node. Where the size changes it is a symbol here.
  bool measure_again() {
    const std::vector<int64_t> dims = measured_dims();
    const size_t node = state_.graph.nodes().size();
    if (dims.empty() || state_.repeated || !state_.live) return false;
    const auto found =
        std::find_if(state_.live->measured.begin(), state_.live->measured.end(),
                     [&](const Trace::Measure& other) { return other.node == node && other.dim == dims[0]; });
    if (found == state_.live->measured.end() || (args_.empty() && !convert())) return false;
    const Trace::Measure measure = *found;
    const graph::Node& live = state_.live->graph.nodes().at(node);
    if (live.op != op_.name) return false;
    const auto live_type = [&](size_t r) -> const types::TensorType& {
      return state_.live->graph.value(live.outputs.at(r)).type;
    };
    bool told = true;
    for (size_t r = 0; r < dims.size(); ++r)
      told = told && (dims[r] < 0 || is_dense(live_type(r)) || is_transposed(live_type(r)));
    std::optional<types::Expr> size = types::Expr::symbol(measure.symbol);
    const bool changes = measure.changes && told && state_.symbols->admit(*size);
    if (measure.changes && !changes) state_.symbols->fix(*size);
    if (!changes) size.reset();
    std::vector<ops::Result> results;
    for (size_t r = 0; r < dims.size(); ++r) {
      auto type = measured_type(live_type(r), dims[r], size);
      if (!type) return false;
      results.push_back({.kind = Kind::kFresh, .type = std::move(*type)});
    }
    commit(results);
    read_size(state_.graph.nodes()[node].outputs.at(0), measure);
    return true;
  }

  bool ask_metadata() {
    Internal ours(state_);
    run_below(op_.handle, &stack_);
    return true;
  }

  // torch.tensor([1, 2]): the numbers come from Python, the tensor is new in each call. What shares memory with the
  // outside (from_numpy) is not ours to copy: it is an input like any other.
  bool keep_constant() {
    const at::Tensor source = arguments()[0].toTensor();
    const c10::StorageImpl& storage = *source.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    if (!storage.resizable() || is_sealed(storage) || state_.find(source)) {
      Internal ours(state_);
      run_below(op_.handle, &stack_);
      return true;
    }
    static const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("aten::lift_fresh_copy", "");
    static const Operator& copy = operator_of(handle);
    const ValueId constant = state_.add_constant(source);
    types::TensorType type = state_.graph.value(constant).type;
    type.strides = types::contiguous_strides(type.sizes);
    type.offset = 0;
    ValueId value;
    at::Tensor result = state_.make_fresh(std::move(type), &value);
    state_.add_call(copy, {constant}, {c10::IValue()}, TensorPlace{source, 0, -1}, {value});
    stack_.resize(begin_);
    stack_.emplace_back(std::move(result));
    return true;
  }

  bool is_zeros(size_t argument) const {
    if (argument >= args_.size()) return false;
    const auto* id = std::get_if<ValueId>(&args_[argument]);
    return id && id->valid() && state_.storages[state_.values[id->index()].storage].zeros;
  }

  bool gives_zeros() const {
    switch (op_.zeros) {
      case Zeros::kNever:
        return false;
      case Zeros::kAlways:
        return true;
      case Zeros::kByAny:
        return is_zeros(0) || is_zeros(1);
      case Zeros::kByFirst:
        return is_zeros(0) && !is_zeros(1);
      case Zeros::kByBoth:
        return is_zeros(0) && is_zeros(1);
    }
    return false;
  }

  // The joint graph: zeros without memory are zeros with memory that stay zeros where torch's do (0 * inf is 0).
  bool record_zeros() {
    if (!convert() || !gives_zeros()) return false;
    static const Operator* const zeros = &operator_named("aten::zeros");
    types::TensorType type;
    if (op_.zeros == Zeros::kAlways) {
      const ops::Call call{.args = args_, .graph = &state_.graph, .default_dtype = default_dtype()};
      auto made = zeros->declared->type(call);
      if (!made) return false;
      type = made->at(0).type;
    } else {
      auto made = types_of_results();
      if (!made || made->size() != 1) return false;
      type = made->at(0).type;
      type.strides = types::contiguous_strides(type.sizes);
      type.offset = 0;
    }
    std::vector<graph::Arg> args{type.sizes, type.dtype, {}, type.device, {}};
    ValueId value;
    at::Tensor result = state_.make_fresh(std::move(type), &value);
    state_.storages[state_.values[value.index()].storage].zeros = true;
    state_.add_node(*zeros, std::move(args), {value});
    stack_.resize(begin_);
    stack_.emplace_back(std::move(result));
    return true;
  }

  // Fills args_ and tensors_.
  bool convert() {
    const c10::ArrayRef<c10::IValue> boxed = arguments();
    args_.reserve(boxed.size());
    for (size_t a = 0; a < boxed.size(); ++a) {
      const c10::IValue& argument = boxed[a];
      const int index = static_cast<int>(a);
      switch (op_.arguments[a]) {
        case ArgKind::kTensor:
          if (argument.isNone())
            args_.emplace_back();
          else
            args_.push_back(tensor_arg(argument.toTensor(), index));
          break;
        case ArgKind::kTensors:
        case ArgKind::kOptionalTensors: {
          if (argument.isNone()) {
            args_.emplace_back();
            break;
          }
          std::vector<ValueId> list;
          for (const c10::IValue& element : argument.toListRef()) {
            const bool defined = element.isTensor() && element.toTensor().defined();
            list.push_back(defined ? use(element.toTensor(), index, static_cast<int>(list.size())) : ValueId());
          }
          args_.push_back(std::move(list));
          break;
        }
        default: {
          auto arg = to_arg(argument, op_.arguments[a]);
          if (!arg) return false;
          if (const auto* number = std::get_if<double>(&*arg); number && state_.symbols)
            if (const auto real = state_.symbols->lent(*number)) arg = *real;
          args_.push_back(std::move(*arg));
        }
      }
    }
    return true;
  }

  graph::Arg tensor_arg(const at::Tensor& tensor, int argument) {
    if (!tensor.defined()) return ValueId();
    if (is_wrapped_number(tensor)) {
      if (state_.symbols)
        if (auto number = state_.symbols->wrapped(tensor)) return *number;
      graph::Arg number = number_of(tensor);
      if (const auto* plain = std::get_if<double>(&number); plain && state_.symbols)
        if (const auto real = state_.symbols->lent(*plain)) return *real;
      return number;
    }
    return use(tensor, argument, -1);
  }

  ValueId use(const at::Tensor& tensor, int argument, int item) {
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    // parameter.data = pending left our key on the caller's object; the data have come since.
    if (impl.key_set().has(kTensorKey) && is_plain_impl(impl) && !is_watched(impl) &&
        !is_sealed(*impl.unsafe_storage().unsafeGetStorageImpl()))
      KeysOf::of(impl) = KeysOf::of(impl).remove(kTensorKey);
    tensors_.push_back({tensor, argument, item});
    return state_.value_of(tensor);
  }

  const at::Tensor& tensor_at(int argument, int item) const {
    for (const TensorPlace& place : tensors_)
      if (place.argument == argument && place.item == item) return place.tensor;
    throw base::Fault("record: " + op_.name + " returns an argument that is no tensor");
  }

  ValueId value_at(int argument, int item) const {
    const graph::Arg& arg = args_[argument];
    return item < 0 ? std::get<ValueId>(arg) : std::get<std::vector<ValueId>>(arg)[item];
  }

  /// Operator, element types, devices, and whether there are any elements: kernels may look at the rest only then.
  std::string described() const {
    std::string text = op_.name;
    for (const TensorPlace& place : tensors_) {
      text += ' ';
      text += c10::toString(place.tensor.scalar_type());
      text += place.tensor.is_cpu() ? "" : "*";
      text += place.tensor.sym_numel() == 0 ? "0" : "";
    }
    const bool takes_numbers = by_rule_ && numbers_fit();  // torch may refuse others
    for (const graph::Arg& arg : args_) {                  // numbers in the place of tensors take part in promotion
      text += static_cast<char>('a' + arg.index());
      if (takes_numbers) continue;
      if (const auto* real = std::get_if<double>(&arg)) text += std::to_string(*real);
      if (const auto* whole = std::get_if<types::Expr>(&arg)) text += std::to_string(whole->value_or(0));
    }
    return text;
  }
  static bool fits(double number, c10::ScalarType type) {
    const auto dtype = to_dtype(type);
    return dtype && ops::number_fits(number, *dtype);
  }
  bool numbers_fit() const {
    for (const graph::Arg& arg : args_) {
      const auto* real = std::get_if<double>(&arg);
      const auto* whole = std::get_if<types::Expr>(&arg);
      if (!real && !(whole && whole->is_constant())) continue;
      const double number = real ? *real : static_cast<double>(whole->value_or(0));
      for (const TensorPlace& place : tensors_)
        if (!fits(number, place.tensor.scalar_type())) return false;
    }
    return true;
  }
  /// Whether torch's kernel may refuse the call, although its results have types. Our own rules know which ones refuse
  /// floats.
  bool is_untried() const {
    if (op_.way != Way::kRecord || op_.is_foreign) return false;
    const bool plain =
        by_rule_ && numbers_fit() && std::all_of(tensors_.begin(), tensors_.end(), [](const TensorPlace& place) {
          return place.tensor.scalar_type() == c10::kFloat || place.tensor.scalar_type() == c10::kDouble;
        });
    return !plain && !Tried::instance().contains(described());
  }

  // torch refuses some writes to elements that share a place, and some to places that are read as well; of the others
  // it depends on the kernel what comes out.
  bool writes_to_shared_places() const {
    if (!op_.writes_anything || op_.way == Way::kRestride) return false;
    for (const TensorPlace& place : tensors_) {
      if (!op_.writes[place.argument]) continue;
      const ValueId target = value_at(place.argument, place.item);
      const types::TensorType& type = state_.graph.value(target).type;
      if (!types::has_distinct_elements(type)) return true;
      for (const TensorPlace& other : tensors_) {
        const ValueId read = value_at(other.argument, other.item);
        const bool itself = read == target && (op_.works_by_element() || other.argument == place.argument);
        if (itself || state_.values[read.index()].storage != state_.values[target.index()].storage) continue;
        const types::TensorType& looked_at = state_.graph.value(read).type;
        const types::Overlap shared = types::overlap(type, looked_at);
        // the same places are a part for torch where the strides look otherwise
        if (!op_.may_read(shared) || (shared == types::Overlap::kSame && looked_at.strides != type.strides))
          return true;
      }
    }
    return false;
  }

  // Division of integers by a tensor, or by no number but zero: eager raises where a divisor is zero.
  bool must_run_at_once() const {
    if (writes_to_shared_places()) return true;
    if (!op_.divides || args_.size() < 2) return false;
    const auto* whole = std::get_if<types::Expr>(&args_[1]);
    const auto* truth = std::get_if<bool>(&args_[1]);
    const bool zero = (whole && *whole == types::Expr(0)) || (truth && !*truth);
    if (!zero && !std::holds_alternative<ValueId>(args_[1])) return false;
    for (const TensorPlace& place : tensors_)
      if (!c10::isIntegralType(place.tensor.scalar_type(), /*includeBool=*/true)) return false;
    return true;
  }

  Results results_by_rule(ops::TakenReals& reals) const {
    if (!op_.declared || !op_.declared->type) return std::nullopt;
    ops::Call call{.args = args_, .graph = &state_.graph, .default_dtype = default_dtype(), .reals = &reals};
    if (Symbols* symbols = state_.symbols.get()) {
      call.decide = [symbols](const types::Condition& question) { return symbols->decide(question); };
      call.fix = [symbols](const types::Expr& expr) { return symbols->fix(expr); };
    }
    return op_.declared->type(call);
  }

  // torch converts some numbers to the element type, and raises an error where that does not hold them.
  bool holds_reals(const ops::TakenReals& reals, const std::vector<ops::Result>& results) {
    double most = std::numeric_limits<double>::max();
    const auto is_stored = [&](types::Dtype dtype) {
      if (dtype == types::Dtype::kF16) most = std::min(most, 65504.0);
      if (dtype != types::Dtype::kF64) most = std::min(most, 3.3e38);
    };
    for (const ops::Result& result : results) is_stored(result.type.dtype);
    for (const TensorPlace& place : tensors_)
      is_stored(state_.graph.value(value_at(place.argument, place.item)).type.dtype);
    for (size_t a = 0; a < args_.size(); ++a) {
      const auto* real = std::get_if<graph::Real>(&args_[a]);
      if (!real) continue;
      if ((reals.taken >> a & 1) == 0) return false;
      const bool converted = op_.arguments[a] == ArgKind::kNumber || (reals.converted >> a & 1) != 0;
      if (converted && !state_.symbols->bound(*real, most)) return false;
      if ((reals.ordered >> a & 1) != 0 && !state_.symbols->order(*real)) return false;
      for (const auto& range : reals.ranges)
        if (range.argument == a && !state_.symbols->keep_between(*real, range.least, range.most)) return false;
    }
    return true;
  }

  // What returns nothing (_foreach_add_) has no type that could depend on a number. Of some others the rule says so.
  bool keeps_reals(const ops::TakenReals& reals) {
    constexpr uint64_t kEach = ~uint64_t{0};
    for (size_t a = 0; op_.returns > 0 && a < args_.size(); ++a)
      if (std::holds_alternative<graph::Real>(args_[a]) && (reals.untyped >> a & 1) == 0) return false;
    if (!holds_reals(op_.returns > 0 ? reals : ops::TakenReals{kEach, kEach}, {})) return false;
    for (size_t a = 0; a < args_.size(); ++a)  // for the shape kernel
      if (const auto* real = std::get_if<graph::Real>(&args_[a]); real && op_.arguments[a] != ArgKind::kTensor)
        stack_[begin_ + a] = state_.symbols->hint(*real);
    return true;
  }

  // Floats without a value are the numbers they are now; true: there were some.
  bool fix_reals() {
    bool any = false;
    for (size_t a = 0; a < args_.size(); ++a)
      if (const auto* real = std::get_if<graph::Real>(&args_[a])) {
        any = true;
        args_[a] = state_.symbols->fix(*real);
        if (op_.arguments[a] == ArgKind::kTensor)
          stack_[begin_ + a] = wrapped_number(args_[a]);
        else
          stack_[begin_ + a] = std::get<double>(args_[a]);
      }
    return any;
  }

  Results types_of_results() {
    ops::TakenReals reals;
    Results ruled = results_by_rule(reals);
    if (ruled && !holds_reals(reals, *ruled)) ruled.reset();
    if (!ruled && !keeps_reals(reals) && fix_reals()) ruled = results_by_rule(reals);
    if (ruled) {
      by_rule_ = true;
      return ruled;
    }
    // torch's shape kernel would warn where the kernel does, and it has other strides for a tensor that is given by
    // out= and resized, where a size is one.
    if (!state_.symbols && (op_.takes_out || is_untried())) return std::nullopt;
    Internal ours(state_);
    if (state_.symbols) {
      if (Results probed = results_by_probing(op_, args_, state_.graph, *state_.symbols)) return probed;
      fix_arguments();
    }
    Results results = op_.way == Way::kView || op_.way == Way::kRestride ? results_by_view(op_, arguments())
                                                                         : results_by_kernel(op_, arguments());
    if (results || !state_.symbols) return results;
    results = results_of_live();
    return results || !state_.repeats_autograd ? std::move(results) : results_by_trial(op_, arguments());
  }

  bool wants_gradient() const {
    return c10::GradMode::is_enabled() && std::any_of(tensors_.begin(), tensors_.end(), [](const TensorPlace& place) {
             return place.tensor.requires_grad();
           });
  }

  bool is_told() const {
    Internal ours(state_);
    return aten::is_told(op_, arguments());
  }

  // Only a kernel knows the numbers that it returns. A symbolic trace takes those that were seen when it ran.
  Results results_with_numbers() {
    const auto& returns = op_.handle.schema().returns();
    const auto is_tensor = [](const c10::Argument& result) { return kind_of(result) == ArgKind::kTensor; };
    if (!state_.symbols) return std::nullopt;
    Results results = results_of_live();
    if (!results) return std::nullopt;
    numbers_ = state_.live->graph.nodes()[live_node()].numbers;
    const auto tensors = static_cast<size_t>(std::count_if(returns.begin(), returns.end(), is_tensor));
    if (results->size() != tensors || numbers_.size() != returns.size() - tensors) return std::nullopt;
    return results;
  }

  size_t live_node() const { return state_.repeated.value_or(state_.graph.nodes().size()); }

  // SymbolicTrace: the operator was run in the live trace, as the same node. Its results are new tensors of these types
  // for the sizes of now. Nothing: it is another node there, or its results are views.
  Results results_of_live() {
    const Trace::State& live = *state_.live;
    const size_t index = live_node();
    if (index >= live.graph.nodes().size()) return std::nullopt;
    const graph::Node& node = live.graph.nodes()[index];
    if (node.op != op_.name || op_.writes_anything || op_.way == Way::kView || op_.way == Way::kRestride)
      return std::nullopt;
    bool shares = false;
    const auto storage = [&](ValueId value) { return live.values[value.index()].storage; };
    std::vector<ops::Result> results;
    for (ValueId output : node.outputs) {
      ops::Result result{.kind = output.valid() ? Kind::kFresh : Kind::kUndefined, .type = {}};
      if (output.valid()) {
        result.type = live.graph.value(output).type;
        shares = shares || result.type.offset != types::Expr(0);
        graph::for_each_read(node, [&](ValueId read) { shares = shares || storage(read) == storage(output); });
      }
      results.push_back(std::move(result));
    }
    if (shares) return std::nullopt;
    for (const TensorPlace& place : tensors_) {
      const types::TensorType& type = state_.graph.value(value_at(place.argument, place.item)).type;
      for (const types::Expr& size : type.sizes) state_.symbols->fix(size);
      for (const types::Expr& stride : type.strides) state_.symbols->fix(stride);
    }
    return results;
  }

  // torch's kernels take numbers: what they look at is no symbol any more. The tensors see to themselves.
  void fix_arguments() {
    for (size_t a = 0; a < op_.arguments.size(); ++a) {
      c10::IValue& argument = stack_[begin_ + a];
      if (argument.isSymInt()) argument = argument.toSymInt().guard_int(__FILE__, __LINE__);
      if (argument.isSymFloat()) argument = argument.toSymFloat().guard_float(__FILE__, __LINE__);
      if (op_.arguments[a] != ArgKind::kInts || !argument.isSymIntList() || argument.isIntList()) continue;
      c10::List<int64_t> numbers;
      for (const c10::SymInt& number : argument.toSymIntVector())
        numbers.push_back(number.guard_int(__FILE__, __LINE__));
      argument = std::move(numbers);
    }
  }

  void commit(std::vector<ops::Result>& results) {
    std::vector<ValueId> outputs(results.size());
    std::vector<at::Tensor> tensors(results.size());
    for (size_t r = 0; r < results.size(); ++r) {
      ops::Result& result = results[r];
      switch (result.kind) {
        case Kind::kUndefined:
          break;
        case Kind::kFresh:
          tensors[r] = state_.make_fresh(std::move(result.type), &outputs[r]);
          break;
        case Kind::kView:
          tensors[r] = state_.make_view(tensor_at(result.of, result.item), std::move(result.type), &outputs[r]);
          if (op_.name == "aten::view.dtype" && c10::InferenceMode::is_enabled()) {
            // a new tensor for torch: that of a normal one is an inference tensor, as no other view is
            c10::DispatchKeySet& keys = KeysOf::of(*tensors[r].unsafeGetTensorImpl());
            keys = keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
          }
          break;
        case Kind::kSame:
          tensors[r] = tensor_at(result.of, result.item);
          outputs[r] = same_value(tensors[r], value_at(result.of, result.item), result.type);
          break;
      }
    }
    if (op_.way != Way::kRestride) note_writes();

    std::vector<c10::IValue> boxed(op_.arguments.size());
    for (size_t a = 0; a < boxed.size(); ++a)
      if (!std::holds_alternative<std::vector<ValueId>>(args_[a]) &&
          !(std::holds_alternative<ValueId>(args_[a]) && std::get<ValueId>(args_[a]).valid()))
        boxed[a] = std::move(stack_[begin_ + a]);
    state_.add_call(op_, std::move(args_), std::move(boxed), tensors_, std::move(outputs), numbers_);
    stack_.resize(begin_);
    push_results(tensors);
  }

  // An object that changed its sizes or strides is another value: a value has one type.
  ValueId same_value(const at::Tensor& tensor, ValueId value, const types::TensorType& type) {
    if (state_.graph.value(value).type == type) return value;
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (!has_type(impl, type)) {
      if (impl.has_symbolic_sizes_strides()) state_.must_compute(op_.name);  // torch keeps such sizes as they are
      set_layout(impl, type, state_.symbols.get());
    }
    const ValueId changed = state_.add_value(type, state_.values[value.index()].storage);
    state_.rename(tensor, changed);
    return changed;
  }

  void count_versions() const {
    if (!op_.bumps_versions) return;
    for (const TensorPlace& place : tensors_)
      if (op_.writes[place.argument] && !place.tensor.is_inference())
        place.tensor.unsafeGetTensorImpl()->bump_version();
  }

  void note_writes() {
    if (!op_.writes_anything) return;
    count_versions();
    for (const TensorPlace& place : tensors_)
      if (op_.writes[place.argument]) state_.note_write(value_at(place.argument, place.item));
  }

  void push_results(std::vector<at::Tensor>& tensors) {
    const auto& returns = op_.handle.schema().returns();
    size_t next = 0, number = 0;
    for (const c10::Argument& result : returns) {
      if (kind_of(result) == ArgKind::kTensor) {
        stack_.emplace_back(std::move(tensors[next++]));
      } else if (op_.gives_numbers) {
        stack_.emplace_back(numbers_[number++]);
      } else {  // one list at most, and it takes what the others leave
        c10::List<at::Tensor> list;
        for (size_t count = tensors.size() - (returns.size() - 1); count > 0; --count)
          list.push_back(std::move(tensors[next++]));
        stack_.emplace_back(std::move(list));
      }
    }
  }

  bool try_at_once() {
    std::string call = described();  // running it takes the arguments
    run_at_once();
    Tried::instance().add(std::move(call));
    return true;
  }

  // So that what is drawn now can be taken back.
  void note_draw() {
    bool known = false;
    const auto draws_on = [&](c10::Device device) {
      state_.drawn.note(device);
      known = true;
    };
    for (const c10::IValue& argument : arguments()) {
      if (argument.isDevice()) draws_on(argument.toDevice());
      each_tensor(argument, [&](const at::Tensor& tensor, int) {
        if (tensor.defined()) draws_on(tensor.device());
      });
    }
    if (!known) draws_on(at::kCPU);
  }

  bool run_at_once() {
    state_.must_compute(op_.name);
    state_.run_recorded();
    if (op_.random) note_draw();
    try {
      const KeptVersions kept(op_, c10::ArrayRef<c10::IValue>(stack_).slice(begin_));
      run_below(op_.handle, &stack_);
    } catch (...) {
      state_.note_data_read(op_.name + ": it raised");  // which may depend on data
      throw;
    }
    count_versions();
    std::vector<ValueId> outputs;
    const char* odd = nullptr;
    for (size_t r = begin_; r < stack_.size(); ++r)
      each_tensor(stack_[r], [&](const at::Tensor& tensor, int) {
        if (tensor.defined() && not_plain(*tensor.unsafeGetTensorImpl()))
          odd = not_plain(*tensor.unsafeGetTensorImpl());
      });
    if (odd) {
      state_.note_data_read(op_.name + ": returns " + odd, base::concat("it returns ", odd));
      return true;
    }
    for (size_t r = begin_; r < stack_.size(); ++r) {
      c10::IValue& result = stack_[r];
      if (result.isTensor()) {
        result = known_result(result.toTensor(), outputs);
      } else if (result.isTensorList()) {
        c10::List<at::Tensor> list;
        each_tensor(result, [&](const at::Tensor& tensor, int) { list.push_back(known_result(tensor, outputs)); });
        result = std::move(list);
      } else if (result.isInt()) {
        numbers_.push_back(result.toInt());
      }
    }
    state_.add_node(op_, std::move(args_), std::move(outputs), std::move(numbers_));
    state_.done = state_.graph.nodes().size();
    return true;
  }

  at::Tensor known_result(const at::Tensor& tensor, std::vector<ValueId>& outputs) {
    outputs.emplace_back();
    if (!tensor.defined()) return tensor;
    for (const TensorPlace& place : tensors_)
      if (place.tensor.is_same(tensor)) {
        outputs.back() =
            same_value(tensor, value_at(place.argument, place.item), type_of(*tensor.unsafeGetTensorImpl()));
        state_.values[outputs.back().index()].ready = true;
        return tensor;
      }
    return state_.make_ready(tensor, &outputs.back());
  }

  Trace::State& state_;
  const Operator& op_;
  Stack& stack_;
  const size_t begin_;
  std::vector<graph::Arg> args_;
  c10::SmallVector<TensorPlace, 4> tensors_;
  std::vector<int64_t> numbers_;  ///< that it returns beside tensors
  bool by_rule_ = false;          ///< the types of its results are those of our own rule
};

// An operator of a thread that does not trace, on a tensor that may be pending.
void on_operator_outside(const c10::OperatorHandle& handle, Stack* stack) {
  const size_t count = handle.schema().arguments().size();
  for (size_t a = stack->size() - count; a < stack->size(); ++a)
    each_tensor((*stack)[a], [&](const at::Tensor& tensor, int) {
      if (!tensor.defined()) return;
      c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      const c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
      if (!storage) return;
      if (is_sealed(*storage)) impl.has_storage();  // flushes
      if (!is_sealed(*storage) && is_plain_impl(impl) && !is_watched(impl))
        KeysOf::of(impl) = KeysOf::of(impl).remove(kTensorKey);
    });
  run_below(handle, stack);
}

// An operator of a thread that traces. Boxed, for all operators.
void on_traced_operator(const c10::OperatorHandle& handle, Stack* stack) {
  std::shared_ptr<Trace::State> keep;
  Trace::State* state = entered_state(keep);
  if (!state) return on_operator_outside(handle, stack);  // a thread of the engine, which of several traces is unknown
  const Operator& op = operator_of(handle);
  const bool mode_active = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
  if (op.way == Way::kDecompose && !mode_active)
    return handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  for (;;) {
    std::vector<std::shared_ptr<Trace::State>> foreign;
    {
      Lock lock(*state);
      if (state->internal) break;
      Recording recording(*state, op, *stack);
      foreign = recording.foreign_traces();
      if (foreign.empty()) {
        if (recording.record()) return;
        break;
      }
    }
    // Not under our own lock: two traces that wait for each other's tensors must not wait for each other's locks.
    for (const auto& other : foreign) other->read_data(nullptr, op.name + " of another trace");
  }
  if (!op.is_foreign || above(op) != Above::kNobody) return run_below(handle, stack);
  PastUs past;
  handle.callBoxed(stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_traced_operator>());
}
TORCH_LIBRARY_IMPL(_, CustomRNGKeyId, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator_outside>());
}

}  // namespace magneto::aten
