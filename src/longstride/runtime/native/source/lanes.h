/* Sixteen numbers side by side: one register where registers are that wide, several elsewhere. All that is in fp32 is
   written with them, so that a sum has the same sixteen partial sums, put together in the same order, on any processor. */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"   /* how lanes are handed to functions does not matter: all are inlined */
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(64)));
typedef int32_t whole_lanes __attribute__((vector_size(64)));   /* also what comparing lanes gives: 0 or -1 each */

static inline lanes load_lanes(const float *from) {
    lanes found;
    memcpy(&found, from, sizeof found);   /* an unaligned load */
    return found;
}

static inline void store_lanes(float *to, lanes x) {
    memcpy(to, &x, sizeof x);
}

/* the first `count` of sixteen; the others are `filling` */
static inline lanes load_some(const float *from, int64_t count, float filling) {
    float found[LANES];
    for (int lane = 0; lane < LANES; lane++) found[lane] = filling;
    memcpy(found, from, (size_t)count * sizeof(float));
    return load_lanes(found);
}

static inline void store_some(float *to, lanes x, int64_t count) {
    float given[LANES];
    store_lanes(given, x);
    memcpy(to, given, (size_t)count * sizeof(float));
}

static inline lanes all_lanes(float x) {
    return (lanes){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* chosen where `condition` is -1, other where it is 0 */
static inline lanes choose(whole_lanes condition, lanes chosen, lanes other) {
    return (lanes)((condition & (whole_lanes)chosen) | (~condition & (whole_lanes)other));
}

/* a > b ? a : b in every lane, which is what processors call a maximum */
static inline lanes greater_lanes(lanes a, lanes b) {
#if defined(__AVX512F__)
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return choose(a > b, a, b);
#endif
}

/* a * b + c, rounded once where the processor can: always so, or never, in one library */
static inline lanes fused(lanes a, lanes b, lanes c) {
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    __m256 x[2], y[2], z[2];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    memcpy(z, &c, sizeof c);
    z[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
    z[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
    memcpy(&c, z, sizeof c);
    return c;
#elif defined(__ARM_FEATURE_FMA)
    for (int lane = 0; lane < LANES; lane++) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return c;
#else
    return a * b + c;
#endif
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLED(A, B, ...) __builtin_shuffle(A, B, (whole_lanes){__VA_ARGS__})
#endif

/* the other half of sixteen, of eight, of four, of two lanes in the place of each */
#define OTHER_OF_16(X) SHUFFLED(X, X, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define OTHER_OF_8(X) SHUFFLED(X, X, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define OTHER_OF_4(X) SHUFFLED(X, X, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define OTHER_OF_2(X) SHUFFLED(X, X, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)

/* halves added to halves: 16, 8, 4, 2, 1 */
static inline float sum_of_lanes(lanes x) {
    x += OTHER_OF_16(x);
    x += OTHER_OF_8(x);
    x += OTHER_OF_4(x);
    x += OTHER_OF_2(x);
    return x[0];
}

static inline float greatest_lane(lanes x) {
    x = greater_lanes(x, OTHER_OF_16(x));
    x = greater_lanes(x, OTHER_OF_8(x));
    x = greater_lanes(x, OTHER_OF_4(x));
    x = greater_lanes(x, OTHER_OF_2(x));
    return x[0];
}

/* e to the power of x, sixteen at a time. A lane's result depends on that lane alone.

   x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 (fitted by its relative error, 4e-9 of it), 2^n put
   into the exponent's bits. Relative error below 2e-7. Exactly 1 at 0, exactly 0 below -87 (what a mask hides adds
   nothing, and no result is denormal), infinite above 88.37; NaN stays NaN. */
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
