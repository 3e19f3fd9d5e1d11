/* Points turned, points sorted into voxels by radix, and what stands for the points of each voxel.

   n points, m voxels, c columns. Voxel v owns order[starts[v]] ... order[starts[v + 1] - 1],
   ascending. Steps are those between rows and between columns of an array, in elements. */

#include <stdint.h>
#include <string.h>

enum { BLOCK = 256, LANES = 16, DIGIT = 11, DIGITS = 6, FEW = 4 };

#define INLINE static inline __attribute__((always_inline))

typedef struct {
  int64_t row, column;
} Steps;

#define COPY_BLOCK(T)                                                                  \
  INLINE void copy_##T(const T *coord, Steps by, int count, double x[3][BLOCK]) {      \
    for (int i = 0; i < count; i++)                                                    \
      for (int a = 0; a < 3; a++) x[a][i] = coord[i * by.row + a * by.column];         \
  }
COPY_BLOCK(float)
COPY_BLOCK(double)

/* Copy up to a block of points from `start` on, axis by axis; the last one fills the block. */
static int copy_block(const void *coord, int64_t wide, Steps by, int64_t start, int64_t n,
                      double x[3][BLOCK]) {
  const int count = n - start < BLOCK ? n - start : BLOCK;
  const float *from = (const float *)coord + start * by.row;
  if (wide)
    copy_double((const double *)coord + start * by.row, by, count, x);
  else if (by.row == 3 && by.column == 1) /* known to the compiler, it is twice as fast */
    copy_float(from, (Steps){3, 1}, count, x);
  else
    copy_float(from, by, count, x);
  for (int a = 0; a < 3; a++)
    for (int i = count; i < BLOCK; i++) x[a][i] = x[a][count - 1];
  return count;
}

/* Extend a range, in lanes; what is not finite makes a sum so. */
static void extend(const double *x, double *low, double *high, double *sum) {
  for (int i = 0; i < BLOCK; i += LANES)
    for (int l = 0; l < LANES; l++) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
      sum[l] += x[i + l] - x[i + l];
    }
}

/* Points (n, 3) times a matrix (3, 3). */
void pctx_multiply(const float *coord, int64_t n, const float *matrix, float *product) {
  float by[9];
  memcpy(by, matrix, sizeof by);
  for (int64_t i = 0; i < n; i++) {
    const float x = coord[3 * i], y = coord[3 * i + 1], z = coord[3 * i + 2];
    product[3 * i] = x * by[0] + y * by[3] + z * by[6];
    product[3 * i + 1] = x * by[1] + y * by[4] + z * by[7];
    product[3 * i + 2] = x * by[2] + y * by[5] + z * by[8];
  }
}

/* The smallest and the largest coordinate on each axis, (2, 3); NaN if one is not finite. */
void pctx_bounds(const void *coord, int64_t wide, Steps by, int64_t n, double *corners) {
  double x[3][BLOCK], low[3][LANES], high[3][LANES], sum[3][LANES] = {{0}}, unknown = 0;
  for (int64_t start = 0; start < n; start += BLOCK) {
    copy_block(coord, wide, by, start, n, x);
    for (int a = 0; a < 3; a++) {
      if (start == 0) memcpy(low[a], x[a], sizeof low[a]), memcpy(high[a], x[a], sizeof high[a]);
      extend(x[a], low[a], high[a], sum[a]);
    }
  }
  for (int a = 0; a < 3; a++) {
    corners[a] = low[a][0], corners[3 + a] = high[a][0];
    for (int l = 0; l < LANES; l++) {
      if (low[a][l] < corners[a]) corners[a] = low[a][l];
      if (high[a][l] > corners[3 + a]) corners[3 + a] = high[a][l];
      unknown += sum[a][l];
    }
  }
  for (int a = 0; a < 6; a++) corners[a] += unknown;
}

static void number_cells(const double *x, double size, double low, int32_t *cell) {
  for (int i = 0; i < BLOCK; i++) cell[i] = __builtin_floor(x[i] / size) - low;
}

/* Sort points by voxel, x before y before z; those of a voxel ascend.

   A word holds a point's voxel, of bits[0] + bits[1] + bits[2] bits, above its row. Words are
   sorted from the lowest digit of the voxel on. Returns m; `words` holds them sorted. */
int64_t pctx_sort_voxels(const void *coord, int64_t wide, Steps by, int64_t n, double size,
                         const double *low, const int64_t *bits, int64_t row_bits, uint64_t *words,
                         uint64_t *scratch) {
  const int all = bits[0] + bits[1] + bits[2], passes = (all + DIGIT - 1) / DIGIT;
  const int width = passes ? (all + passes - 1) / passes : 0;
  const uint64_t digit = (1u << width) - 1;
  uint32_t counts[DIGITS][1 << DIGIT];
  memset(counts, 0, sizeof *counts * passes);
  uint64_t *from = passes % 2 ? scratch : words, *to = passes % 2 ? words : scratch;
  double x[3][BLOCK];
  int32_t cell[3][BLOCK];
  for (int64_t start = 0; start < n; start += BLOCK) {
    const int count = copy_block(coord, wide, by, start, n, x);
    for (int a = 0; a < 3; a++) number_cells(x[a], size, low[a], cell[a]);
    for (int i = 0; i < count; i++) {
      uint64_t key = (uint64_t)cell[0][i] << bits[1] | cell[1][i];
      key = key << bits[2] | cell[2][i];
      from[start + i] = key << row_bits | (start + i);
      for (int p = 0; p < passes; p++) counts[p][key >> p * width & digit]++;
    }
  }
  for (int p = 0; p < passes; p++) {
    const int shift = row_bits + p * width;
    uint32_t end = 0;
    for (uint64_t d = 0; d <= digit; d++) {
      const uint32_t here = counts[p][d];
      counts[p][d] = end;
      end += here;
    }
    for (int64_t i = 0; i < n; i++) to[counts[p][from[i] >> shift & digit]++] = from[i];
    uint64_t *sorted = to;
    to = from, from = sorted;
  }
  int64_t m = n > 0;
  for (int64_t i = 1; i < n; i++) m += words[i] >> row_bits != words[i - 1] >> row_bits;
  return m;
}

/* Turn sorted words into points, in place; give starts (m + 1) and voxel numbers (m, 3). */
void pctx_split_words(uint64_t *words, int64_t n, int64_t m, const int64_t *bits, int64_t row_bits,
                      int64_t *starts, int64_t *grid_coord) {
  const uint64_t row = ((uint64_t)1 << row_bits) - 1;
  const uint64_t y = ((uint64_t)1 << bits[1]) - 1, z = ((uint64_t)1 << bits[2]) - 1;
  int64_t v = 0;
  for (int64_t i = 0; i < n; i++) { /* each voxel's place is written until its last point */
    starts[v + 1] = i + 1;
    v += i + 1 < n && words[i] >> row_bits != words[i + 1] >> row_bits;
  }
  starts[0] = 0;
  for (v = 0; v < m; v++) {
    const uint64_t key = words[starts[v]] >> row_bits;
    grid_coord[3 * v] = key >> bits[2] >> bits[1];
    grid_coord[3 * v + 1] = key >> bits[2] & y;
    grid_coord[3 * v + 2] = key & z;
  }
  for (int64_t i = 0; i < n; i++) words[i] &= row;
}

/* The voxel of each point. */
void pctx_invert(const int64_t *order, const int64_t *starts, int64_t m, int64_t *inverse) {
  for (int64_t v = 0; v < m; v++)
    for (int64_t i = starts[v]; i < starts[v + 1]; i++) inverse[order[i]] = v;
}

/* List the voxels from `start` to `end` with several points: most have one, and a processor that
   guesses which is often wrong. */
static int list_shared(const int64_t *starts, int64_t start, int64_t end, int64_t *shared) {
  int count = 0;
  for (int64_t v = start; v < end; v++) {
    shared[count] = v;
    count += starts[v + 1] - starts[v] > 1;
  }
  return count;
}

INLINE void average(const float *values, Steps by, int few, int64_t c, const int64_t *order,
                    const int64_t *starts, int64_t m, float *means) {
  int64_t shared[BLOCK];
  for (int64_t start = 0; start < m; start += BLOCK) {
    const int64_t end = start + BLOCK < m ? start + BLOCK : m;
    for (int64_t v = start; v < end; v++)
      for (int k = 0; k < few; k++)
        means[v * c + k] = 0.0f + values[order[starts[v]] * by.row + k * by.column];
    const int count = list_shared(starts, start, end, shared);
    for (int s = 0; s < count; s++) {
      const int64_t v = shared[s], first = starts[v], last = starts[v + 1];
      double sum[FEW] = {0};
      for (int64_t i = first; i < last; i++)
        for (int k = 0; k < few; k++) sum[k] += values[order[i] * by.row + k * by.column];
      for (int k = 0; k < few; k++) means[v * c + k] = sum[k] / (last - first);
    }
  }
}

/* The mean of each column over the points of each voxel, summed in double in their order: (m, c). */
void pctx_average(const float *values, Steps by, int64_t c, const int64_t *order,
                  const int64_t *starts, int64_t m, float *means) {
  for (int64_t k = 0; k < c; k += FEW, values += FEW * by.column, means += FEW) {
    switch (c - k) { /* compiled for each number */
      case 1: average(values, by, 1, c, order, starts, m, means); break;
      case 2: average(values, by, 2, c, order, starts, m, means); break;
      case 3: average(values, by, 3, c, order, starts, m, means); break;
      default: average(values, by, FEW, c, order, starts, m, means);
    }
  }
}

/* The point of each voxel at a share of them, from 0 on and below 1. */
void pctx_draw(const double *share, const int64_t *order, const int64_t *starts, int64_t m,
               int64_t *drawn) {
  for (int64_t v = 0; v < m; v++)
    drawn[v] = order[starts[v] + (int64_t)(share[v] * (starts[v + 1] - starts[v]))];
}

/* Some rows: (m, c). */
void pctx_take(const float *values, Steps by, int64_t c, const int64_t *rows, int64_t m,
               float *taken) {
  for (int64_t r = 0; r < m; r++)
    for (int64_t k = 0; k < c; k++) *taken++ = values[rows[r] * by.row + k * by.column];
}

/* The commonest of some points' labels, the lowest of several; negative ones count only alone. */
static int64_t elect(const int64_t *label, const int64_t *points, int64_t count, int64_t *votes) {
  int64_t best = label[points[0]], most = 0, alike = 1;
  for (int64_t i = 1; i < count; i++) alike &= label[points[i]] == best;
  if (alike) return best;
  for (int64_t i = 0; i < count; i++)
    if (label[points[i]] >= 0) votes[label[points[i]]]++;
  for (int64_t i = 0; i < count; i++) {
    const int64_t each = label[points[i]];
    if (each >= 0 && (votes[each] > most || (votes[each] == most && each < best)))
      best = each, most = votes[each];
  }
  for (int64_t i = 0; i < count; i++)
    if (label[points[i]] >= 0) votes[label[points[i]]] = 0;
  return best;
}

/* The commonest label of each voxel. `votes` has a place for each label, all 0, and is left so. */
void pctx_elect(const int64_t *label, const int64_t *order, const int64_t *starts, int64_t m,
                int64_t *votes, int64_t *elected) {
  int64_t shared[BLOCK];
  for (int64_t start = 0; start < m; start += BLOCK) {
    const int64_t end = start + BLOCK < m ? start + BLOCK : m;
    for (int64_t v = start; v < end; v++) elected[v] = label[order[starts[v]]];
    const int count = list_shared(starts, start, end, shared);
    for (int s = 0; s < count; s++) {
      const int64_t v = shared[s], first = starts[v];
      elected[v] = elect(label, order + first, starts[v + 1] - first, votes);
    }
  }
}
