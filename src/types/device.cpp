#include "types/device.h"

#include <charconv>
#include <iterator>

#include "base/text.h"

namespace magneto::types {

namespace {
constexpr std::string_view kKinds[] = {"cpu", "cuda", "meta"};
constexpr std::string_view kLayouts[] = {"strided", "other_layout"};
constexpr std::string_view kFormats[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};

template <class Enum, size_t n>
std::optional<Enum> find(const std::string_view (&names)[n], std::string_view text) {
  for (size_t i = 0; i < n; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}
}  // namespace

std::string to_string(Device device) {
  std::string text(kKinds[static_cast<size_t>(device.kind)]);
  if (device.index >= 0) base::append(text, base::concat(':', int{device.index}));
  return text;
}

std::optional<Device> parse_device(std::string_view text) {
  const size_t colon = text.find(':');
  const auto kind = find<Device::Kind>(kKinds, text.substr(0, colon));
  if (!kind) return std::nullopt;
  if (colon == std::string_view::npos) return Device{*kind, -1};
  int index = -1;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, index);
  if (read.ec != std::errc() || read.ptr != end || index < 0 || index > 127) return std::nullopt;
  return Device{*kind, static_cast<int8_t>(index)};
}

std::string_view name(Layout layout) { return kLayouts[static_cast<size_t>(layout)]; }
std::string_view name(MemoryFormat format) { return kFormats[static_cast<size_t>(format)]; }
std::optional<Layout> parse_layout(std::string_view text) { return find<Layout>(kLayouts, text); }
std::optional<MemoryFormat> parse_memory_format(std::string_view text) { return find<MemoryFormat>(kFormats, text); }

}  // namespace magneto::types
