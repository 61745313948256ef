typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef int i32;
typedef unsigned u32;
typedef long i64;
typedef float f32;
typedef double f64;
typedef unsigned short f16;   // the bits
typedef unsigned short bf16;
#define inf_f32 __int_as_float(0x7f800000)
#define inf_f64 __longlong_as_double(0x7ff0000000000000)
#define nan_f32 __int_as_float(0x7fc00000)
#define nan_f64 __longlong_as_double(0x7ff8000000000000)

static __device__ __forceinline__ i64 min_i64(i64 a, i64 b) { return a < b ? a : b; }
struct __align__(16) f32x4 {
  f32 at[4];
};
static __device__ __forceinline__ f32 block_sum_f32_32(f32 a) {
  for (int k = 16; k; k >>= 1) a = a + __shfl_xor_sync(0xffffffff, a, k);
  return a;
}
static __device__ __forceinline__ f32 max_f32(f32 a, f32 b) { return (a > b) | (a != a) ? a : b; }
static __device__ __forceinline__ bf16 bf16_of_f32(f32 a) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(a));
  return y;
}
struct __align__(8) bf16x4 {
  bf16 at[4];
};

extern "C" __global__ void __launch_bounds__(128) shift(const f32* __restrict__ x, bf16* __restrict__ y, i64 s0) {
  const i64 point = blockIdx.x * 4l + threadIdx.x / 32;
  const i32 thread = threadIdx.x % 32;
  if (point >= s0) return;
  {
    const i64 place = ((i64)thread) * 4l;
    const bool inside = place < 24l;
    const i64 place_2 = min_i64(place, 20l);
    f32 s_1 = 0.0f;
    f32 s_0 = 0.0f;
    f32 s_1_2 = 0.0f;
    f32 s_2 = 0.0f;
    f32 s_3 = 0.0f;
    const f32x4 g = *(const f32x4*)&x[(point * 24l) + place_2];
    const f32 v = g.at[0];
    const f32 v_2 = g.at[1];
    const f32 v_3 = g.at[2];
    const f32 v_4 = g.at[3];
    s_0 = s_0 + (inside ? v : 0.0f);
    s_1_2 = s_1_2 + (inside ? v_2 : 0.0f);
    s_2 = s_2 + (inside ? v_3 : 0.0f);
    s_3 = s_3 + (inside ? v_4 : 0.0f);
    s_0 = s_0 + s_1_2;
    s_0 = s_0 + s_2;
    s_0 = s_0 + s_3;
    s_1 = s_1 + s_0;
    const f32 total = block_sum_f32_32(s_1);
    const f32 mean = total / 24.0f;
    if (inside)
    *(bf16x4*)&y[(point * 24l) + place_2] = bf16x4{{bf16_of_f32(max_f32(v - mean, 0.0f)), bf16_of_f32(max_f32(v_2 - mean, 0.0f)), bf16_of_f32(max_f32(v_3 - mean, 0.0f)), bf16_of_f32(max_f32(v_4 - mean, 0.0f))}};
  }
}
