#include "aten/calls.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <charconv>
#include <optional>

#include "aten/boxed_internal.h"
#include "aten/convert_internal.h"
#include "base/check.h"
#include "base/text.h"
#include "graph/text.h"

namespace magneto::aten {

namespace {

/// A tensor among the arguments: the k-th that is read, or a view of it.
struct Read {
  size_t index = 0;
  std::optional<types::TensorType> view;
};

/// The text with %n for the n-th tensor in it.
std::string number(std::string_view text, std::vector<Read>& reads) {
  std::string made;
  bool quoted = false;
  while (!text.empty()) {
    const char c = text.front();
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\' && text.size() > 1) {
      made += text.substr(0, 2);
      text.remove_prefix(2);
      continue;
    }
    text.remove_prefix(1);
    if (quoted || c != '$') {
      made += c;
      continue;
    }
    Read read;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), read.index);
    base::check(end.ec == std::errc(), "call: a number must follow $ in ", text);
    text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
    if (!text.empty() && text.front() == ':') {
      text.remove_prefix(1);
      read.view = types::take_tensor_type(text);
      base::check(read.view.has_value(), "call: a type must follow $", read.index, ": in ", text);
    }
    made += base::concat("%", reads.size());
    reads.push_back(std::move(read));
  }
  return made;
}

/// A tensor of `type` over the same memory: torch's as_strided and view, without a dispatch. `symbols` give its sizes.
at::Tensor view_of(const at::Tensor& tensor, const types::TensorType& type, std::span<const int64_t> symbols) {
  const auto [sizes, strides] = extents_of(type, symbols);
  at::Tensor view =
      at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(),
                                               c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype)));
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(type.offset.evaluate(symbols));
  impl->set_sizes_and_strides(sizes, strides);
  return view;
}

/// Attention is tagged as random whatever its arguments are; without dropout it draws nothing.
bool draws(const Operator& op, const std::vector<Slot>& slots) {
  const auto& arguments = op.handle.schema().arguments();
  for (size_t a = 0; a < slots.size(); ++a)
    if (arguments[a].name() == "dropout_p" && slots[a].constant.isDouble() && slots[a].constant.toDouble() == 0)
      return false;
  return op.random;
}

/// Below autograd, and without autocast: casts stand in the graph. A kernel of autograd that is Python code does
/// something in each call, gradient or not: such an operator is called as the program does it.
class AsRecorded {
 public:
  explicit AsRecorded(const Operator& op) {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ | c10::autocast_dispatch_keyset;
    if (op.is_foreign && above(op) == Above::kPython) {
      grad_mode_.emplace(false);
      keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    } else {
      keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    }
    guard_.emplace(keys);
  }

 private:
  std::optional<c10::AutoGradMode> grad_mode_;
  std::optional<c10::impl::ForceDispatchKeyGuard> guard_;
};

}  // namespace

struct Call::Body {
  const Operator* op = nullptr;
  bool random = false;
  std::vector<Slot> slots;
  std::vector<Read> reads;
  std::vector<bool> defined;  ///< results that the graph knows; empty: all
};

Call::Call(const std::string& op, std::string_view arguments) : body_(std::make_unique<Body>()) {
  body_->op = &operator_named(op);
  if (const size_t arrow = arguments.rfind(" -> "); arrow != std::string_view::npos) {
    for (const char c : arguments.substr(arrow))  // of "$" and "undef"
      if (c == '$' || c == 'u') body_->defined.push_back(c == '$');
    arguments = arguments.substr(0, arrow);
  }
  body_->slots = make_slots(*body_->op, graph::parse_arguments(number(arguments, body_->reads)));
  body_->random = draws(*body_->op, body_->slots);
  for (Slot& slot : body_->slots) slot.last.assign(slot.values.size(), true);
}
Call::~Call() = default;
Call::Call(Call&&) noexcept = default;

bool Call::random() const { return body_->random; }

void Call::run(std::span<const at::Tensor> reads, std::span<const int64_t> symbols, Tensors& results) const {
  const AsRecorded dispatch(*body_->op);
  c10::SmallVector<at::Tensor, 8> values;
  for (const Read& read : body_->reads)
    values.push_back(read.view ? view_of(reads[read.index], *read.view, symbols) : reads[read.index]);
  torch::jit::Stack stack;
  for (const Slot& slot : body_->slots) push(slot, {values.data(), values.size()}, symbols, stack);
  body_->op->handle.callBoxed(stack);
  size_t n = 0;
  for_each_result(stack, [&](at::Tensor&& tensor) {
    if (body_->defined.empty() || body_->defined[n]) results.push_back(std::move(tensor));
    ++n;
  });
}

}  // namespace magneto::aten
