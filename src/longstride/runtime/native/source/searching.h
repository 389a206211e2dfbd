/* The largest of a row, and where it stands. */

#ifndef LONGSTRIDE_SEARCHING_H
#define LONGSTRIDE_SEARCHING_H

#include <stdint.h>

float greatest(const float *x, int64_t n);   /* of one at least */

/* The first that equals it; 0 where none does, since one of them is no number */
int64_t first_equal(const float *x, int64_t n, float wanted);

/* The same of x + y, number by number */
float greatest_sum(const float *x, const float *y, int64_t n);
int64_t first_equal_sum(const float *x, const float *y, int64_t n, float wanted);

#endif
