/* What one product is about, and what becomes of its sums: shared by all ways of making them. */

#ifndef LONGSTRIDE_PRODUCT_H
#define LONGSTRIDE_PRODUCT_H

#include "native.h"
#include "packed.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    AHEAD = 4096,       /* bytes between what is read and what is fetched */
    MOST_PARTS = 255    /* into which a product is cut */
};

typedef struct {
    const packed *weights;
    const float *x;         /* [rows, inputs] */
    uint8_t *codes;         /* [rows, code_bytes] */
    float *steps;           /* [rows] what a step of each row's codes is worth */
    float *y;               /* [rows, outputs] */
    int64_t rows, code_bytes, nonnegative, relu;
    int64_t together;       /* rows that are quantized at a time */
    int64_t turns;          /* in which rows are multiplied */
    int32_t begins[MOST_PARTS + 1];   /* the first panel of each part, and the end of the last */
    int by_tiles;           /* the processor's own unit for products of matrices does it */
} product;

/* Sixteen outputs of a row, or as many as there are */
ALWAYS_INLINE void write_row(const product *p, int64_t row, int64_t output, lanes y) {
    const int64_t outputs = p->weights->outputs;
    if (p->relu) y = greater_lanes(y, all_lanes(0.0f));
    float *to = p->y + row * outputs + output;
    if (output + LANES <= outputs) store_lanes(to, y);
    else if (output < outputs) store_some(to, y, outputs - output);
}

ALWAYS_INLINE lanes from_sums(const product *p, int64_t row, int64_t output, whole_lanes sums) {
    const packed *w = p->weights;
    if (!p->nonnegative) {
        whole_lanes surplus;
        memcpy(&surplus, w->surplus + output, sizeof surplus);
        sums -= surplus;
    }
    lanes found = __builtin_convertvector(sums, lanes);
    return found * all_lanes(p->steps[row]) * load_lanes(w->scale + output) + load_lanes(w->bias + output);
}

#endif
