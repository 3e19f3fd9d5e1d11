/* Vectors of float32, as GCC and Clang have them, as wide as the processor's. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

/* WIDTH numbers are a vector; a tile of ROWS times two vectors fits into the registers. */
#if defined(__AVX512F__)
#define WIDTH 16
#define ROWS 8
#elif defined(__AVX__)
#define WIDTH 8
#define ROWS 4
#elif defined(__aarch64__)
#define WIDTH 4
#define ROWS 8
#else
#define WIDTH 4
#define ROWS 4
#endif
#define INLINE static inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64))) /* a line of the cache */

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

static const float LOG2E = 1.4426950408889634f;

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec x) { *(vec *)to = x; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The larger; y where x or y is not a number. */
INLINE vec larger(vec x, vec y) {
#if defined(__AVX512F__)
  return (vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(__AVX__)
  return (vec)_mm256_max_ps((__m256)x, (__m256)y);
#else
  ivec first = x > y;
  return (vec)((first & (ivec)x) | (~first & (ivec)y));
#endif
}

/* 2^x from -126 on, to 3e-7 of itself: a whole power times a polynomial that fits on [-1/2, 1/2]. */
INLINE vec exp2_of(vec x) {
  const vec shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to whole numbers */
  vec sum = x + shift, f = x - (sum - shift);
  vec p = splat(1.3276471e-3f);
  p = p * f + 9.6755410e-3f;
  p = p * f + 5.5507130e-2f;
  p = p * f + 2.4022120e-1f;
  p = p * f + 6.9314694e-1f;
  p = p * f + 1.0000001f;
  return (vec)((uvec)p + ((uvec)sum << 23)); /* the low bits of `sum` are the whole power */
}

/* Four rows of four become columns. */
INLINE void turn_quads(quad r[4]) {
#if defined(__AVX__)
  _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
#else
  quad s[4] = {r[0], r[1], r[2], r[3]};
  for (int b = 0; b < 4; b++) r[b] = (quad){s[0][b], s[1][b], s[2][b], s[3][b]};
#endif
}
