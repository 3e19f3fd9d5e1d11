/* Rows of float32 that are taken and added by index, on the CPU, in order and by one thread.

   Each function gives 1, or 0 as soon as an index lies outside. */

#include <stdint.h>
#include <string.h>

#define AHEAD 8

/* to[p] = from[index[p]], of `there` rows of c numbers. */
int pctx_take_rows(const float *from, int64_t there, const int64_t *index, int64_t count, int64_t c,
                   float *to) {
  for (int64_t p = 0; p < count; p++) {
    if ((uint64_t)index[p] >= (uint64_t)there) return 0;
    if (p + AHEAD < count) __builtin_prefetch(from + index[p + AHEAD] * c);
    memcpy(to + p * c, from + index[p] * c, (size_t)c * sizeof(float));
  }
  return 1;
}

/* total[index[p]] += rows[p] */
int pctx_add_rows(float *total, int64_t there, const int64_t *index, int64_t count, int64_t c,
                  const float *rows) {
  for (int64_t p = 0; p < count; p++) {
    if ((uint64_t)index[p] >= (uint64_t)there) return 0;
    if (p + AHEAD < count) __builtin_prefetch(total + index[p + AHEAD] * c, 1);
    float *sum = total + index[p] * c;
    const float *row = rows + p * c;
    for (int64_t i = 0; i < c; i++) sum[i] += row[i];
  }
  return 1;
}
