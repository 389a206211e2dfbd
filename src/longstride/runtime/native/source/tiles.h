/* Integer products by a unit for small matrices (AMX), where a processor has one. It sums the same integers: which way a
   product takes changes no bit. */

#ifndef LONGSTRIDE_TILES_H
#define LONGSTRIDE_TILES_H

#include "product.h"

enum { TILE_ROWS = 16 };   /* codes must be there, whatever they are, up to a multiple of so many rows */

/* 1 where the unit is there, can be had, and does this product sooner */
int suits_tiles(const product *p);

void do_panels_by_tiles(const product *p, int64_t panel, int64_t last);

#endif
