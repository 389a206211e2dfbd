/* Rows of activations in 8 bits: as many steps up and down as there are codes, the largest number the last of them. */

#include "product.h"

#include <float.h>
#include <string.h>

/* The bits of a number without its sign: whole numbers in the same order, in which infinity and NaN are the largest */
static inline whole_lanes size_of(lanes x) { return (whole_lanes)x & 0x7fffffff; }

static float largest_size(const float *x, int64_t width) {
    whole_lanes largest[4] = {{0}};   /* one alone would wait for each comparison */
    int64_t place = 0;
    for (; place + 4 * LANES <= width; place += 4 * LANES)
        for (int n = 0; n < 4; n++) largest[n] = greater_whole(size_of(load_lanes(x + place + n * LANES)), largest[n]);
    for (; place < width; place += LANES)
        largest[0] = greater_whole(size_of(load_some(x + place, width - place < LANES ? width - place : LANES, 0.0f)), largest[0]);
    const int32_t bits =
        greatest_whole_lane(greater_whole(greater_whole(largest[0], largest[1]), greater_whole(largest[2], largest[3])));
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

/* A code for each lane: rounded to the nearest, half to even. `zero` is 1.5 * 2^23 more than the zero point: added to a number
   of that size it leaves a whole number in the lowest bits. None is out of range, as none is larger than the largest. */
static inline void write_codes(lanes x, lanes steps, lanes zero, uint8_t *codes) {
    whole_lanes whole = (whole_lanes)fused(x, steps, zero);
#if defined(__AVX512F__)
    __m128i bytes = _mm512_cvtepi32_epi8((__m512i)whole);
    memcpy(codes, &bytes, sizeof bytes);
#elif defined(__AVX2__)
    const __m256i low = (__m256i)(whole & 0xff);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i bytes = _mm_packus_epi16(words, words);
    memcpy(codes, &bytes, LANES);
#elif defined(__aarch64__) && defined(__ARM_NEON)
    const uint16x4_t half = vmovn_u32((uint32x4_t)whole);
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(half, half));
    memcpy(codes, &bytes, LANES);
#else
    for (int lane = 0; lane < LANES; lane++) codes[lane] = (uint8_t)whole[lane];
#endif
}

__attribute__((noinline)) float quantize_row(const float *x, int64_t width, int32_t levels, int32_t zero_point,
                                             uint8_t *codes, int64_t bytes) {
    const float smallest = FLT_MIN * 127.0f;   /* neither a step nor its inverse is ever zero or infinite */
    float largest = largest_size(x, width);
    const int finite = largest <= FLT_MAX;
    if (!(largest > smallest) || !finite) largest = smallest;
    const lanes steps = all_lanes((float)levels / largest);
    const lanes zero = all_lanes(12582912.0f + (float)zero_point);
    int64_t place = 0;
    for (; place + LANES <= width; place += LANES) write_codes(load_lanes(x + place), steps, zero, codes + place);
    if (place < width) {
        uint8_t last[LANES];
        write_codes(load_some(x + place, width - place, 0.0f), steps, zero, last);
        memcpy(codes + place, last, (size_t)(width - place));
    }
    memset(codes + width, 0, (size_t)(bytes - width));
    return finite ? largest * (1.0f / (float)levels) : __builtin_nanf("");   /* what no codes can say is not made up */
}
