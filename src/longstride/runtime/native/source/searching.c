/* The largest of a row, and where it stands: see searching.h. Two passes, each of which takes vectors. */

#include "searching.h"

#include "lanes.h"

float greatest(const float *x, int64_t n) {
    int64_t j = 0;
    if (n < LANES) {
        float found = x[0];
        for (j = 1; j < n; j++) found = x[j] > found ? x[j] : found;
        return found;
    }
    lanes a = load_lanes(x), b = a, c = a, d = a;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        a = greater_lanes(load_lanes(x + j), a);
        b = greater_lanes(load_lanes(x + j + LANES), b);
        c = greater_lanes(load_lanes(x + j + 2 * LANES), c);
        d = greater_lanes(load_lanes(x + j + 3 * LANES), d);
    }
    for (; j + LANES <= n; j += LANES) a = greater_lanes(load_lanes(x + j), a);
    a = greater_lanes(load_lanes(x + n - LANES), a); /* some are seen twice */
    return greatest_lane(greater_lanes(greater_lanes(a, b), greater_lanes(c, d)));
}

static inline lanes sum_at(const float *x, const float *y, int64_t j) {
    return load_lanes(x + j) + load_lanes(y + j);
}

float greatest_sum(const float *x, const float *y, int64_t n) {
    int64_t j = 0;
    if (n < LANES) {
        float found = x[0] + y[0];
        for (j = 1; j < n; j++) found = x[j] + y[j] > found ? x[j] + y[j] : found;
        return found;
    }
    lanes a = sum_at(x, y, 0), b = a;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        a = greater_lanes(sum_at(x, y, j), a);
        b = greater_lanes(sum_at(x, y, j + LANES), b);
    }
    for (; j + LANES <= n; j += LANES) a = greater_lanes(sum_at(x, y, j), a);
    a = greater_lanes(sum_at(x, y, n - LANES), a);
    return greatest_lane(greater_lanes(a, b));
}

/* Which of sixteen are equal, one bit each */
static inline uint32_t equal_lanes(lanes x, float wanted) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(wanted), _CMP_EQ_OQ);
#else
    uint32_t found = 0;
    for (int lane = 0; lane < LANES; lane++) found |= (uint32_t)(x[lane] == wanted) << lane;
    return found;
#endif
}

int64_t first_equal(const float *x, int64_t n, float wanted) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        uint32_t found = equal_lanes(load_lanes(x + j), wanted);
        if (found) return j + __builtin_ctz(found);
    }
    for (; j < n; j++)
        if (x[j] == wanted) return j;
    return 0;
}

int64_t first_equal_sum(const float *x, const float *y, int64_t n, float wanted) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        uint32_t found = equal_lanes(sum_at(x, y, j), wanted);
        if (found) return j + __builtin_ctz(found);
    }
    for (; j < n; j++)
        if (x[j] + y[j] == wanted) return j;
    return 0;
}
