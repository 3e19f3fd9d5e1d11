/* Attention inside windows of points on the CPU, float32: gather, softmax and scatter in one pass.

   qkv     (n, 3, heads, D)  query, key and value of each point
   index   (windows, size)   the point in each slot
   valid   (windows, size)   whether a slot holds a point; NULL if all do
   slot    (n)               the flat slot that owns each point: its result is read there

   A task is one head of one window; threads take tasks off a shared counter. Each writes rows that
   no other writes, so the bytes do not depend on the threads. Vectors are those of GCC and Clang.

   Queries lie across the lanes, two vectors of them at a time, and keys come one after another:
   a weight is made in the register in which its score was summed, and no sum crosses lanes. */

#include "cpu.h"

#define MOST (2 * WIDTH) /* queries at a time */
#define CHUNK 128        /* keys at a time, whose weights stay near the core; a multiple of ROWS */

static const float SAFE = 58; /* weights from 2^-SAFE to 2^SAFE are summed as they are */

/* What one thread works with: a window's keys and queries, and room. */
typedef struct {
  int64_t *heard; /* the points of the valid slots */
  int64_t *own;   /* the points of the slots that own them */
  int64_t *place; /* of each heard point: -1 where the slot owns it, else its row of `borrowed` */
  int keys, queries;
  float longest;                                 /* key, squared */
  float *k, *v, *dk, *dv, *weights, *slopes; /* rows past the keys fill a tile */
} Room;

/* Queries at work, V vectors of them; lanes past `count` repeat the first. */
typedef struct {
  int count, wild;      /* wild: scores may be past SAFE */
  int64_t points[MOST];
  ALIGNED float query[64 * MOST]; /* (D, V * WIDTH), so scaled that a weight is a power of two */
  ALIGNED float start[MOST];      /* what their scores begin with */
} Block;

static int take_room(Room *room, int64_t size, int D, int backward) {
  size_t rows = ((size_t)size + ROWS) * D, weights = CHUNK * MOST;
  size_t floats = backward ? 4 * rows + 2 * weights : 2 * rows + weights;
  float *all = aligned_alloc(64, (sizeof(float) * floats + 24 * (size_t)size + 63) / 64 * 64);
  if (!all) return 0;
  room->weights = all, room->k = all + weights, room->v = room->k + rows;
  room->dk = room->v + rows, room->dv = room->dk + rows, room->slopes = room->dv + rows;
  room->heard = (int64_t *)(all + floats);
  room->own = room->heard + size, room->place = room->own + size;
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
}

INLINE float inner(const float *a, const float *b, int D) {
  ALIGNED float part[WIDTH];
  vec sum = splat(0);
  for (int d = 0; d < D; d += WIDTH) sum += load(a + d) * load(b + d);
  store(part, sum);
  for (int half = WIDTH / 2; half; half /= 2)
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  return *part;
}

/* Take a head's keys and values to one place, with zeros up to a full tile. */
INLINE void gather(Room *room, const float *qkv, int64_t C, int64_t h, int D) {
  int padded = (room->keys + ROWS - 1) / ROWS * ROWS;
  room->longest = 0;
  for (int j = 0; j < padded; j++) {
    float *k = room->k + j * D, *v = room->v + j * D;
    if (j < room->keys) {
      const float *from = qkv + room->heard[j] * 3 * C + C + h * D;
      memcpy(k, from, 4 * D), memcpy(v, from + C, 4 * D);
    } else {
      memset(k, 0, 4 * D), memset(v, 0, 4 * D);
    }
    float square = inner(k, k, D);
    if (square > room->longest || square != square) room->longest = square;
  }
}

/* s[r] = start + keys[r] . query */
INLINE void dots(const float *keys, const float *query, const float *start, int D, int V,
                 vec s[ROWS][2]) {
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < V; v++) s[r][v] = load(start + v * WIDTH);
  for (int d = 0; d < D; d++) {
    vec q[2];
    for (int v = 0; v < V; v++) q[v] = load(query + (d * V + v) * WIDTH);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
      for (int v = 0; v < V; v++) s[r][v] += keys[r * D + d] * q[v];
  }
}

/* Store the weights of ROWS keys. */
INLINE void weigh(const Block *block, const float *keys, int D, int V, int wild, float *weights) {
  vec s[ROWS][2];
  dots(keys, block->query, block->start, D, V, s);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) {
      vec x = s[r][v], weight = exp2_of(wild ? -larger(splat(-64), -larger(splat(-126), x)) : x);
      if (wild) { /* where x is not a number, nor is its weight */
        ivec number = x == x;
        weight = (vec)((number & (ivec)weight) | (~number & (ivec)x));
      }
      store(weights + (r * V + v) * WIDTH, weight);
    }
}

/* sums[d] += sum_j weights[j] * rows[j][d], and total += sum_j weights[j] */
INLINE void mix(const float *weights, int count, const float *rows, int D, int V, float *sums,
                float *total) {
  for (int d = 0; d < D; d += ROWS) {
    vec t[ROWS][2], all[2];
    for (int v = 0; v < V; v++) {
      all[v] = splat(0);
      for (int r = 0; r < ROWS; r++) t[r][v] = splat(0);
    }
    for (int j = 0; j < count; j++) {
      vec w[2];
      for (int v = 0; v < V; v++) w[v] = load(weights + (j * V + v) * WIDTH), all[v] += w[v];
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) t[r][v] += rows[j * D + d + r] * w[v];
    }
    for (int v = 0; v < V; v++) {
      for (int r = 0; r < ROWS; r++) {
        float *to = sums + ((d + r) * V + v) * WIDTH;
        store(to, load(to) + t[r][v]);
      }
      if (d == 0) store(total + v * WIDTH, load(total + v * WIDTH) + all[v]);
    }
  }
}

/* rows[j] += sum_i weights[j][i] * from[i] */
INLINE void spread(const float *weights, int count, const float *from, int D, int V, float *rows) {
  for (int j = 0; j < count; j += ROWS)
    for (int c = 0; c < D; c += WIDTH) {
      vec t[ROWS];
      for (int r = 0; r < ROWS; r++) t[r] = load(rows + (j + r) * D + c);
      for (int i = 0; i < V * WIDTH; i++) {
        vec row = load(from + i * D + c);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) t[r] += weights[(j + r) * V * WIDTH + i] * row;
      }
      for (int r = 0; r < ROWS; r++) store(rows + (j + r) * D + c, t[r]);
    }
}

/* to[j][i] = from[i][j]; rows and columns are multiples of 4. */
INLINE void turn(const float *from, int rows, int columns, float *to) {
  for (int j = 0; j < columns; j += 4)
    for (int i = 0; i < rows; i += 4) {
      quad r[4];
      for (int a = 0; a < 4; a++) r[a] = *(const quad *)(from + (i + a) * columns + j);
      turn_quads(r);
      for (int b = 0; b < 4; b++) *(quad *)(to + (j + b) * rows + i) = r[b];
    }
}

/* Take the queries from `first` on. */
INLINE void ask(Block *block, const Room *room, const float *qkv, int64_t C, int64_t h, int D,
                int V, int first) {
  ALIGNED float rows[MOST * 64];
  const float scale = LOG2E / __builtin_sqrtf((float)D);
  block->count = least(room->queries - first, V * WIDTH), block->wild = 0;
  for (int i = 0; i < V * WIDTH; i++) {
    block->points[i] = room->own[first + (i < block->count ? i : 0)], block->start[i] = 0;
    const float *row = qkv + block->points[i] * 3 * C + h * D;
    for (int d = 0; d < D; d++) rows[i * D + d] = row[d] * scale;
  }
  turn(rows, V * WIDTH, D, block->query);
  for (int v = 0; v < V; v++) {
    vec square = splat(0);
    for (int d = 0; d < D; d++) {
      vec x = load(block->query + (d * V + v) * WIDTH);
      square += x * x;
    }
    for (int i = 0; i < WIDTH; i++) /* no score is larger; not a number is wild too */
      block->wild |= !(square[i] * room->longest <= SAFE * SAFE);
  }
}

/* Let the scores of each query begin with the negative of the highest. */
INLINE void lower(Block *block, const Room *room, int D, int V) {
  vec most[2];
  for (int v = 0; v < V; v++) most[v] = splat(-__builtin_inff());
  for (int j = 0; j < room->keys; j += ROWS) {
    vec s[ROWS][2];
    dots(room->k + j * D, block->query, block->start, D, V, s);
    for (int r = 0; r < least(ROWS, room->keys - j); r++)
      for (int v = 0; v < V; v++) most[v] = larger(s[r][v], most[v]);
  }
  for (int v = 0; v < V; v++) store(block->start + v * WIDTH, -most[v]);
}

INLINE void forward_block(Room *room, const float *qkv, int64_t heads, int64_t h, int D, int V,
                          int first, float *out, float *normal) {
  Block block;
  ALIGNED float sums[64 * MOST], rows[MOST * 64], total[MOST] = {0};
  const int lanes = V * WIDTH;
  const int64_t C = heads * D;
  ask(&block, room, qkv, C, h, D, V, first);
  if (block.wild) lower(&block, room, D, V);
  memset(sums, 0, sizeof(float) * D * lanes);
  for (int j = 0; j < room->keys; j += CHUNK) {
    int some = least(CHUNK, room->keys - j);
    for (int i = 0; i < some; i += ROWS) {
      const float *keys = room->k + (j + i) * D;
      if (block.wild) weigh(&block, keys, D, V, 1, room->weights + i * lanes);
      else weigh(&block, keys, D, V, 0, room->weights + i * lanes);
    }
    mix(room->weights, some, room->v + j * D, D, V, sums, total);
  }
  turn(sums, D, lanes, rows);
  for (int i = 0; i < block.count; i++) {
    float *to = out + block.points[i] * C + h * D;
    for (int d = 0; d < D; d++) to[d] = rows[i * D + d] / total[i];
    if (!normal) continue;
    float start = block.start[i], factor = 1 / total[i];
    if (!block.wild) { /* the power of two in the sum goes over to the start: to the bit the same */
      union { float sum; uint32_t bits; } part = {total[i]};
      int32_t power = (int32_t)(part.bits >> 23) - 127;
      part.bits -= (uint32_t)power << 23;
      start = -power, factor = 1 / part.sum;
    }
    normal[(block.points[i] * heads + h) * 2] = start;
    normal[(block.points[i] * heads + h) * 2 + 1] = factor;
  }
}

INLINE void backward_block(Room *room, const float *qkv, int64_t heads, int64_t h, int D, int V,
                           int first, const float *out, const float *normal, const float *upstream,
                           float *grad) {
  Block block;
  ALIGNED float told[64 * MOST], means[MOST], told_rows[64 * MOST], asked_rows[64 * MOST];
  ALIGNED float sums[64 * MOST], total[MOST] = {0};
  const int lanes = V * WIDTH;
  const int64_t C = heads * D;
  const float scale = 1 / __builtin_sqrtf((float)D);
  ask(&block, room, qkv, C, h, D, V, first);
  for (int i = 0; i < lanes; i++) {
    int64_t point = block.points[i], at = point * C + h * D;
    const float *known = normal + (point * heads + h) * 2;
    block.start[i] = known[0];
    if (known[0] < SAFE - 126) block.wild = 1;
    float *told_row = told_rows + i * D, *asked_row = asked_rows + i * D;
    if (i < block.count) {
      const float *row = qkv + point * 3 * C + h * D;
      for (int d = 0; d < D; d++) told_row[d] = upstream[at + d] * known[1];
      for (int d = 0; d < D; d++) asked_row[d] = row[d] * scale;
    } else {
      memset(told_row, 0, 4 * D), memset(asked_row, 0, 4 * D);
    }
    means[i] = -inner(told_row, out + at, D);
  }
  turn(told_rows, lanes, D, told);
  memset(sums, 0, sizeof(float) * D * lanes);
  for (int j = 0; j < room->keys; j += CHUNK) {
    int some = least(CHUNK, room->keys - j);
    for (int i = 0; i < some; i += ROWS) {
      float *weights = room->weights + i * lanes, *slopes = room->slopes + i * lanes;
      const float *keys = room->k + (j + i) * D;
      if (block.wild) weigh(&block, keys, D, V, 1, weights);
      else weigh(&block, keys, D, V, 0, weights);
      vec s[ROWS][2];
      dots(room->v + (j + i) * D, told, means, D, V, s);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
          int there = (r * V + v) * WIDTH;
          store(slopes + there, load(weights + there) * s[r][v]);
        }
    }
    mix(room->slopes, some, room->k + j * D, D, V, sums, total);
    spread(room->weights, some, told_rows, D, V, room->dv + j * D);
    spread(room->slopes, some, asked_rows, D, V, room->dk + j * D);
  }
  turn(sums, D, lanes, told_rows);
  for (int i = 0; i < block.count; i++)
    for (int d = 0; d < D; d++)
      grad[block.points[i] * 3 * C + h * D + d] = told_rows[i * D + d] * scale;
}

INLINE void forward_task(Room *room, const float *qkv, int64_t heads, int64_t h, int D, float *out,
                         float *normal) {
  int first = 0;
  gather(room, qkv, heads * D, h, D);
  for (; first + WIDTH < room->queries; first += MOST)
    forward_block(room, qkv, heads, h, D, 2, first, out, normal);
  if (first < room->queries) forward_block(room, qkv, heads, h, D, 1, first, out, normal);
}

INLINE void backward_task(Room *room, const float *qkv, int64_t heads, int64_t h, int D,
                          const float *out, const float *normal, const float *upstream,
                          float *grad, float *borrowed) {
  const int64_t C = heads * D;
  int first = 0;
  gather(room, qkv, C, h, D);
  memset(room->dk, 0, sizeof(float) * (room->keys + ROWS) * D);
  memset(room->dv, 0, sizeof(float) * (room->keys + ROWS) * D);
  for (; first + WIDTH < room->queries; first += MOST)
    backward_block(room, qkv, heads, h, D, 2, first, out, normal, upstream, grad);
  if (first < room->queries)
    backward_block(room, qkv, heads, h, D, 1, first, out, normal, upstream, grad);
  for (int j = 0; j < room->keys; j++) {
    float *k = grad + room->heard[j] * 3 * C + C + h * D;
    if (room->place[j] >= 0) k = borrowed + room->place[j] * 2 * C + h * D;
    memcpy(k, room->dk + j * D, 4 * D);
    memcpy(k + C, room->dv + j * D, 4 * D);
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
   normal: (n, heads, 2), what scores begin with, in powers of two, and what weights are scaled by. */
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
  free(room.weights);
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
  free(room.weights);
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
