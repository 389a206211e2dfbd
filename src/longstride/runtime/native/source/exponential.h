/* e to the power of x, sixteen at a time. A lane's result depends on that lane alone.

   x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 (fitted by its relative error, 4e-9 of it), 2^n put
   into the exponent's bits. Relative error below 2e-7. Exactly 1 at 0, exactly 0 below -87 (what a mask hides adds
   nothing, and no result is denormal), infinite above 88.37; NaN stays NaN. */

#ifndef LONGSTRIDE_EXPONENTIAL_H
#define LONGSTRIDE_EXPONENTIAL_H

#include "lanes.h"

static inline lanes exponential(lanes x) {
    const lanes to_whole = all_lanes(12582912.0f);   /* 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits */
    const lanes shifted = fused(x, all_lanes(0x1.715476p+0f), to_whole);
    const lanes n = shifted - to_whole;
    /* ln 2 in two parts; the first has few enough bits that its multiples are exact */
    lanes r = fused(n, all_lanes(-0x1.62e4p-1f), x);
    r = fused(n, all_lanes(-0x1.7f7d1cp-20f), r);
    lanes p = all_lanes(0x1.6a21acp-10f);
    p = fused(p, r, all_lanes(0x1.123b6ap-7f));
    p = fused(p, r, all_lanes(0x1.5558fap-5f));
    p = fused(p, r, all_lanes(0x1.55549p-3f));
    p = fused(p, r, all_lanes(0x1.fffffcp-2f));
    p = fused(r * r, p, r) + all_lanes(1.0f);
    lanes found = (lanes)((whole_lanes)p + ((whole_lanes)shifted << 23));
    found = choose(x < all_lanes(-87.0f), all_lanes(0.0f), found);
    found = choose(x > all_lanes(88.37f), all_lanes(__builtin_inff()), found);
    return choose(x != x, x, found);
}

static inline float exponential_of_one(float x) {
    return exponential(all_lanes(x))[0];
}

#endif
