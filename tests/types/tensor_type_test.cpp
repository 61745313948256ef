#include "types/tensor_type.h"

#include <gtest/gtest.h>

namespace magneto::types {
namespace {

TEST(Dtype, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Dtype::kF8E8M0FNU); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
    EXPECT_LE(is_floating(dtype) + is_complex(dtype) + is_integral(dtype), 1);
  }
  EXPECT_EQ(item_size(Dtype::kC128), 16u);
  EXPECT_FALSE(is_integral(Dtype::kBool));
  EXPECT_FALSE(parse_dtype("f31"));
}

TEST(Device, NamesReadBack) {
  for (const char* text : {"cpu", "cuda", "cuda:0", "cuda:127", "meta"})
    EXPECT_EQ(to_string(*parse_device(text)), text);
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:128"})
    EXPECT_FALSE(parse_device(text)) << text;
  EXPECT_EQ(parse_layout("strided"), Layout::kStrided);
  EXPECT_EQ(parse_memory_format("channels_last"), MemoryFormat::kChannelsLast);
}

TEST(TensorType, FreshStridesTreatAnEmptyDimensionAsOne) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Sizes{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Sizes{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Sizes{});
  const Expr s0 = Expr::symbol(0);
  EXPECT_EQ(contiguous_strides({2, s0, 4}), (Sizes{4 * Expr::max(s0, 1), 4, 1}));
}

TEST(TensorType, ContiguousAsTorchSaysIt) {
  const auto contiguous = [](std::string_view text) { return is_contiguous(*parse_tensor_type(text)); };
  EXPECT_TRUE(contiguous("f32[]"));
  EXPECT_TRUE(contiguous("f32[2, 1, 3]{3, 77, 1}"));
  EXPECT_TRUE(contiguous("f32[2, 0]{5, 5}"));
  EXPECT_FALSE(contiguous("f32[2, 3]{1, 2}"));
  EXPECT_TRUE(contiguous("f32[2, s0, s1]"));
  EXPECT_TRUE(contiguous("f32[2, s0, s1]{s0*s1, s1, 1}"));
  EXPECT_FALSE(contiguous("f32[s0, s1]{1, s0}"));
}

TEST(TensorType, TextsReadBack) {
  for (const char* text : {"f32[]", "bool[2, 3]", "f32[2, 3]{1, 2}", "bf16[s0, 2*s0 + 1]", "f32[2]{1}+4@cuda:0",
                           "i64[0]", "f32[s0]{2}+(s0 + 1)", "f32[s0]{1}+s0@meta", "u8[2, 2]@cuda"}) {
    const auto type = parse_tensor_type(text);
    ASSERT_TRUE(type) << text;
    EXPECT_EQ(to_string(*type), text);
  }
  for (const char* text : {"", "f32", "f32[2", "f32[2]{1, 2}", "f31[2]", "f32[2]+", "f32[2]@x", "f32[2] "})
    EXPECT_FALSE(parse_tensor_type(text)) << text;
}

}  // namespace
}  // namespace magneto::types
