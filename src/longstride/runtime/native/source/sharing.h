/* When work is worth cutting into parts for several threads, and what operators read out of small integer inputs. */

#ifndef LONGSTRIDE_SHARING_H
#define LONGSTRIDE_SHARING_H

#include "native.h"

/* Fewer numbers than that are done before another thread has seen that there is something to do. */
enum { WORTH_SHARING = 30000, NUMBERS_OF_A_PART = 4096 };

/* part(context, 0) ... part(context, parts - 1), shared where `numbers` in all are many */
static inline void in_parts(
    machine *m, void (*part)(void *, int64_t), void *context, int64_t parts, int64_t numbers) {
    if (parts > 1 && numbers >= WORTH_SHARING && m->pool && threads_of(m->pool) > 1) {
        share(m->pool, part, context, parts);
        return;
    }
    for (int64_t number = 0; number < parts; number++) part(context, number);
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Element j of a tensor of I64 or I32 */
static inline int64_t integer_of(const value *v, int64_t j) {
    return v->kind == I32 ? ((const int32_t *)v->data)[j] : ((const int64_t *)v->data)[j];
}

static inline int is_integer(const value *v) { return v->kind == I64 || v->kind == I32; }

/* Axes may be counted from the end; -1 where there is no such axis */
static inline int32_t axis_of(int64_t axis, int32_t rank) {
    if (axis < 0) axis += rank;
    return axis < 0 || axis >= rank ? -1 : (int32_t)axis;
}

/* How many numbers dimensions first ... end - 1 hold together */
static inline int64_t product_of(const int64_t *sizes, int32_t first, int32_t end) {
    int64_t product = 1;
    for (int32_t d = first; d < end; d++) product *= sizes[d];
    return product;
}

#endif
