/* Rows of activations in 8 bits: as many steps up and down as there are codes, the largest number the last of them. */

#include "quantizing.h"

#include <float.h>
#include <string.h>

#include "dot.h"

static float largest_size(const float *x, int64_t width) {
    const whole_lanes without_sign = (whole_lanes)all_lanes(-0.0f) ^ -1;
    lanes largest = all_lanes(0.0f);
    int64_t place = 0;
    for (; place + LANES <= width; place += LANES)
        largest = greater_lanes((lanes)((whole_lanes)load_lanes(x + place) & without_sign), largest);
    if (place < width)
        largest = greater_lanes((lanes)((whole_lanes)load_some(x + place, width - place, 0.0f) & without_sign), largest);
    return greatest_lane(largest);
}

/* Sixteen codes: rounded to the nearest, half to even. `zero` is 1.5 * 2^23 more than the zero point: added to a number
   of that size it leaves a whole number in the lowest bits. None is out of range, as none is larger than the largest. */
static inline void write_codes(lanes x, lanes steps, lanes zero, uint8_t *codes) {
    whole_lanes whole = (whole_lanes)fused(x, steps, zero);
#if defined(__AVX512F__)
    __m128i bytes = _mm512_cvtepi32_epi8((__m512i)whole);
    memcpy(codes, &bytes, sizeof bytes);
#else
    for (int lane = 0; lane < LANES; lane++) codes[lane] = (uint8_t)whole[lane];
#endif
}

__attribute__((noinline)) float quantize_row(const float *x, int64_t width, int64_t nonnegative, uint8_t *codes,
                                             int64_t room) {
    const int32_t levels = nonnegative ? UNSIGNED_LEVELS : SIGNED_LEVELS;
    const float smallest = FLT_MIN * 127.0f;   /* neither a step nor its inverse is ever zero or infinite */
    float largest = largest_size(x, width);
    if (!(largest > smallest)) largest = smallest;
    const lanes steps = all_lanes((float)levels / largest);
    const lanes zero = all_lanes(12582912.0f + (float)(nonnegative ? 0 : ZERO_POINT));
    int64_t place = 0;
    for (; place + LANES <= width; place += LANES) write_codes(load_lanes(x + place), steps, zero, codes + place);
    if (place < width) {
        uint8_t last[LANES];
        write_codes(load_some(x + place, width - place, 0.0f), steps, zero, last);
        memcpy(codes + place, last, (size_t)(width - place));
    }
    memset(codes + width, 0, (size_t)(room - width));
    return largest * (1.0f / (float)levels);
}
