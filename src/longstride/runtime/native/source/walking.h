/* Tensors that are broadcast against each other, walked through together, line by line. */

#ifndef LONGSTRIDE_WALKING_H
#define LONGSTRIDE_WALKING_H

#include "native.h"

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

#endif
