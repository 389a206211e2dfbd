/* Norm: layer norm or RMS norm of rows, or of sums of two rows. Each row by one function that sees nothing of the others; the order
   of its sums depends on the width alone. */

#include <math.h>

#include "lanes.h"
#include "native.h"

enum {
    SUMS = 4,         /* side by side: one alone would wait for each addition */
    TOGETHER = 8,     /* rows of one part, at most */
    FEW_NUMBERS = 2048   /* fewer are done by one thread */
};

typedef struct {
    const float *x, *added;   /* [rows, width]; `added` may be NULL */
    const float *weight, *bias;
    float *y;
    int64_t rows, width;
    int64_t together;         /* rows of one part */
    float epsilon;
    int uncentred;
} norm;

static inline float total(const lanes *sums) { return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])); }

/* of the numbers in a row, which are put into y if they are sums of two */
static inline float sum_of_row(const float *x, const float *added, float *y, int64_t width) {
    lanes sums[SUMS] = {{0}};
    int64_t place = 0;
    for (; place + SUMS * LANES <= width; place += SUMS * LANES)
        for (int s = 0; s < SUMS; s++) {
            lanes here = load_lanes(x + place + s * LANES);
            if (added) here += load_lanes(added + place + s * LANES);
            store_lanes(y + place + s * LANES, here);
            sums[s] += here;
        }
    for (; place < width; place += LANES) {
        int64_t count = width - place < LANES ? width - place : LANES;
        lanes here = load_some(x + place, count, 0.0f);
        if (added) here += load_some(added + place, count, 0.0f);
        store_some(y + place, here, count);
        sums[0] += here;
    }
    return total(sums);
}

static inline float sum_of_squares(const float *y, int64_t width, float mean) {
    lanes sums[SUMS] = {{0}};
    int64_t place = 0;
    for (; place + SUMS * LANES <= width; place += SUMS * LANES)
        for (int s = 0; s < SUMS; s++) {
            lanes apart = load_lanes(y + place + s * LANES) - all_lanes(mean);
            sums[s] = fused(apart, apart, sums[s]);
        }
    for (; place < width; place += LANES) {
        int64_t count = width - place < LANES ? width - place : LANES;
        lanes apart = load_some(y + place, count, mean) - all_lanes(mean);
        sums[0] = fused(apart, apart, sums[0]);
    }
    return total(sums);
}

static __attribute__((noinline)) void norm_row(const norm *n, const float *x, const float *added, float *y) {
    const int64_t width = n->width;
    const float sum = sum_of_row(x, added, y, width), mean = n->uncentred ? 0.0f : sum / (float)width;
    const float variance = sum_of_squares(y, width, mean) / (float)width;
    const lanes middle = all_lanes(mean), factor = all_lanes(1.0f / sqrtf(variance + n->epsilon));
    int64_t place = 0;
    for (; place + LANES <= width; place += LANES) {
        lanes apart = (load_lanes(y + place) - middle) * factor;
        store_lanes(y + place, fused(apart, load_lanes(n->weight + place), load_lanes(n->bias + place)));
    }
    if (place < width) {
        int64_t count = width - place;
        lanes apart = (load_some(y + place, count, 0.0f) - middle) * factor;
        lanes weight = load_some(n->weight + place, count, 0.0f), bias = load_some(n->bias + place, count, 0.0f);
        store_some(y + place, fused(apart, weight, bias), count);
    }
}

static void norm_rows(void *given, int64_t number) {
    const norm *n = given;
    int64_t row = number * n->together, last = row + n->together < n->rows ? row + n->together : n->rows;
    for (; row < last; row++) {
        int64_t place = row * n->width;
        norm_row(n, n->x + place, n->added ? n->added + place : NULL, n->y + place);
    }
}

/* attributes: width, the bits of epsilon as a double, whether no mean is taken away (RMS norm); weights: float[2 * width], factors and then what is added */
int op_Norm(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *added = input_of(m, i, 1);
    const int64_t width = i->attribute[0];
    if (!i->weights) return wrong(m, "Norm expects weights");
    if (x->kind != F32 || x->rank < 1 || width < 1 || x->sizes[x->rank - 1] != width)
        return wrong(m, "Norm expects as many fp32 numbers in a row as it has weights");
    if (added && (added->kind != F32 || count_of(added) != count_of(x)))
        return wrong(m, "Norm expects two inputs of one size");
    double epsilon;
    memcpy(&epsilon, &i->attribute[1], sizeof epsilon);
    const float *weight = i->weights;
    norm n = {.x = x->data, .added = added ? added->data : NULL, .weight = weight, .bias = weight + width,
              .rows = count_of(x) / width, .width = width, .epsilon = (float)epsilon,
              .uncentred = i->attribute[2] != 0};
    n.y = give(m, i, 0, F32, x->rank, x->sizes);
    if (!n.y) return 1;
    /* What the other threads have made has to come from them: together they fetch it sooner. */
    const int64_t threads = n.rows * width < FEW_NUMBERS ? 1 : threads_of(m->pool), each = (n.rows + threads - 1) / threads;
    n.together = threads > 1 && each > TOGETHER ? TOGETHER : each;
    if (n.rows) share(threads > 1 ? m->pool : NULL, norm_rows, &n, (n.rows + n.together - 1) / n.together);
    return 0;
}
