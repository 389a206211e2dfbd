/* Sixteen numbers side by side: one register where registers are that wide, several elsewhere. All that is in fp32 is
   written with them, so that a sum has the same sixteen partial sums, put together in the same order, on any processor. */

#ifndef LONGSTRIDE_LANES_H
#define LONGSTRIDE_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"   /* how lanes are handed to functions does not matter: all are inlined */
#endif

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

#endif
