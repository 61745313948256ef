#include "runtime/sort.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/check.h"
#include "loop/semantics.h"
#include "types/tensor_type.h"

namespace magneto::runtime {

namespace {

struct View {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  types::Dtype dtype = types::Dtype::kF32;
  char* memory = nullptr;
  char* at(int64_t element) const {
    return memory + (offset + element) * static_cast<int64_t>(types::item_size(dtype));
  }
};

View view_of(std::string_view& text, void* memory, const std::vector<int64_t>& symbols) {
  while (text.starts_with("; ")) text.remove_prefix(2);
  const auto type = types::take_tensor_type(text);
  base::check(type.has_value(), "sort: expected a type, found '", text, "'");
  View view;
  for (const types::Expr& size : type->sizes) view.sizes.push_back(size.evaluate(symbols));
  for (const types::Expr& stride : type->strides) view.strides.push_back(stride.evaluate(symbols));
  view.offset = type->offset.evaluate(symbols);
  view.dtype = type->dtype;
  view.memory = static_cast<char*>(memory);
  return view;
}

}  // namespace

void sort(const plan::Step& step, void* const* buffers, const std::vector<int64_t>& symbols) {
  std::string_view text = step.arguments;
  std::vector<View> views;
  for (size_t k = 0; k < step.reads.size() + step.writes.size(); ++k)
    views.push_back(view_of(text, buffers[k], symbols));
  base::check(text.starts_with("; along ") && text.size() > 8, "sort: expected the dimension, found '", text, "'");
  size_t d = 0;
  std::from_chars(text.data() + 8, text.data() + text.size(), d);
  const bool descending = text.find("descending") != std::string_view::npos;
  const View& from = views[0];
  base::check(d < from.sizes.size(), "sort: there is no dimension ", d);
  if (std::find(from.sizes.begin(), from.sizes.end(), 0) != from.sizes.end()) return;

  const bool real = types::is_floating(from.dtype);
  const auto less = [&](const loop::Number& a, const loop::Number& b) {
    if (!real) return a.whole < b.whole;
    return a.real < b.real || (a.real == a.real && b.real != b.real);
  };
  const int64_t length = from.sizes[d];
  std::vector<loop::Number> line(static_cast<size_t>(length));
  std::vector<int64_t> order(line.size()), index(from.sizes.size(), 0);
  for (;;) {
    const auto first = [&](const View& v) {
      int64_t at = 0;
      for (size_t k = 0; k < index.size(); ++k) at += index[k] * v.strides[k];
      return at;
    };
    for (int64_t k = 0; k < length; ++k)
      line[static_cast<size_t>(k)] = loop::read(from.dtype, from.at(first(from) + k * from.strides[d]));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const loop::Number &x = line[static_cast<size_t>(a)], &y = line[static_cast<size_t>(b)];
      return descending ? less(y, x) : less(x, y);
    });
    for (int64_t k = 0; k < length; ++k) {
      const int64_t taken = order[static_cast<size_t>(k)];
      const View& to = views[1];
      loop::write(to.dtype, to.at(first(to) + k * to.strides[d]), line[static_cast<size_t>(taken)]);
      if (views.size() < 3) continue;
      const View& at = views[2];
      loop::write(at.dtype, at.at(first(at) + k * at.strides[d]), loop::Number::of_int(taken));
    }
    size_t k = index.size();
    for (; k > 0; --k) {  // the next line: all dimensions count but the one that is sorted
      if (k - 1 == d) continue;
      if (++index[k - 1] < from.sizes[k - 1]) break;
      index[k - 1] = 0;
    }
    if (k == 0) return;
  }
}

}  // namespace magneto::runtime
