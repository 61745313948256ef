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

static __device__ __forceinline__ bool is_aligned(const void* p, int bytes) { return (unsigned long)p % bytes == 0; }
struct __align__(16) f32x4 {
  f32 at[4];
};
static __device__ __forceinline__ f32 block_sum_f32_32(f32 a) {
  for (int k = 16; k; k >>= 1) a = a + __shfl_xor_sync(0xffffffff, a, k);
  return a;
}
struct __align__(16) f32x8 {
  f32 at[8];
};
static __device__ __forceinline__ f32 max_f32(f32 a, f32 b) { return (a > b) | (a != a) ? a : b; }
static __device__ __forceinline__ bf16 bf16_of_f32(f32 a) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(a));
  return y;
}
struct __align__(16) bf16x8 {
  bf16 at[8];
};

extern "C" __global__ void __launch_bounds__(128) shift(const f32* __restrict__ x, bf16* __restrict__ y, i64 s0) {
  const i64 point = blockIdx.x * 4l + threadIdx.x / 32;
  const i32 thread = threadIdx.x % 32;
  if (point >= s0) return;
  extern __shared__ __align__(64) char scratch[];
  f32* x0 = (f32*)(scratch + threadIdx.x / 32 * 128l + 0l);
  {
    f32 s_1 = 0.0f;
    f32 s_0 = 0.0f;
    f32 s_1_2 = 0.0f;
    f32 s_2 = 0.0f;
    f32 s_3 = 0.0f;
    const bool aligned = is_aligned(&x0[0l], 16) & is_aligned(&x[(point * 24l) + 0l], 16);
    const i64 from = 0l + (aligned ? 24l : 0l);
    i64 j = 0l + (((i64)thread) * 4l);
    const i64 end = from - 128l;
    const i64 at = point * 24l;
    if (j < end) {
      const f32x4 g = *(const f32x4*)&x[at + j];
      const f32 v = g.at[0];
      const f32 v_2 = g.at[1];
      const f32 v_3 = g.at[2];
      const f32 v_4 = g.at[3];
      const f32x4 g_2 = *(const f32x4*)&x[at + (j + 128l)];
      const f32 v_5 = g_2.at[0];
      const f32 v_6 = g_2.at[1];
      const f32 v_7 = g_2.at[2];
      const f32 v_8 = g_2.at[3];
      *(f32x4*)&x0[j] = f32x4{{v, v_2, v_3, v_4}};
      *(f32x4*)&x0[j + 128l] = f32x4{{v_5, v_6, v_7, v_8}};
      s_0 = s_0 + v;
      s_1_2 = s_1_2 + v_2;
      s_2 = s_2 + v_3;
      s_3 = s_3 + v_4;
      s_0 = s_0 + v_5;
      s_1_2 = s_1_2 + v_6;
      s_2 = s_2 + v_7;
      s_3 = s_3 + v_8;
      j += 256;
    }
    if (j < from) {
      const f32x4 g_3 = *(const f32x4*)&x[at + j];
      const f32 v_9 = g_3.at[0];
      const f32 v_10 = g_3.at[1];
      const f32 v_11 = g_3.at[2];
      const f32 v_12 = g_3.at[3];
      *(f32x4*)&x0[j] = f32x4{{v_9, v_10, v_11, v_12}};
      s_0 = s_0 + v_9;
      s_1_2 = s_1_2 + v_10;
      s_2 = s_2 + v_11;
      s_3 = s_3 + v_12;
      j += 128;
    }
    i64 j_2 = from + ((i64)thread);
    if (j_2 < 24l) {
      const f32 v_13 = x[at + j_2];
      x0[j_2] = v_13;
      s_1 = s_1 + v_13;
      j_2 += 32;
    }
    s_0 = s_0 + s_1_2;
    s_0 = s_0 + s_2;
    s_0 = s_0 + s_3;
    s_1 = s_1 + s_0;
    const f32 total = block_sum_f32_32(s_1);
    __syncwarp();
    const f32 mean = total / 24.0f;
    const bool aligned_2 = is_aligned(&y[(point * 24l) + 0l], 16) & is_aligned(&x0[0l], 16);
    const i64 from_2 = 0l + (aligned_2 ? 24l : 0l);
    i64 j_3 = 0l + (((i64)thread) * 8l);
    if (j_3 < from_2) {
      const f32x8 g_4 = *(const f32x8*)&x0[j_3];
      *(bf16x8*)&y[at + j_3] = bf16x8{{bf16_of_f32(max_f32(g_4.at[0] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[1] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[2] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[3] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[4] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[5] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[6] - mean, 0.0f)), bf16_of_f32(max_f32(g_4.at[7] - mean, 0.0f))}};
      j_3 += 256;
    }
    i64 j_4 = from_2 + ((i64)thread);
    if (j_4 < 24l) {
      y[at + j_4] = bf16_of_f32(max_f32(x0[j_4] - mean, 0.0f));
      j_4 += 32;
    }
    __syncwarp();
  }
}
