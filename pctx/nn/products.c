/* Products with a matrix on the CPU, float32, whose rows are taken and added by index on the way.

   A matrix is packed into panels of columns, and a tile of rows times a panel is summed in registers.
   Each number is one sum in one order: its bytes depend neither on the threads nor on other rows.
   Threads are those of the OpenMP that torch has loaded. */

#include "cpu.h"

#define PANEL (2 * WIDTH)
#define BLOCK 128 /* rows at a time, while a panel is near the core */
#define PART 512 /* rows that are summed at a time, for the digits */
#define SPLIT (3 << 18) /* numbers whose outer products are summed at a time */

extern void GOMP_parallel(void (*)(void *), void *, unsigned threads, unsigned flags);

static void run(void (*work)(void *), void *data, int64_t threads) {
  if (threads > 1) GOMP_parallel(work, data, (unsigned)threads, 0);
  else work(data);
}

INLINE int64_t take(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

INLINE int64_t whole(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

static int lies_inside(const int64_t *index, int64_t count, int64_t there) {
  for (int64_t i = 0; i < count; i++)
    if ((uint64_t)index[i] >= (uint64_t)there) return 0;
  return 1;
}

static float *room_for(int64_t floats) {
  return aligned_alloc(64, (sizeof(float) * (size_t)floats + 63) / 64 * 64);
}

/* Whether pairs of rows lie inside both sides, which are as many where a tap pairs each with itself. */
static int fit(const int64_t *from, int64_t there, const int64_t *to, int64_t targets,
               const int64_t *starts, int64_t taps, int64_t centre) {
  return lies_inside(from, starts[taps], there) && lies_inside(to, starts[taps], targets) &&
         (centre < 0 || there == targets);
}

/* Of rows before they are multiplied; weight is NULL where there is none. */
typedef struct {
  const float *weight, *bias;
  float eps;
} Norm;

/* The layer norm of rows of K numbers, which may take their own place. */
static void normalize(const float *x, int64_t rows, int64_t K, const Norm *norm, float *to) {
  const int64_t whole_K = K / WIDTH * WIDTH;
  for (int64_t i = 0; i < rows; i++, x += K, to += K) {
    ALIGNED float part[2][WIDTH];
    vec sum = splat(0), square = splat(0);
    float mean = 0, var = 0;
    for (int64_t k = 0; k < whole_K; k += WIDTH) sum += load(x + k);
    store(part[0], sum);
    for (int64_t k = whole_K; k < K; k++) mean += x[k];
    for (int k = 0; k < WIDTH; k++) mean += part[0][k];
    mean /= (float)K;
    for (int64_t k = 0; k < whole_K; k += WIDTH) square += (load(x + k) - mean) * (load(x + k) - mean);
    store(part[1], square);
    for (int64_t k = whole_K; k < K; k++) var += (x[k] - mean) * (x[k] - mean);
    for (int k = 0; k < WIDTH; k++) var += part[1][k];
    float scale = 1 / __builtin_sqrtf(var / (float)K + norm->eps);
    for (int64_t k = 0; k < whole_K; k += WIDTH)
      store(to + k, (load(x + k) - mean) * scale * load(norm->weight + k) + load(norm->bias + k));
    for (int64_t k = whole_K; k < K; k++) to[k] = (x[k] - mean) * scale * norm->weight[k] + norm->bias[k];
  }
}

/* Rows that are multiplied: row i is at from[i], or the i-th; the result goes to row to[i]. */
typedef struct {
  const float *x, *w, *bias;
  const int64_t *from, *to;
  int64_t rows, K, N, across, along; /* w of column n and number k: at n * across + k * along */
  float *out, *panels;
  int64_t add, block, pack_task, row_task, failed;
  Norm norm;
} Product;

/* to[k][c] = w of column `first` + c, 0 past `count` columns */
static void pack_panel(const Product *p, int64_t first, int64_t count, float *to) {
  const float *w = p->w + first * p->across;
  int64_t k = 0;
  if (p->along == 1 && count % 4 == 0) {
    for (; k + 4 <= p->K; k += 4)
      for (int64_t c = 0; c < count; c += 4) {
        quad r[4];
        for (int a = 0; a < 4; a++) r[a] = *(const quad *)(w + (c + a) * p->across + k);
        turn_quads(r);
        for (int b = 0; b < 4; b++) *(quad *)(to + (k + b) * PANEL + c) = r[b];
      }
  } else if (p->across == 1) {
    for (; k < p->K; k++) memcpy(to + k * PANEL, w + k * p->along, sizeof(float) * count);
  }
  for (; k < p->K; k++)
    for (int64_t c = 0; c < count; c++) to[k * PANEL + c] = w[c * p->across + k * p->along];
  if (count < PANEL)
    for (k = 0; k < p->K; k++) memset(to + k * PANEL + count, 0, sizeof(float) * (PANEL - count));
}

static void pack(void *data) {
  Product *p = data;
  int64_t task, tasks = (p->N + PANEL - 1) / PANEL;
  while ((task = take(&p->pack_task)) < tasks)
    pack_panel(p, task * PANEL, least(PANEL, p->N - task * PANEL), p->panels + task * PANEL * p->K);
}

/* s[r] = x[r] @ panel */
INLINE void tile(const float *x, int64_t K, const float *panel, vec s[ROWS][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) s[r][0] = s[r][1] = splat(0);
  for (int64_t k = 0; k < K; k++) {
    vec low = load(panel + k * PANEL), high = load(panel + k * PANEL + WIDTH);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      s[r][0] += x[r * K + k] * low;
      s[r][1] += x[r * K + k] * high;
    }
  }
}

INLINE int64_t row_at(const int64_t *index, int64_t i) { return index ? index[i] : i; }

/* Multiply the rows x, which are those from `first` on, with one panel; all the loop but its edges. */
INLINE void multiply_panel(const Product *p, const float *x, int64_t first, int64_t rows, int64_t column,
                           int bias, int placed, int add) {
  const float *panel = p->panels + column * p->K;
  const int64_t K = p->K, N = p->N;
  vec more[2] = {splat(0), splat(0)};
  if (bias) more[0] = load(p->bias + column), more[1] = load(p->bias + column + WIDTH);
  for (int64_t i = 0; i < rows; i += ROWS, x += ROWS * K) {
    vec s[ROWS][2];
    tile(x, K, panel, s);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      float *to = p->out + (placed ? p->to[first + i + r] : first + i + r) * N + column;
      if (add) more[0] = load(to), more[1] = load(to + WIDTH);
      if (add || bias) s[r][0] += more[0], s[r][1] += more[1];
      store(to, s[r][0]), store(to + WIDTH, s[r][1]);
    }
  }
}

/* The same for less than a tile. */
static void multiply_edge(const Product *p, const float *x, int64_t first, int64_t rows, int64_t column) {
  vec s[ROWS][2];
  ALIGNED float part[ROWS][PANEL];
  tile(x, p->K, p->panels + column * p->K, s);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) store(part[r], s[r][0]), store(part[r] + WIDTH, s[r][1]);
  for (int64_t r = 0; r < rows; r++) {
    float *to = p->out + row_at(p->to, first + r) * p->N + column;
    for (int64_t c = 0; c < least(PANEL, p->N - column); c++)
      to[c] = part[r][c] + (p->add ? to[c] : p->bias ? p->bias[column + c] : 0);
  }
}

static void multiply_block(const Product *p, const float *x, int64_t first, int64_t rows, float *scratch) {
  int64_t full = rows / ROWS * ROWS;
  const float *rest = x + full * p->K;
  if (full < rows && rest != scratch + full * p->K) { /* a tile reads all of its rows */
    memcpy(scratch, rest, sizeof(float) * (rows - full) * p->K);
    rest = scratch;
  }
  for (int64_t column = 0; column < p->N; column += PANEL) {
    if (p->N - column < PANEL)
      for (int64_t i = 0; i < full; i += ROWS) multiply_edge(p, x + i * p->K, first + i, ROWS, column);
    else if (p->add) multiply_panel(p, x, first, full, column, 0, 1, 1);
    else if (p->to && p->bias) multiply_panel(p, x, first, full, column, 1, 1, 0);
    else if (p->to) multiply_panel(p, x, first, full, column, 0, 1, 0);
    else if (p->bias) multiply_panel(p, x, first, full, column, 1, 0, 0);
    else multiply_panel(p, x, first, full, column, 0, 0, 0);
    if (full < rows) multiply_edge(p, rest, first + full, rows - full, column);
  }
}

static void multiply_rows(void *data) {
  Product *p = data;
  int64_t task, tasks = (p->rows + p->block - 1) / p->block;
  float *scratch = NULL;
  while ((task = take(&p->row_task)) < tasks) {
    int64_t start = task * p->block, rows = least(p->block, p->rows - start);
    if (!scratch) scratch = room_for((p->block + ROWS) * p->K);
    if (!scratch) { p->failed = 1; return; }
    for (int64_t i = 0; i < rows && p->from; i++)
      memcpy(scratch + i * p->K, p->x + p->from[start + i] * p->K, sizeof(float) * p->K);
    const float *x = p->from ? scratch : p->x + start * p->K;
    if (p->norm.weight) normalize(x, rows, p->K, &p->norm, scratch), x = scratch;
    multiply_block(p, x, start, rows, scratch);
  }
  free(scratch);
}

/* Rows of a task: so many that there are a few tasks for each thread. */
static int64_t block_of(int64_t rows, int64_t threads) {
  int64_t share = whole(rows / (4 * threads), ROWS);
  return threads == 1 || share > BLOCK ? BLOCK : share < ROWS ? ROWS : share;
}

static int multiply(Product *p, int64_t threads) {
  p->block = block_of(p->rows, threads);
  p->pack_task = p->row_task = 0;
  run(pack, p, threads);
  run(multiply_rows, p, threads);
  return !p->failed;
}

/* out[to[i]] = bias + LN(x[from[i]]) @ w.T, or the i-th rows; 0: no memory, -1: an index lies outside. */
int pctx_multiply(int64_t threads, const float *x, int64_t there, const int64_t *from, int64_t rows,
                  int64_t K, const float *w, int64_t N, int64_t across, int64_t along,
                  const float *bias, float *out, int64_t targets, const int64_t *to,
                  const float *norm_weight, const float *norm_bias, float eps) {
  if ((from && !lies_inside(from, rows, there)) || (to && !lies_inside(to, rows, targets))) return -1;
  Product p = {.x = x, .w = w, .bias = bias, .from = from, .to = to, .rows = rows, .K = K, .N = N,
               .across = across, .along = along, .out = out, .panels = room_for(whole(N, PANEL) * K),
               .norm = {norm_weight, norm_bias, eps}};
  if (!p.panels) return 0;
  int done = multiply(&p, threads);
  free(p.panels);
  return done;
}

/* out[to[p]] += x[from[p]] @ w[tap].T over the pairs of each tap, which start at starts[tap]; those of
   tap `centre`, if there is one, pair each row with itself and come first: they are written.
   0: no memory; -1: an index lies outside. */
int pctx_convolve(int64_t threads, const float *x, int64_t there, int64_t K, const int64_t *starts,
                  int64_t taps, int64_t centre, const int64_t *from, const int64_t *to,
                  const float *w, int64_t step, int64_t N, int64_t across, int64_t along, float *out,
                  int64_t targets) {
  if (!fit(from, there, to, targets, starts, taps, centre)) return -1;
  Product p = {.x = x, .K = K, .N = N, .across = across, .along = along, .out = out,
               .panels = room_for(whole(N, PANEL) * K)};
  int done = 1;
  if (!p.panels) return 0;
  if (centre >= 0) {
    p.w = w + centre * step, p.rows = targets;
    done = multiply(&p, threads);
  } else {
    memset(out, 0, sizeof(float) * targets * N);
  }
  p.add = 1;
  for (int64_t tap = 0; tap < taps && done; tap++) {
    if (tap == centre || starts[tap + 1] == starts[tap]) continue;
    p.w = w + tap * step, p.rows = starts[tap + 1] - starts[tap];
    p.from = from + starts[tap], p.to = to + starts[tap];
    done = multiply(&p, threads);
  }
  free(p.panels);
  return done;
}

/* Outer products of rows: those of a (N numbers) with those of b (K numbers), summed over pairs. */
typedef struct {
  const float *a, *b;
  const int64_t *of_a, *of_b;
  int64_t first, count, depth, N, K;
  float *strips, *panels, *out, *sums; /* sums of a, or NULL */
  int64_t add, pack_task, tile_task;
} Outer;

/* to[column / width][i][column % width] = numbers[column], 0 past the columns */
INLINE void split(const float *numbers, int64_t i, int64_t columns, int64_t depth, const int width,
                  float *to) {
  int64_t c = 0;
  to += i * width;
  for (; c + width <= columns; c += width, to += depth * width)
    memcpy(to, numbers + c, sizeof(float) * width);
  if (c == columns) return;
  memset(to, 0, sizeof(float) * width);
  memcpy(to, numbers + c, sizeof(float) * (columns - c));
}

static void split_rows(void *data) {
  Outer *o = data;
  int64_t task;
  while ((task = take(&o->pack_task)) * ROWS < o->count)
    for (int64_t i = task * ROWS; i < least(o->count, (task + 1) * ROWS); i++) {
      split(o->a + row_at(o->of_a, o->first + i) * o->N, i, o->N, o->depth, ROWS, o->strips);
      split(o->b + row_at(o->of_b, o->first + i) * o->K, i, o->K, o->depth, PANEL, o->panels);
    }
}

static void outer_tile(const Outer *o, int64_t n, int64_t k) {
  const float *strip = o->strips + n * o->depth, *panel = o->panels + k * o->depth;
  float *to = o->out + n * o->K + k;
  vec s[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) s[r][0] = s[r][1] = splat(0);
  for (int64_t i = 0; i < o->count; i++) {
    vec low = load(panel + i * PANEL), high = load(panel + i * PANEL + WIDTH);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      s[r][0] += strip[i * ROWS + r] * low;
      s[r][1] += strip[i * ROWS + r] * high;
    }
  }
  int64_t rows = least(ROWS, o->N - n), columns = least(PANEL, o->K - k);
  if (rows == ROWS && columns == PANEL) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++, to += o->K) {
      if (o->add) s[r][0] += load(to), s[r][1] += load(to + WIDTH);
      store(to, s[r][0]), store(to + WIDTH, s[r][1]);
    }
    return;
  }
  ALIGNED float part[ROWS][PANEL];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) store(part[r], s[r][0]), store(part[r] + WIDTH, s[r][1]);
  for (int64_t r = 0; r < rows; r++, to += o->K)
    for (int64_t c = 0; c < columns; c++) to[c] = part[r][c] + (o->add ? to[c] : 0);
}

static void sum_strip(const Outer *o, int64_t n) {
  const float *strip = o->strips + n * o->depth;
  float sum[ROWS] = {0};
  for (int64_t i = 0; i < o->count; i++)
    for (int r = 0; r < ROWS; r++) sum[r] += strip[i * ROWS + r];
  for (int64_t r = 0; r < least(ROWS, o->N - n); r++)
    o->sums[n + r] = sum[r] + (o->add ? o->sums[n + r] : 0);
}

static void outer_tiles(void *data) {
  Outer *o = data;
  int64_t task, strips = (o->N + ROWS - 1) / ROWS, tasks = whole(o->K, PANEL) / PANEL * strips;
  while ((task = take(&o->tile_task)) < tasks) {
    int64_t n = task % strips * ROWS, k = task / strips * PANEL;
    if (o->sums && !k) sum_strip(o, n);
    outer_tile(o, n, k);
  }
}

static void outer(Outer *o, int64_t count, int64_t threads) {
  for (o->first = 0; o->first < count; o->first += o->depth) {
    o->count = least(o->depth, count - o->first);
    o->pack_task = o->tile_task = 0;
    run(split_rows, o, threads);
    run(outer_tiles, o, threads);
    o->add = 1;
  }
}

static int outer_room(Outer *o) {
  int64_t depth = SPLIT / (o->N + o->K + 1) / 8 * 8, strips;
  depth = depth < 248 ? 248 : least(depth, 1000);
  o->depth = depth % 64 ? depth : depth - 8; /* strips would share lines of the cache */
  strips = whole(o->N, ROWS) * o->depth;
  o->strips = room_for(strips + whole(o->K, PANEL) * o->depth);
  o->panels = o->strips + strips;
  return o->strips != NULL;
}

/* out = or, with `add`, += a.T @ b, and likewise sums = a's over its rows, unless it is NULL;
   0 if there is no memory. */
int pctx_outer(int64_t threads, const float *a, int64_t N, const float *b, int64_t K, int64_t count,
               int64_t add, float *out, float *sums) {
  Outer o = {.a = a, .b = b, .N = N, .K = K, .add = add, .out = out, .sums = sums};
  if (!outer_room(&o)) return 0;
  if (!count && !add) {
    memset(out, 0, sizeof(float) * N * K);
    if (sums) memset(sums, 0, sizeof(float) * N);
  }
  outer(&o, count, threads);
  free(o.strips);
  return 1;
}

/* out[tap] = sum over the pairs of a tap of a[of_a[p]] and b[of_b[p]]; the centre as above. */
int pctx_outer_taps(int64_t threads, const float *a, int64_t rows_a, int64_t N, const float *b,
                    int64_t rows_b, int64_t K, const int64_t *starts, int64_t taps, int64_t centre,
                    const int64_t *of_a, const int64_t *of_b, float *out) {
  if (!fit(of_a, rows_a, of_b, rows_b, starts, taps, centre)) return -1;
  Outer o = {.a = a, .b = b, .N = N, .K = K};
  if (!outer_room(&o)) return 0;
  for (int64_t tap = 0; tap < taps; tap++) {
    int64_t count = tap == centre ? rows_a : starts[tap + 1] - starts[tap];
    o.of_a = tap == centre ? NULL : of_a + starts[tap];
    o.of_b = tap == centre ? NULL : of_b + starts[tap];
    o.out = out + tap * N * K, o.add = 0;
    if (!count) memset(o.out, 0, sizeof(float) * N * K);
    outer(&o, count, threads);
  }
  free(o.strips);
  return 1;
}

/* Depthwise convolutions, a factor a channel and tap: pairs as above, of a tap at a time. */
typedef struct {
  const float *x, *w;
  const int64_t *from, *to;
  int64_t pairs, C;
  float *out;
  int64_t task;
} Each;

static void scale_rows(void *data) {
  Each *e = data;
  int64_t task, part = 256;
  while ((task = take(&e->task)) * part < e->pairs)
    for (int64_t p = task * part; p < least(e->pairs, (task + 1) * part); p++) {
      const float *x = e->x + row_at(e->from, p) * e->C;
      float *to = e->out + row_at(e->to, p) * e->C;
      for (int64_t c = 0; c < e->C; c++) to[c] += x[c] * e->w[c];
    }
}

/* out[to[p]] += x[from[p]] * w[tap], out being new; 0: no memory, -1: an index lies outside. */
int pctx_convolve_each(int64_t threads, const float *x, int64_t there, int64_t C,
                       const int64_t *starts, int64_t taps, int64_t centre, const int64_t *from,
                       const int64_t *to, const float *w, float *out, int64_t targets) {
  if (!fit(from, there, to, targets, starts, taps, centre)) return -1;
  memset(out, 0, sizeof(float) * targets * C);
  for (int64_t turn = 0; turn <= taps; turn++) { /* the centre first */
    int64_t tap = turn ? turn - 1 : centre;
    if (tap < 0 || (turn && tap == centre)) continue;
    Each e = {.x = x, .w = w + tap * C, .C = C, .out = out};
    e.from = turn ? from + starts[tap] : NULL, e.to = turn ? to + starts[tap] : NULL;
    e.pairs = turn ? starts[tap + 1] - starts[tap] : targets;
    run(scale_rows, &e, threads);
  }
  return 1;
}

/* out[tap] = sum over its pairs of a[of_a[p]] * b[of_b[p]], channel by channel. */
typedef struct {
  const float *a, *b;
  const int64_t *of_a, *of_b, *starts;
  int64_t rows, taps, centre, C, task, failed;
  float *out;
} Inner;

static void inner_taps(void *data) {
  Inner *n = data;
  int64_t tap;
  float *part = room_for(n->C);
  if (!part) { n->failed = 1; return; }
  while ((tap = take(&n->task)) < n->taps) {
    float *sum = n->out + tap * n->C;
    int same = tap == n->centre;
    int64_t first = same ? 0 : n->starts[tap], last = same ? n->rows : n->starts[tap + 1];
    memset(sum, 0, sizeof(float) * n->C);
    for (int64_t start = first; start < last; start += PART) {
      memset(part, 0, sizeof(float) * n->C);
      for (int64_t p = start; p < least(last, start + PART); p++) {
        const float *a = n->a + (same ? p : n->of_a[p]) * n->C;
        const float *b = n->b + (same ? p : n->of_b[p]) * n->C;
        for (int64_t c = 0; c < n->C; c++) part[c] += a[c] * b[c];
      }
      for (int64_t c = 0; c < n->C; c++) sum[c] += part[c];
    }
  }
  free(part);
}

int pctx_inner_taps(int64_t threads, const float *a, int64_t rows_a, int64_t C, const float *b,
                    int64_t rows_b, const int64_t *starts, int64_t taps, int64_t centre,
                    const int64_t *of_a, const int64_t *of_b, float *out) {
  if (!fit(of_a, rows_a, of_b, rows_b, starts, taps, centre)) return -1;
  Inner n = {.a = a, .b = b, .of_a = of_a, .of_b = of_b, .starts = starts, .rows = rows_a,
             .taps = taps, .centre = centre, .C = C, .out = out};
  run(inner_taps, &n, threads);
  return !n.failed;
}

/* The normal distribution and its density, twice: 2 P(X > |x|) and exp(-x^2 / 2), to 3e-7
   (Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 7.1.26). */
INLINE vec tails(vec x, vec *density) {
  vec z = larger(x, -x), t = 1.0f / (splat(1) + 0.2316418882f * z);
  *density = exp2_of(larger(splat(-126), -0.5f * LOG2E * (x * x)));
  vec p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  return p * t * *density;
}

/* The share of a normal distribution below x. */
INLINE vec below(vec x, vec tail) {
  ivec positive = x > 0;
  vec half = 0.5f * tail, other = 1 - half;
  return (vec)((positive & (ivec)other) | (~positive & (ivec)half));
}

INLINE vec gelu(vec x) {
  vec density;
  return x * below(x, tails(x, &density));
}

/* Whole vectors of x, to themselves: GELU, or ReLU. */
static void activate(float *x, int64_t count, int gelus) {
  if (gelus)
    for (int64_t i = 0; i < count; i += WIDTH) store(x + i, gelu(load(x + i)));
  else
    for (int64_t i = 0; i < count; i += WIDTH) store(x + i, larger(splat(0), load(x + i)));
}

/* Two products and what is between them: hidden rows stay near the core. */
typedef struct {
  Product first, second;
  int64_t gelus, task, failed;
} MLP;

static void mlp_rows(void *data) {
  MLP *m = data;
  Product first = m->first, second = m->second;
  int64_t task, K = first.K, H = first.N, block = second.block;
  int64_t tasks = (first.rows + block - 1) / block;
  int64_t normed = whole((block + ROWS) * K, WIDTH);
  float *scratch = room_for(normed + ROWS * (K > H ? K : H) + block * H + WIDTH);
  if (!scratch) { m->failed = 1; return; }
  float *edge = scratch + normed, *hidden = edge + ROWS * (K > H ? K : H);
  first.out = hidden;
  while ((task = take(&m->task)) < tasks) {
    int64_t start = task * block, rows = least(block, first.rows - start);
    const float *x = first.x + start * K;
    if (first.norm.weight) normalize(x, rows, K, &first.norm, scratch), x = scratch;
    multiply_block(&first, x, 0, rows, x == scratch ? scratch : edge);
    activate(hidden, rows * H, (int)m->gelus);
    multiply_block(&second, hidden, start, rows, edge);
  }
  free(scratch);
}

/* out = act(LN(x) @ w1.T + bias1) @ w2.T + bias2, of contiguous rows; 0: no memory. */
int pctx_mlp(int64_t threads, const float *x, int64_t rows, int64_t K, const float *w1, int64_t H,
             const float *bias1, const float *w2, int64_t N, const float *bias2, int64_t gelus,
             float *out, const float *norm_weight, const float *norm_bias, float eps) {
  MLP m = {.first = {.x = x, .w = w1, .bias = bias1, .rows = rows, .K = K, .N = H, .across = K, .along = 1,
                     .norm = {norm_weight, norm_bias, eps}},
           .second = {.w = w2, .bias = bias2, .rows = rows, .K = H, .N = N, .across = H, .along = 1, .out = out},
           .gelus = gelus};
  float *panels = room_for(whole(H, PANEL) * K + whole(N, PANEL) * H);
  if (!panels) return 0;
  m.first.panels = panels, m.second.panels = panels + whole(H, PANEL) * K;
  m.second.block = block_of(rows, threads);
  run(pack, &m.first, threads);
  run(pack, &m.second, threads);
  run(mlp_rows, &m, threads);
  free(panels);
  return !m.failed;
}

/* What GELU does to x and to the gradient of its result, both in place. */
typedef struct {
  float *x, *grad;
  int64_t count, task;
} Gelu;

static void gelu_part(void *data) {
  Gelu *g = data;
  int64_t task, part = 1 << 14;
  while ((task = take(&g->task)) * part < g->count) {
    int64_t stop = least(g->count, (task + 1) * part);
    for (int64_t i = task * part; i < stop; i += WIDTH) {
      float *x = g->x + i, *grad = g->grad + i;
      ALIGNED float edge[2][WIDTH] = {{0}};
      int64_t some = least(WIDTH, stop - i);
      if (some < WIDTH) {
        memcpy(edge[0], x, sizeof(float) * some), memcpy(edge[1], grad, sizeof(float) * some);
        x = edge[0], grad = edge[1];
      }
      vec at = load(x), density, share = below(at, tails(at, &density));
      store(x, at * share);
      store(grad, load(grad) * (share + 0.3989422804f * at * density));
      if (some < WIDTH)
        memcpy(g->x + i, x, sizeof(float) * some), memcpy(g->grad + i, grad, sizeof(float) * some);
    }
  }
}

int pctx_gelu_backward(int64_t threads, float *x, float *grad, int64_t count) {
  Gelu g = {.x = x, .grad = grad, .count = count};
  run(gelu_part, &g, threads);
  return 1;
}
