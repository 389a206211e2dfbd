/* A weight matrix as products read it: in panels of neighbouring outputs, each panel one run of memory from its first
   input to its last, so that a product reads its weights once, in order.

   int8: [panels][inputs / 4][PANEL][4] codes; fp32: [panels][inputs][PANEL] floats. Inputs and outputs that are missing in
   the last four, or in the last panel, are zero. */

#ifndef LONGSTRIDE_PACKED_H
#define LONGSTRIDE_PACKED_H

#include <stdint.h>

#include "dot.h"

enum {
    PANEL_VECTORS = DOT_VECTORS,
    PANEL = PANEL_VECTORS * LANES,
    FOUR = 4   /* inputs that one instruction multiplies and sums */
};

typedef struct {
    int64_t outputs, inputs;
    int64_t precision;      /* 8 or 32 */
    int64_t panels;
    int64_t fours;          /* of inputs, the last one filled up */
    int64_t panel_bytes;
    const int8_t *panel;    /* codes or floats, as above */
    const float *scale;     /* [panels * PANEL] what one step of an output's codes is worth; int8 only */
    const float *bias;      /* [panels * PANEL]; zero where there is none */
    const int32_t *surplus; /* [panels * PANEL] what the activations' zero point adds to each sum; int8 only */
} packed;

void *pack_linear(const float *weight, const float *bias, int64_t outputs, int64_t inputs, int64_t precision,
                  int64_t narrow);
void free_linear(void *packed);

/* 1 where this processor multiplies and sums four bytes at once; otherwise int8 is right but slow */
int has_integer_products(void);

#endif
