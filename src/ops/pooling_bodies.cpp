// Elements of pooled and resized images. A window is written out, element by element, where it is small: so the result
// is a map over pixels, walked along a row of the image. Gradients of averages are gathered from the windows that a
// pixel lies in; that of a maximum is scattered to where it was found.
#include <cmath>
#include <limits>

#include "ops/pooling_internal.h"

namespace magneto::ops {

namespace {

constexpr int64_t kWrittenOut = 64;  ///< elements of a window that is no loop

struct Image {
  int64_t h = 0, w = 0;
};
/// Nothing for an image without pixels: it has no windows, and sizes are divided by.
std::optional<Image> image(const Call& call, const TensorType& type) {
  const size_t rank = type.sizes.size();
  if (rank < 3) return std::nullopt;
  const auto h = fixed_size(call, type.sizes[rank - 2]), w = fixed_size(call, type.sizes[rank - 1]);
  return h && w && *h > 0 && *w > 0 ? std::optional(Image{*h, *w}) : std::nullopt;
}

Index at_pixel(const Index& index, Element h, Element w) {
  Index place = index;
  place[place.size() - 2] = h;
  place[place.size() - 1] = w;
  return place;
}
Element row(const Index& index) { return index[index.size() - 2]; }
Element column(const Index& index) { return index.back(); }

Element inside(const Body& b, Element i, int64_t size) { return (i >= b.whole(0)) & (i < b.whole(size)); }

/// The sum of `element` over a window, in order, from zero on: two negative zeros make a positive one.
Element sum_over(Body& b, Pair window, const std::function<Element(Element, Element)>& element) {
  if (window.h * window.w > kWrittenOut)
    return b.fold(loop::Fold::kSum, {window.h, window.w}, [&](const Index& k) { return element(k[0], k[1]); });
  Element sum = b.number(0);
  for (int64_t h = 0; h < window.h; ++h)
    for (int64_t w = 0; w < window.w; ++w) sum = sum + element(b.whole(h), b.whole(w));
  return sum;
}

// ---- windows that move by a stride ---------------------------------------------------------------------------------

/// What the sum of the window at (oh, ow) is divided by.
Element divisor(Body& b, const Window& window, const Image& size, Element oh, Element ow, size_t count_padding) {
  const auto padded = flag(b.call, count_padding);
  if (const auto given = integer(b.call, count_padding + 1)) return cast(b.dtype, b.size(*given));
  if (!padded) return b.decline();
  const auto extent = [&](Element o, int64_t kernel, int64_t stride, int64_t padding, int64_t n) {
    const Element begin = o * b.whole(stride) - b.whole(padding);
    const Element end = min(begin + b.whole(kernel), b.whole(n + padding));
    return *padded ? end - begin : min(end, b.whole(n)) - max(begin, b.whole(0));
  };
  const bool whole = window.padding.h == 0 && window.padding.w == 0 && !window.ceil_mode;
  if (whole || (*padded && !window.ceil_mode)) return b.number(static_cast<double>(window.kernel.h * window.kernel.w));
  return cast(b.dtype, extent(oh, window.kernel.h, window.stride.h, window.padding.h, size.h) *
                           extent(ow, window.kernel.w, window.stride.w, window.padding.w, size.w));
}

double lowest(Dtype dtype) {
  if (types::is_floating(dtype)) return -std::numeric_limits<double>::infinity();
  return dtype == Dtype::kU8 ? 0.0 : -std::ldexp(1.0, static_cast<int>(8 * types::item_size(dtype)) - 1);
}

}  // namespace

Element max_pool_body(Body& b) {  // self, window
  const auto window = max_window(b.call, 1);
  const auto size = image(b.call, b.type_of(0));
  if (!window || !size || window->kernel.h * window->kernel.w > kWrittenOut) return b.decline();
  b.compute_as(b.type_of(0).dtype);
  const auto first = [&](Element o, int64_t stride, int64_t padding) { return o * b.whole(stride) - b.whole(padding); };
  const Element h0 = first(row(b.index), window->stride.h, window->padding.h);
  const Element w0 = first(column(b.index), window->stride.w, window->padding.w);
  // the first place that is no padding, if all else is nothing
  const auto real = [&](Element begin, int64_t padding, int64_t dilation) {
    if (padding == 0) return begin;
    const Element steps = floor_div(b.whole(dilation - 1) - begin, b.whole(dilation));
    return begin + max(steps, b.whole(0)) * b.whole(dilation);
  };
  const bool positions = b.output == 1;
  const double least = lowest(b.dtype);
  Element best = b.number(least), at;
  if (positions)
    at = real(h0, window->padding.h, window->dilation.h) * b.whole(size->w) +
         real(w0, window->padding.w, window->dilation.w);
  const bool whole = window->padding.h == 0 && window->padding.w == 0 && !window->ceil_mode;
  const auto self = std::get<graph::ValueId>(b.call.args[0]);
  for (int64_t kh = 0; kh < window->kernel.h; ++kh)
    for (int64_t kw = 0; kw < window->kernel.w; ++kw) {
      const Element h = h0 + b.whole(kh * window->dilation.h), w = w0 + b.whole(kw * window->dilation.w);
      const Index place = at_pixel(b.index, h, w);
      const Element in = whole ? Element() : inside(b, h, size->h) & inside(b, w, size->w);
      const Element value = whole ? b.at(0, place) : b.at_if(self, place, in, least);
      if (!positions) {
        best = max(value, best);
        continue;
      }
      Element take = (value > best) | is_nan(value);
      best = where(take, value, best);
      at = where(take, h * b.whole(size->w) + w, at);
    }
  return positions ? at : best;
}

bool max_pool_backward_equation(Body& b, loop::Equation& equation) {  // grad, self, window, positions
  const auto size = image(b.call, b.type_of(1));
  if (!size || loop::is_half(b.type.dtype)) return false;
  equation.kind = loop::Equation::Kind::kScatter;
  equation.fold = loop::Fold::kSum;
  b.compute_as(b.type.dtype);
  const Index from = b.open(b.type_of(0).sizes, equation.over);
  const Element position = checked(b.at(7, from), b.whole(size->h * size->w));
  for (const Element& e : at_pixel(from, floor_div(position, b.whole(size->w)), position % b.whole(size->w)))
    equation.index.push_back(e.term());
  equation.value = b.at(0, from).term();
  return !equation.over.empty();
}

Element average_pool_body(Body& b) {  // self, window, count padding, divisor
  const auto window = average_window(b.call, 1);
  const auto size = image(b.call, b.type_of(0));
  if (!window || !size) return b.decline();
  b.compute_as(b.type.dtype);
  const Element oh = row(b.index), ow = column(b.index);
  const Element h0 = oh * b.whole(window->stride.h) - b.whole(window->padding.h);
  const Element w0 = ow * b.whole(window->stride.w) - b.whole(window->padding.w);
  const bool whole = window->padding.h == 0 && window->padding.w == 0 && !window->ceil_mode;
  const auto self = std::get<graph::ValueId>(b.call.args[0]);
  const Element sum = sum_over(b, window->kernel, [&](Element kh, Element kw) {
    const Element h = h0 + kh, w = w0 + kw;
    if (whole) return b.at(0, at_pixel(b.index, h, w));
    return b.at_if(self, at_pixel(b.index, h, w), inside(b, h, size->h) & inside(b, w, size->w), 0);
  });
  return sum / divisor(b, *window, *size, oh, ow, 5);
}

Element average_pool_backward_body(Body& b) {  // grad, self, window, count padding, divisor
  const auto window = average_window(b.call, 2);
  const auto size = image(b.call, b.type_of(1)), pooled = image(b.call, b.type_of(0));
  if (!window || !size || !pooled) return b.decline();
  b.compute_as(b.type.dtype);
  const auto grad = std::get<graph::ValueId>(b.call.args[0]);
  // the windows that hold a pixel: the last one, and as many before it as overlap
  const auto overlap = [](int64_t kernel, int64_t stride) { return (kernel + stride - 1) / stride; };
  const Pair count{overlap(window->kernel.h, window->stride.h), overlap(window->kernel.w, window->stride.w)};
  const Element h = row(b.index) + b.whole(window->padding.h), w = column(b.index) + b.whole(window->padding.w);
  const Element last_h = floor_div(h, b.whole(window->stride.h)), last_w = floor_div(w, b.whole(window->stride.w));
  return sum_over(b, count, [&](Element kh, Element kw) {
    const Element oh = last_h - (b.whole(count.h - 1) - kh), ow = last_w - (b.whole(count.w - 1) - kw);
    const Element holds = inside(b, oh, pooled->h) & inside(b, ow, pooled->w) &
                          (h - oh * b.whole(window->stride.h) < b.whole(window->kernel.h)) &
                          (w - ow * b.whole(window->stride.w) < b.whole(window->kernel.w));
    const Element one = b.at_if(grad, at_pixel(b.index, oh, ow), holds, 0);
    return where(holds, one / divisor(b, *window, *size, oh, ow, 6), b.number(0));
  });
}

// ---- windows that fit ----------------------------------------------------------------------------------------------

namespace {

/// Where the window of one of `to` results over `from` elements begins: the floor of o * from / to; its end is the
/// ceiling for o + 1.
Element window_begin(const Body& b, Element o, int64_t from, int64_t to) {
  return from % to == 0 ? o * b.whole(from / to) : floor_div(o * b.whole(from), b.whole(to));
}
Element window_end(const Body& b, Element o, int64_t from, int64_t to) {
  return floor_div((o + b.whole(1)) * b.whole(from) + b.whole(to - 1), b.whole(to));
}
int64_t longest_window(int64_t from, int64_t to) {
  int64_t longest = 0;
  for (int64_t o = 0; o < to; ++o) longest = std::max(longest, ((o + 1) * from + to - 1) / to - o * from / to);
  return longest;
}

}  // namespace

Element adaptive_pool_body(Body& b) {  // self, size of the result
  const auto size = image(b.call, b.type_of(0)), pooled = image(b.call, b.type);
  if (!size || !pooled) return b.decline();
  b.compute_as(b.type.dtype);
  const bool even = size->h % pooled->h == 0 && size->w % pooled->w == 0;
  const Pair window{longest_window(size->h, pooled->h), longest_window(size->w, pooled->w)};
  const Element oh = row(b.index), ow = column(b.index);
  const Element h0 = window_begin(b, oh, size->h, pooled->h), w0 = window_begin(b, ow, size->w, pooled->w);
  const auto self = std::get<graph::ValueId>(b.call.args[0]);
  if (even) {
    const Element sum =
        sum_over(b, window, [&](Element kh, Element kw) { return b.at(0, at_pixel(b.index, h0 + kh, w0 + kw)); });
    return sum / static_cast<double>(window.h) / static_cast<double>(window.w);
  }
  const Element h1 = window_end(b, oh, size->h, pooled->h), w1 = window_end(b, ow, size->w, pooled->w);
  const Element sum = sum_over(b, window, [&](Element kh, Element kw) {
    const Element h = h0 + kh, w = w0 + kw;
    return b.at_if(self, at_pixel(b.index, h, w), (h < h1) & (w < w1), 0);
  });
  return sum / cast(b.dtype, h1 - h0) / cast(b.dtype, w1 - w0);
}

Element adaptive_pool_backward_body(Body& b) {  // grad, self
  const auto size = image(b.call, b.type_of(1)), pooled = image(b.call, b.type_of(0));
  if (!size || !pooled || size->h % pooled->h != 0 || size->w % pooled->w != 0) return b.decline();
  b.compute_as(b.type.dtype);
  const int64_t h = size->h / pooled->h, w = size->w / pooled->w;
  const auto over = [&](Element i, int64_t by, int64_t of) { return of == 1 ? b.whole(0) : floor_div(i, b.whole(by)); };
  const Index from = at_pixel(b.index, over(row(b.index), h, pooled->h), over(column(b.index), w, pooled->w));
  return b.number(0) + b.at(0, from) / static_cast<double>(h) / static_cast<double>(w);  // eager adds it to zeros
}

// ---- resizing ------------------------------------------------------------------------------------------------------

namespace {

/// Elements of the source for one of the result, in f32 as torch counts it; of a scale that was given, its inverse.
std::optional<float> scale_of(const Call& call, size_t argument, int64_t from, int64_t to) {
  if (std::holds_alternative<std::monostate>(call.args[argument]))
    return static_cast<float>(from) / static_cast<float>(to);
  const auto* given = std::get_if<double>(&call.args[argument]);
  if (!given) return std::nullopt;
  return *given > 0 ? static_cast<float>(1.0 / *given) : static_cast<float>(from) / static_cast<float>(to);
}

int64_t nearest(int64_t o, float scale, int64_t from, int64_t to) {
  if (from == to) return o;
  if (to == 2 * from) return o / 2;
  return std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * scale)), from - 1);
}

/// n when the source of every result o is o / n.
std::optional<int64_t> times(float scale, int64_t from, int64_t to) {
  if (to % from != 0) return std::nullopt;
  for (int64_t o = 0; o < to; ++o)
    if (nearest(o, scale, from, to) != o / (to / from)) return std::nullopt;
  return to / from;
}

Element source(Body& b, Element o, float scale, int64_t from, int64_t to) {
  if (const auto n = times(scale, from, to)) return floor_div(o, b.whole(*n));
  const Element place = floor(cast(Dtype::kF32, o) * static_cast<double>(scale));
  return min(cast(Dtype::kI64, place), b.whole(from - 1));
}

}  // namespace

Element nearest_body(Body& b) {  // self, size of the result, scales
  const auto from = image(b.call, b.type_of(0)), to = image(b.call, b.type);
  const auto h = from && to ? scale_of(b.call, 2, from->h, to->h) : std::nullopt;
  const auto w = from && to ? scale_of(b.call, 3, from->w, to->w) : std::nullopt;
  if (!h || !w) return b.decline();
  b.compute_as(b.type.dtype);
  return b.at(0, at_pixel(b.index, source(b, row(b.index), *h, from->h, to->h),
                          source(b, column(b.index), *w, from->w, to->w)));
}

Element nearest_backward_body(Body& b) {  // grad, size of the result, size of the input, scales
  const auto from = image(b.call, b.type), to = image(b.call, b.type_of(0));
  const auto h = from && to ? scale_of(b.call, 3, from->h, to->h) : std::nullopt;
  const auto w = from && to ? scale_of(b.call, 4, from->w, to->w) : std::nullopt;
  const auto by_h = h ? times(*h, from->h, to->h) : std::nullopt, by_w = w ? times(*w, from->w, to->w) : std::nullopt;
  if (!by_h || !by_w) return b.decline();
  b.compute_as(b.type.dtype);
  const Element h0 = row(b.index) * b.whole(*by_h), w0 = column(b.index) * b.whole(*by_w);
  return sum_over(b, {*by_h, *by_w},
                  [&](Element kh, Element kw) { return b.at(0, at_pixel(b.index, h0 + kh, w0 + kw)); });
}

Element bilinear_body(Body& b) {  // self, size of the result, align corners, scales
  const auto from = image(b.call, b.type_of(0)), to = image(b.call, b.type);
  const auto corners = flag(b.call, 2);
  if (!from || !to || !corners) return b.decline();
  b.compute_as(b.type.dtype);
  struct Side {
    Element low, high, share;
  };
  const auto side = [&](Element o, size_t argument, int64_t n, int64_t m) -> std::optional<Side> {
    if (n == m) return Side{o, o, b.number(0)};
    double scale = m > 1 ? static_cast<double>(n - 1) / static_cast<double>(m - 1) : 0;
    if (!*corners) {
      const auto* given = std::get_if<double>(&b.call.args[argument]);
      scale = given && *given > 0 ? 1 / *given : static_cast<double>(n) / static_cast<double>(m);
    }
    const Element place = cast(b.dtype, o);
    const Element real = *corners ? place * scale : max((place + 0.5) * scale - 0.5, 0);
    const Element low = min(cast(Dtype::kI64, real), b.whole(n - 1));
    return Side{low, min(low + b.whole(1), b.whole(n - 1)), min(max(real - cast(b.dtype, low), 0), 1)};
  };
  const auto h = side(row(b.index), 3, from->h, to->h), w = side(column(b.index), 4, from->w, to->w);
  const auto along = [&](Element at) {
    const Element low = b.at(0, at_pixel(b.index, at, w->low)), high = b.at(0, at_pixel(b.index, at, w->high));
    return low * (1.0 - w->share) + high * w->share;
  };
  return along(h->low) * (1.0 - h->share) + along(h->high) * h->share;
}

}  // namespace magneto::ops
