/* Attention inside windows of points on the CPU, float32: gather, softmax and scatter in one pass.

   qkv     (n, 3, heads, D)  query, key and value of each point
   index   (windows, size)   the point in each slot
   valid   (windows, size)   whether a slot holds a point; NULL if all do
   slot    (n)               the flat slot that owns each point: its result is read there

   A task is one head of one window; threads take tasks off a shared counter. Each writes rows that
   no other writes, so the bytes do not depend on the threads. Vectors are those of GCC and Clang. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

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
#define STEP (2 * WIDTH)
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));

static const float LOG2E = 1.4426950408889634f;
static const float LOWEST = -1e30f; /* a score that is not heard */

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec x) { *(vec *)to = x; }
INLINE vec splat(float x) { return x - (vec){0}; }
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

/* 2^x, to 3e-7 of itself: a whole power times a polynomial that fits on [-1/2, 1/2]. */
INLINE vec exp2_of(vec x) {
  const vec shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to whole numbers */
  x = larger(splat(-126.0f), x);
  vec sum = x + shift, f = x - (sum - shift);
  vec p = splat(1.3276471e-3f);
  p = p * f + 9.6755410e-3f;
  p = p * f + 5.5507130e-2f;
  p = p * f + 2.4022120e-1f;
  p = p * f + 6.9314694e-1f;
  p = p * f + 1.0000001f;
  return (vec)((ivec)p + ((ivec)sum << 23)); /* the low bits of `sum` are the whole power */
}

/* S[r][j] = a[r] . b[j], with b transposed: bt[d][j]. */
INLINE void dots(const float *a, const float *bt, int stride, int count, int D, float *S) {
  for (int j = 0; j < count; j += STEP) {
    vec low[ROWS], high[ROWS];
    for (int r = 0; r < ROWS; r++) low[r] = high[r] = splat(0);
    for (int d = 0; d < D; d++) {
      vec b0 = load(bt + d * stride + j), b1 = load(bt + d * stride + j + WIDTH);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        low[r] += a[r * D + d] * b0;
        high[r] += a[r * D + d] * b1;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      store(S + r * stride + j, low[r]);
      store(S + r * stride + j + WIDTH, high[r]);
    }
  }
}

/* out[r] = sum_j S[r][j] * rows[j] */
INLINE void mix(const float *S, int stride, int count, const float *rows, int D, float *out) {
  for (int v = 0; v < D; v += WIDTH) {
    vec total[ROWS];
    for (int r = 0; r < ROWS; r++) total[r] = splat(0);
    for (int j = 0; j < count; j++) {
      vec row = load(rows + j * D + v);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) total[r] += S[r * stride + j] * row;
    }
    for (int r = 0; r < ROWS; r++) store(out + r * D + v, total[r]);
  }
}

/* rows[j] += sum_r S[r][j] * from[r] */
INLINE void spread(const float *S, int stride, int count, const float *from, int D, float *rows) {
  for (int v = 0; v < D; v += WIDTH) {
    vec f[ROWS];
    for (int r = 0; r < ROWS; r++) f[r] = load(from + r * D + v);
    for (int j = 0; j < count; j++) {
      vec even = load(rows + j * D + v), odd = splat(0);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r += 2) {
        even += S[r * stride + j] * f[r];
        odd += S[(r + 1) * stride + j] * f[r + 1];
      }
      store(rows + j * D + v, even + odd);
    }
  }
}

/* What one thread works with: a window's keys and queries, and room. */
typedef struct {
  int64_t *heard; /* the points of the valid slots */
  int64_t *own;   /* the points of the slots that own them */
  int64_t *place; /* of each heard point: -1 where the slot owns it, else its row of `borrowed` */
  int keys, queries, padded, stride;
  float *kt, *vt, *k, *v, *dk, *dv, *S, *T;
} Room;

static int padded_size(int64_t size) { return (int)((size + STEP - 1) / STEP * STEP); }

static int take_room(Room *room, int64_t size, int D, int backward) {
  int stride = padded_size(size) + 16; /* rows a power of two apart would share a line of the cache */
  size_t rows = (size_t)stride * D, scores = (size_t)stride * ROWS;
  float *all = malloc(sizeof(float) * ((backward ? 6 : 2) * rows + 2 * scores) + 24 * (size_t)size);
  if (!all) return 0;
  room->stride = stride;
  room->S = all, room->T = all + scores;
  room->kt = room->T + scores, room->v = room->kt + rows;
  float *end = room->v + rows;
  if (backward) {
    room->vt = end, room->k = end + rows, room->dk = end + 2 * rows, room->dv = end + 3 * rows;
    end += 4 * rows;
  }
  room->heard = (int64_t *)end, room->own = room->heard + size, room->place = room->own + size;
  return 1;
}

static void enter(Room *room, const int64_t *index, const uint8_t *valid, const int64_t *slot,
                  int64_t window, int64_t size, int64_t borrowed) {
  room->keys = room->queries = 0;
  for (int64_t flat = window * size; flat < (window + 1) * size; flat++) {
    int64_t point = index[flat];
    if (valid && !valid[flat]) continue;
    int owned = slot[point] == flat;
    room->place[room->keys] = owned ? -1 : borrowed++;
    room->heard[room->keys++] = point;
    if (owned) room->own[room->queries++] = point;
  }
  room->padded = padded_size(room->keys);
}

INLINE void gather(const Room *room, const float *from, int64_t step, int D, float *to) {
  for (int j = 0; j < room->keys; j++) memcpy(to + j * D, from + room->heard[j] * step, 4 * D);
}

INLINE void gather_turned(const Room *room, const float *from, int64_t step, int D, float *to) {
  for (int j = 0; j < room->keys; j++)
    for (int d = 0; d < D; d++) to[d * room->stride + j] = from[room->heard[j] * step + d];
  for (int d = 0; d < D; d++)
    for (int j = room->keys; j < room->padded; j++) to[d * room->stride + j] = 0;
}

INLINE float largest(const float *S, int count) {
  vec most = load(S);
  for (int j = WIDTH; j < count; j += WIDTH) {
    most = larger(load(S + j), most);
  }
  float found = most[0];
  for (int i = 1; i < WIDTH; i++) found = most[i] > found ? most[i] : found;
  return found;
}

INLINE void forward_task(Room *room, const float *qkv, int64_t heads, int64_t h, int D, float *out,
                         float *normal) {
  const int64_t C = heads * D, step = 3 * C;
  const float scale = LOG2E / __builtin_sqrtf((float)D);
  float query[ROWS * 64], mixed[ROWS * 64];
  gather_turned(room, qkv + C + h * D, step, D, room->kt);
  gather(room, qkv + 2 * C + h * D, step, D, room->v);
  for (int i = 0; i < room->queries; i += ROWS) {
    int some = room->queries - i < ROWS ? room->queries - i : ROWS;
    for (int r = 0; r < ROWS; r++) {
      const float *row = qkv + room->own[i + (r < some ? r : 0)] * step + h * D;
      for (int d = 0; d < D; d++) query[r * D + d] = row[d] * scale;
    }
    dots(query, room->kt, room->stride, room->padded, D, room->S);
    float sum[ROWS], most[ROWS];
    for (int r = 0; r < ROWS; r++) {
      float *S = room->S + r * room->stride;
      for (int j = room->keys; j < room->padded; j++) S[j] = LOWEST;
      most[r] = largest(S, room->padded);
      vec total = splat(0), m = splat(most[r]);
      for (int j = 0; j < room->padded; j += WIDTH) {
        vec weight = exp2_of(load(S + j) - m);
        total += weight;
        store(S + j, weight);
      }
      sum[r] = 0;
      for (int w = 0; w < WIDTH; w++) sum[r] += total[w];
    }
    mix(room->S, room->stride, room->keys, room->v, D, mixed);
    for (int r = 0; r < some; r++) {
      int64_t point = room->own[i + r];
      for (int d = 0; d < D; d++) out[point * C + h * D + d] = mixed[r * D + d] / sum[r];
      if (normal) normal[(point * heads + h) * 2] = most[r], normal[(point * heads + h) * 2 + 1] = 1 / sum[r];
    }
  }
}

INLINE void backward_task(Room *room, const float *qkv, int64_t heads, int64_t h, int D,
                          const float *out, const float *normal, const float *upstream,
                          float *grad, float *borrowed) {
  const int64_t C = heads * D, step = 3 * C;
  const float scale = 1 / __builtin_sqrtf((float)D);
  float query[ROWS * 64], plain[ROWS * 64], told[ROWS * 64], mixed[ROWS * 64];
  gather_turned(room, qkv + C + h * D, step, D, room->kt);
  gather_turned(room, qkv + 2 * C + h * D, step, D, room->vt);
  gather(room, qkv + C + h * D, step, D, room->k);
  memset(room->dk, 0, sizeof(float) * room->keys * D);
  memset(room->dv, 0, sizeof(float) * room->keys * D);
  for (int i = 0; i < room->queries; i += ROWS) {
    int some = room->queries - i < ROWS ? room->queries - i : ROWS;
    float mean[ROWS];
    for (int r = 0; r < ROWS; r++) {
      int64_t point = room->own[i + (r < some ? r : 0)];
      const float *row = qkv + point * step + h * D;
      mean[r] = 0;
      for (int d = 0; d < D; d++) {
        float g = r < some ? upstream[point * C + h * D + d] : 0;
        query[r * D + d] = row[d] * scale * LOG2E;
        plain[r * D + d] = r < some ? row[d] * scale : 0;
        told[r * D + d] = g;
        mean[r] += g * out[point * C + h * D + d];
      }
    }
    dots(query, room->kt, room->stride, room->padded, D, room->S);
    dots(told, room->vt, room->stride, room->padded, D, room->T);
    for (int r = 0; r < ROWS; r++) {
      const float *known = normal + (room->own[i + (r < some ? r : 0)] * heads + h) * 2;
      float *S = room->S + r * room->stride, *T = room->T + r * room->stride;
      for (int j = 0; j < room->padded; j += WIDTH) {
        vec weight = exp2_of(load(S + j) - known[0]) * known[1];
        store(S + j, weight);
        store(T + j, weight * (load(T + j) - mean[r]));
      }
    }
    spread(room->S, room->stride, room->keys, told, D, room->dv);
    spread(room->T, room->stride, room->keys, plain, D, room->dk);
    mix(room->T, room->stride, room->keys, room->k, D, mixed);
    for (int r = 0; r < some; r++)
      for (int d = 0; d < D; d++)
        grad[room->own[i + r] * step + h * D + d] = mixed[r * D + d] * scale;
  }
  for (int j = 0; j < room->keys; j++) {
    float *k = grad + room->heard[j] * step + C + h * D, *v = k + C;
    if (room->place[j] >= 0) k = borrowed + room->place[j] * 2 * C + h * D, v = k + C;
    memcpy(k, room->dk + j * D, 4 * D);
    memcpy(v, room->dv + j * D, 4 * D);
  }
}

#define BY_WIDTH(call)                                   \
  switch (D) {                                           \
    case 16: { enum { W = 16 }; call; } break;           \
    case 32: { enum { W = 32 }; call; } break;           \
    case 64: { enum { W = 64 }; call; } break;           \
  }

/* Count for each window the valid slots before it that do not own their point. */
void pctx_count_borrowed(const int64_t *index, const uint8_t *valid, const int64_t *slot,
                         int64_t windows, int64_t size, int64_t *starts) {
  int64_t count = 0;
  for (int64_t flat = 0; flat < windows * size; flat++) {
    if (flat % size == 0) starts[flat / size] = count;
    count += (!valid || valid[flat]) && slot[index[flat]] != flat;
  }
  starts[windows] = count;
}

/* Take tasks off the counter until there are none; 0 if there is no memory.
   normal: (n, heads, 2), the largest score in powers of two and what weights are scaled by. */
int pctx_attend(int64_t *counter, const float *qkv, const int64_t *index, const uint8_t *valid,
                const int64_t *slot, int64_t windows, int64_t size, int64_t heads, int64_t D,
                float *out, float *normal) {
  Room room;
  if (!take_room(&room, size, (int)D, 0)) return 0;
  int64_t task, window = -1;
  while ((task = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < windows * heads) {
    if (task / heads != window) enter(&room, index, valid, slot, window = task / heads, size, 0);
    BY_WIDTH(forward_task(&room, qkv, heads, task % heads, W, out, normal))
  }
  free(room.S);
  return 1;
}

/* The gradient of qkv; what borrowed slots add to keys and values goes to rows of `borrowed`,
   (starts[windows], 2, heads, D). */
int pctx_attend_backward(int64_t *counter, const float *qkv, const int64_t *index,
                         const uint8_t *valid, const int64_t *slot, int64_t windows, int64_t size,
                         int64_t heads, int64_t D, const float *out, const float *normal,
                         const float *upstream, const int64_t *starts, float *grad,
                         float *borrowed) {
  Room room;
  if (!take_room(&room, size, (int)D, 1)) return 0;
  int64_t task, window = -1;
  while ((task = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < windows * heads) {
    if (task / heads != window)
      enter(&room, index, valid, slot, window = task / heads, size, starts[task / heads]);
    BY_WIDTH(backward_task(&room, qkv, heads, task % heads, W, out, normal, upstream, grad, borrowed))
  }
  free(room.S);
  return 1;
}

/* Add what the borrowed slots had to the keys and values of their points, in order. */
void pctx_add_borrowed(const int64_t *index, const uint8_t *valid, const int64_t *slot,
                       int64_t windows, int64_t size, int64_t C, const float *borrowed,
                       float *grad) {
  for (int64_t flat = 0; flat < windows * size; flat++) {
    int64_t point = index[flat];
    if ((valid && !valid[flat]) || slot[point] == flat) continue;
    for (int64_t c = 0; c < 2 * C; c++) grad[point * 3 * C + C + c] += borrowed[c];
    borrowed += 2 * C;
  }
}
