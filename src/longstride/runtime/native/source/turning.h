/* A matrix of 4-byte elements, rows for columns. */

#ifndef LONGSTRIDE_TURNING_H
#define LONGSTRIDE_TURNING_H

#include <stdint.h>

/* given [columns, rows], `from_row` elements from a row to the next -> result [rows, columns], `to_row` to the next */
void turn(void *result, int64_t to_row, const void *given, int64_t from_row, int64_t rows, int64_t columns);

#endif
