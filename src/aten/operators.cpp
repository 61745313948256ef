// aten/operators.cpp
#include "aten/operators_internal.h"

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "aten/data_of.h"
#include "aten/reading.h"
#include "base/check.h"

namespace magneto::aten {

using c10::DispatchKey;

namespace {

// torch's own table of kernels. `import torch` registers Python shape kernels over the C++ ones (20 to 1000 us a call);
// those underneath stay in the list of the Meta key. The table is private: named by an explicit instantiation.
using Kernels = ska::flat_hash_map<DispatchKey, std::list<c10::impl::AnnotatedKernel>>;
template <auto Member>
struct EntryOf {
  friend c10::impl::OperatorEntry& entry_of(const c10::OperatorHandle& handle) { return (handle.*Member)->op; }
};
template <auto Member>
struct KernelsOf {
  friend Kernels& kernels_of(c10::impl::OperatorEntry& entry) { return entry.*Member; }
};
c10::impl::OperatorEntry& entry_of(const c10::OperatorHandle& handle);
Kernels& kernels_of(c10::impl::OperatorEntry& entry);
template struct EntryOf<&c10::OperatorHandle::operatorDef_>;
template struct KernelsOf<&c10::impl::OperatorEntry::kernels_>;

const c10::KernelFunction* meta_kernel(const c10::OperatorHandle& handle, bool in_python) {
  Kernels& kernels = kernels_of(entry_of(handle));
  const auto found = kernels.find(DispatchKey::Meta);
  if (found == kernels.end()) return nullptr;
  for (const auto& kernel : found->second)
    if ((kernel.debug.find(".py:") != std::string::npos) == in_python) return &kernel.kernel;
  return nullptr;
}

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

// Operators whose kernels look at values and refuse some of them: those that ops/ does not declare. `base` is the name
// without namespace and overload.
bool may_raise_on_data(std::string_view base) {
  return starts_with_any(base,
                         {"index",      "_index",     "_unsafe_index",  "gather",          "scatter",     "embedding",
                          "_embedding", "nll_loss",   "linalg_",        "_linalg_",        "cholesky",    "_cholesky",
                          "lu_",        "triangular", "histogram",      "_histogram",      "multinomial", "ctc_loss",
                          "_ctc_loss",  "max_unpool", "segment_reduce", "_segment_reduce", "_validate",   "_assert"}) ||
         is_any(base, {"masked_scatter",
                       "masked_scatter_",
                       "take",
                       "put",
                       "put_",
                       "histc",
                       "inverse",
                       "normal",
                       "poisson",
                       "binomial",
                       "geqrf",
                       "ormqr",
                       "orgqr",
                       "multi_margin_loss",
                       "multilabel_margin_loss_forward",
                       "logdet",
                       "slogdet",
                       "pinverse",
                       "renorm",
                       "searchsorted",
                       "_thnn_fused_lstm_cell",
                       "bernoulli",
                       "bernoulli_"});
}

// Numbers and truths that come from values. Operators with a size that depends on data carry a tag of torch.
bool reads_data(std::string_view base) {
  return is_any(base, {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "_unique",
                       "allclose", "_nested_tensor_size", "_nested_tensor_strides"});
}

// Nothing comes out: they raise an error, or do nothing.
bool only_checks(std::string_view base) {
  return is_any(base, {"_linalg_check_errors", "_assert_async", "_functional_assert_async"}) ||
         base.starts_with("_validate");
}

// Gives what it writes other sizes, and its shape kernel does not tell: it must have run before autograd looks.
bool resizes_what_it_writes(std::string_view base) { return base == "addbmm_"; }

// No tensor comes out, and only sizes, strides, dtypes and flags are looked at.
bool asks_metadata(std::string_view base) {
  return starts_with_any(base, {"sym_", "_fused_sdp_choice", "is_"}) ||
         is_any(base, {"size",
                       "stride",
                       "dim",
                       "numel",
                       "storage_offset",
                       "_has_compatible_shallow_copy_type",
                       "_version",
                       "cudnn_is_acceptable",
                       "can_cast",
                       "result_type",
                       "promote_types",
                       "_debug_has_internal_overlap",
                       "_assert_tensor_metadata",
                       "_use_cudnn_ctc_loss",
                       "_use_miopen_ctc_loss",
                       "_use_cudnn_rnn_flatten_weight",
                       "retains_grad",
                       "output_nr",
                       "_is_zerotensor",
                       "_nnpack_available",
                       "get_device",
                       "qscheme"});
}

// Give a tensor object other memory, another layout or another history, behind the back of a graph.
bool is_opaque(std::string_view base) {
  return starts_with_any(base, {"set_", "_resize_output", "resize_as_sparse", "detach_", "_sparse", "_nested", "share_",
                                "_efficientzerotensor"});
}

// Arguments that are written to although the schema is silent: running statistics, in training.
void add_silent_writes(std::string_view base, std::vector<bool>& writes) {
  if (is_any(base, {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})) writes[3] = writes[4] = true;
}

Zeros zeros_of(std::string_view base, const c10::OperatorHandle& handle) {
  if (base == "_efficientzerotensor") return Zeros::kAlways;
  if (!handle.hasKernelForDispatchKey(DispatchKey::ZeroTensor)) return Zeros::kNever;
  if (is_any(base, {"mul", "linalg_cross"})) return Zeros::kByAny;
  if (base == "div") return Zeros::kByFirst;
  return base == "add" ? Zeros::kByBoth : Zeros::kNever;
}

bool is_tensor(ArgKind kind) {
  return kind == ArgKind::kTensor || kind == ArgKind::kTensors || kind == ArgKind::kOptionalTensors;
}

bool only_composite(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
         !handle.hasKernelForDispatchKey(DispatchKey::CPU) && !handle.hasKernelForDispatchKey(DispatchKey::CUDA);
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& op) : handle(op) {
  const c10::FunctionSchema& schema = op.schema();
  name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  declared = ops::find(name);
  const std::string_view full = schema.name();
  const bool is_aten = full.starts_with("aten::");
  const std::string_view base = is_aten ? full.substr(6) : std::string_view();

  for (const c10::Argument& argument : schema.arguments()) {
    const c10::AliasInfo* alias = argument.alias_info();
    arguments.push_back(kind_of(argument));
    aliases.push_back(alias != nullptr);
    writes.push_back(alias && alias->isWrite());
    takes_out = takes_out || argument.is_out();
  }
  add_silent_writes(base, writes);
  if (declared)
    for (int index : declared->writes) writes[index] = true;
  writes_anything = std::find(writes.begin(), writes.end(), true) != writes.end();

  size_t tensors = 0, views = 0;
  for (const c10::Argument& result : schema.returns()) {
    if (!is_tensor(kind_of(result))) continue;
    ++tensors;
    if (result.alias_info() && !result.alias_info()->isWrite()) ++views;
  }
  returns = schema.returns().size();
  gives_numbers = tensors < returns;

  bumps_versions =
      base.starts_with("_foreach_") && writes_anything && !op.hasKernelForDispatchKey(DispatchKey::ADInplaceOrView);
  factory =
      !writes_anything && (base.ends_with("_like") || std::none_of(arguments.begin(), arguments.end(), is_tensor));
  // the backwards of attention are tagged like their forwards, but get seed and offset as arguments
  const bool draws = op.hasTag(at::Tag::nondeterministic_seeded) && !name.ends_with("attention_backward");
  random = draws || (declared && declared->random);
  masks_are_dynamic = is_any(base, {"index", "_unsafe_index"});
  divides = is_any(base, {"floor_divide", "floor_divide_", "remainder", "remainder_", "fmod", "fmod_"}) ||
            (is_any(base, {"div", "div_"}) && name.ends_with("_mode"));
  same_dtypes = is_any(base, {"mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addmv", "mv", "dot",
                              "vdot", "_addmm_activation", "_convolution", "convolution", "lerp", "lerp_"});
  const bool raises = declared ? declared->may_raise_on_data : may_raise_on_data(base);
  const bool dynamic = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);

  way = [&] {
    if (is_any(base, {"lift_fresh", "lift"})) return Way::kConstant;
    if (is_opaque(base)) return Way::kOpaque;
    if (only_composite(op)) return Way::kDecompose;
    if (reads_data(base) || (dynamic && !masks_are_dynamic)) return Way::kReadsData;
    if (only_checks(base) || resizes_what_it_writes(base) || name == kRead || name == kReadSize) return Way::kAtOnce;
    if (tensors == 0 && !writes_anything) return asks_metadata(base) ? Way::kMetadata : Way::kReadsData;
    if (op.hasTag(at::Tag::inplace_view) && !base.starts_with("resize")) return Way::kRestride;
    if (tensors > 0 && views == tensors && !writes_anything) return Way::kView;
    if (gives_numbers && !base.starts_with("_scaled_dot_product_"))  // theirs are lengths; others may count anything
      return writes_anything ? Way::kOpaque : Way::kReadsData;
    return gives_numbers || (raises && !divides) ? Way::kAtOnce : Way::kRecord;
  }();
  meta = base == "masked_fill_" ? nullptr : meta_kernel(op, false);  // its own does not compare sizes
  is_foreign = !is_aten && !full.starts_with("magneto::");
  zeros = zeros_of(base, op);
}

// As the dispatcher chooses: what was registered for the key itself, a composite where the backend has no kernel, what
// was registered for all of autograd. What registered it says where that was.
Above above(const Operator& op, DispatchKey autograd_key) {
  Kernels& kernels = kernels_of(entry_of(op.handle));
  const auto newest = [&](DispatchKey key) -> const c10::impl::AnnotatedKernel* {
    const auto found = kernels.find(key);
    return found == kernels.end() || found->second.empty() ? nullptr : &found->second.front();
  };
  const DispatchKey backend = autograd_key == DispatchKey::AutogradCUDA ? DispatchKey::CUDA : DispatchKey::CPU;
  const c10::impl::AnnotatedKernel* kernel = newest(autograd_key);
  if (!kernel && !newest(backend) && !newest(DispatchKey::CompositeExplicitAutograd))
    kernel = newest(DispatchKey::CompositeImplicitAutograd);
  if (!kernel) kernel = newest(DispatchKey::Autograd);
  if (!kernel || kernel->kernel.isFallthrough()) return Above::kNobody;
  const auto is_from = [&](const char* place) { return kernel->debug.find(place) != std::string::npos; };
  if (is_from(".py:")) return is_from("/torch/_library/custom_ops.py:") ? Above::kGlue : Above::kPython;
  if (op.is_foreign) return is_from("torch/csrc/autograd/") ? Above::kTorch : Above::kCpp;
  return is_from("torch/csrc/") || is_from("aten/src/ATen/") ? Above::kTorch : Above::kCpp;
}

Above above(const Operator& op) {
  return std::max(above(op, DispatchKey::AutogradCPU), above(op, DispatchKey::AutogradCUDA));
}

std::string hidden_effect(const Operator& op) {
  const ops::Op* const known = op.declared;
  if (op.way == Way::kOpaque) return op.name + " changes a tensor in a way that a graph cannot hold";
  if (op.name == "aten::data") return "x.data: a second tensor over the same memory, which no gradient knows of";
  if (op.way == Way::kView && !(known && known->view)) return op.name + " is a view that is not declared";
  if (op.writes_anything && !(known && (!known->writes.empty() || known->changes_shape)))
    return op.name + " writes to its arguments, and is not declared";
  return "";
}

const c10::KernelFunction* fake_of(const Operator& op) { return meta_kernel(op.handle, true); }

const Operator& operator_of(const c10::OperatorHandle& handle) {
  static std::mutex mutex;
  struct Entry {
    c10::OperatorName name{"", ""};  // a copy: a library that is unloaded leaves its operators' addresses to others
    std::unique_ptr<Operator> known;
  };
  static auto* table = new std::unordered_map<const c10::OperatorName*, Entry>;
  std::lock_guard<std::mutex> lock(mutex);
  Entry& entry = (*table)[&handle.operator_name()];
  if (!entry.known || !(entry.name == handle.operator_name())) {
    entry.name = handle.operator_name();
    entry.known = std::make_unique<Operator>(handle);
  }
  return *entry.known;
}

const Operator& operator_named(const std::string& name) {
  const size_t dot = name.find('.');
  const c10::OperatorName key(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  const auto handle = c10::Dispatcher::singleton().findSchema(key);
  base::check(handle.has_value(), "torch has no operator ", name);
  return operator_of(*handle);
}

graph::ValueId viewed_by(const graph::Node& view) {
  const Operator& op = operator_named(view.op);
  const size_t shared = static_cast<size_t>(std::find(op.aliases.begin(), op.aliases.end(), true) - op.aliases.begin());
  const auto* below = shared < view.args.size() ? std::get_if<graph::ValueId>(&view.args[shared]) : nullptr;
  return below ? *below : graph::ValueId();
}

bool ends_history(const std::string& op) { return op == "aten::detach" || op == kDataOf; }

bool is_view(const graph::Graph& graph, graph::ValueId id) {
  while (id.valid() && graph.value(id).maker.valid()) {
    const graph::Node& node = graph.node(graph.value(id).maker);
    const Operator& op = operator_named(node.op);
    if (op.way != Way::kRestride) return op.way == Way::kView && !ends_history(node.op);
    id = viewed_by(node);
  }
  return false;
}

}  // namespace magneto::aten
