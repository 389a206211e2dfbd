/* A piece of a product in fp32 that stays in registers while it is summed. */

#ifndef LONGSTRIDE_FLOAT_TILES_H
#define LONGSTRIDE_FLOAT_TILES_H

#include "lanes.h"

enum { TILE_ROWS = 6, TILE_WIDTH = 2 * LANES }; /* twelve sums, two vectors of the right, and one number of the left */

/* left [height, inner], at most TILE_ROWS of them, times right [inner, TILE_WIDTH], `step` numbers from a row to the
   next -> to, `to_step` numbers from a row to the next. Each number is summed over `inner` from the first to the last. */
void multiply_tile(const float *left, int64_t height, int64_t inner, const float *right, int64_t step, float *to,
    int64_t to_step);

#endif
