/* What operators share: reading small integers, when work is worth sharing, moving elements, walking through tensors that
   are broadcast, searching rows, products of small pieces. */

#pragma once

#include <string.h>

#include "lanes.h"
#include "native.h"

/* --- integers and sizes ---------------------------------------------------------------------------------------------- */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Element j of a tensor of I64 */
static inline int64_t integer_of(const value *v, int64_t j) { return ((const int64_t *)v->data)[j]; }

/* Whether all of a tensor of I64 lie from 0 to size - 1 */
static inline int ids_within(const value *ids, int64_t size) {
    for (int64_t j = 0, count = count_of(ids); j < count; j++)
        if (integer_of(ids, j) < 0 || integer_of(ids, j) >= size) return 0;
    return 1;
}

#define OUTSIDE "an index lies outside of what it looks into"

/* Where an index points among `size`, from the end if it is negative; -1: outside */
static inline int64_t place_of(int64_t index, int64_t size) {
    if (index < 0) index += size;
    return index < 0 || index >= size ? -1 : index;
}

/* Whether all of a tensor of I64 point into `size` */
static inline int all_within(const value *indices, int64_t size) {
    for (int64_t j = 0, count = count_of(indices); j < count; j++)
        if (place_of(integer_of(indices, j), size) < 0) return 0;
    return 1;
}

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

/* --- sharing --------------------------------------------------------------------------------------------------------- */

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

/* rows(context, first, end) for all of `count` rows, which hold `numbers` together: shared where these are many */
void in_rows(machine *m, void (*rows)(void *, int64_t, int64_t), void *context, int64_t count, int64_t numbers);

/* --- moving ---------------------------------------------------------------------------------------------------------- */

/* Single numbers are most of what is copied, and calling memcpy for them would take longer than copying. */
static inline void copy_bytes(char *to, const char *from, int64_t bytes) {
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, (size_t)bytes);
}

/* The same element again and again: `bytes` is the size of one */
static inline void fill(char *to, const void *element, int64_t bytes, int64_t count) {
    if (bytes == 8) {
        uint64_t x;
        memcpy(&x, element, 8);
        for (int64_t j = 0; j < count; j++) memcpy(to + j * 8, &x, 8);
    } else if (bytes == 4) {
        uint32_t x;
        memcpy(&x, element, 4);
        for (int64_t j = 0; j < count; j++) memcpy(to + j * 4, &x, 4);
    } else {
        memset(to, *(const unsigned char *)element, (size_t)count);
    }
}

/* A matrix of 4-byte elements, rows for columns:
   given [columns, rows], `from_row` elements from a row to the next -> result [rows, columns], `to_row` to the next */
void turn(void *result, int64_t to_row, const void *given, int64_t from_row, int64_t rows, int64_t columns);

/* --- walking --------------------------------------------------------------------------------------------------------- */

enum { MOST_WALKED = 3 };

/* The dimensions of what comes out, the innermost first. Those of size 1 are left out, and neighbours that every tensor
   goes through alike are one, so that a line is as long as it can be. Steps are in elements, 0 where a tensor repeats
   itself; along a line (dimension 0) they are 0 or 1. */
typedef struct {
    int32_t rank;
    int32_t weight; /* how many numbers that are merely added each of these takes as long as: sharing depends on it */
    int64_t sizes[MOST_DIMENSIONS];
    int64_t steps[MOST_WALKED][MOST_DIMENSIONS];
} walk;

/* Sizes of what comes out of `count` tensors as numpy broadcasts them, and the walk. 1 where they do not fit. */
int broadcast(int count, const value *const *given, int32_t *rank, int64_t *sizes, walk *found);

/* Lines one after the other: `lines` of n elements each. Along a line a tensor goes on by steps[t] (0 or 1), from a line
   to the next by jumps[t] elements; the result is written without gaps, `out_jump` elements from a line to the next. */
typedef struct {
    int64_t n, lines, out_jump;
    int64_t steps[MOST_WALKED], jumps[MOST_WALKED];
} sheet;

typedef void (*line)(void *out, const void *const *given, const sheet *s);

/* All of it. Shared out where there are many numbers. */
void walk_lines(machine *m, const walk *w, line each, value *out, int count, const value *const *given);

/* --- the largest of a row -------------------------------------------------------------------------------------------- */

float greatest(const float *x, int64_t n);   /* of one at least */

/* The first that equals it; 0 where none does, since one of them is no number */
int64_t first_equal(const float *x, int64_t n, float wanted);

/* The same of x + y, number by number */
float greatest_sum(const float *x, const float *y, int64_t n);
int64_t first_equal_sum(const float *x, const float *y, int64_t n, float wanted);

/* --- a piece of a product in fp32 that stays in registers while it is summed ------------------------------------------ */

enum { TILE_ROWS = 6, TILE_WIDTH = 2 * LANES }; /* twelve sums, two vectors of the right, and one number of the left */

/* left [height, inner], at most TILE_ROWS of them, times right [inner, TILE_WIDTH], `step` numbers from a row to the
   next -> to, `to_step` numbers from a row to the next. Each number is summed over `inner` from the first to the last. */
void multiply_tile(const float *left, int64_t height, int64_t inner, const float *right, int64_t step, float *to,
    int64_t to_step);
