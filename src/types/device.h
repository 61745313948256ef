// types/device.h: where a tensor lives. Prints as cpu, cuda:0, meta.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace magneto::types {

struct Device {
  enum class Kind : uint8_t { kCpu, kCuda, kMeta };
  Kind kind = Kind::kCpu;
  int8_t index = -1;  ///< -1: the current one (or the only one)
  friend bool operator==(const Device&, const Device&) = default;
};

std::string to_string(Device device);
std::optional<Device> parse_device(std::string_view text);

enum class Layout : uint8_t { kStrided, kOther };
enum class MemoryFormat : uint8_t { kContiguous, kPreserve, kChannelsLast, kChannelsLast3d };

std::string_view name(Layout layout);
std::string_view name(MemoryFormat format);
std::optional<Layout> parse_layout(std::string_view text);
std::optional<MemoryFormat> parse_memory_format(std::string_view text);

}  // namespace magneto::types
