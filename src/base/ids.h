// base/ids.h: numbers that name things, each kind a type of its own, so that a node is never taken for a value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace magneto::base {

/// An index into one table. The default is no entry at all.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(size_t index) : index_(static_cast<uint32_t>(index)) {}
  constexpr bool valid() const { return index_ != kNone; }
  constexpr size_t index() const { return index_; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t index_ = kNone;
};

}  // namespace magneto::base

template <class Tag>
struct std::hash<magneto::base::Id<Tag>> {
  size_t operator()(magneto::base::Id<Tag> id) const { return std::hash<size_t>()(id.index()); }
};
