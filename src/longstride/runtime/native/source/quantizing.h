/* Rows of activations in 8 bits. A row's codes depend on that row alone. */

#ifndef LONGSTRIDE_QUANTIZING_H
#define LONGSTRIDE_QUANTIZING_H

#include <stdint.h>

/* x [width] -> codes, `room` bytes of them, those beyond the width being 0; what one step of them is worth.
   `nonnegative`: no number of the row is below zero, so all levels are for what is above. */
float quantize_row(const float *x, int64_t width, int64_t nonnegative, uint8_t *codes, int64_t room);

#endif
