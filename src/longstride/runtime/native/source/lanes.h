/* As many numbers side by side as one register holds: sixteen, eight or four. All that is in fp32 is written with them.
   Wider vectors than registers are allowed by compilers and kept in memory by some: several times slower. How many partial
   sums a sum has, and so its last bits, depends on the processor; on one of them it is the same for all that stands beside. */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* a short loop all of whose turns are written out, so that what it counts through can stay in registers */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)
#define LANE_COUNT 16
#elif defined(__AVX__)
#define LANE_COUNT 8
#else
#define LANE_COUNT 4
#endif

enum { LANES = LANE_COUNT };

typedef float lanes __attribute__((vector_size(4 * LANE_COUNT)));
typedef int32_t whole_lanes __attribute__((vector_size(4 * LANE_COUNT)));   /* also what comparing lanes gives: 0 or -1 each */
typedef uint32_t bit_lanes __attribute__((vector_size(4 * LANE_COUNT)));

static inline lanes load_lanes(const float *from) {
    lanes found;
    memcpy(&found, from, sizeof found);   /* an unaligned load */
    return found;
}

/* whole numbers, or four bytes in each lane */
static inline whole_lanes load_whole(const void *from) {
    whole_lanes found;
    memcpy(&found, from, sizeof found);
    return found;
}

static inline void store_lanes(float *to, lanes x) {
    memcpy(to, &x, sizeof x);
}

/* the first `count` lanes; the others are `filling` */
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
#if LANE_COUNT == 16
    return (lanes){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif LANE_COUNT == 8
    return (lanes){x, x, x, x, x, x, x, x};
#else
    return (lanes){x, x, x, x};
#endif
}

/* chosen where `condition` is -1, other where it is 0 */
static inline lanes choose(whole_lanes condition, lanes chosen, lanes other) {
    return (lanes)((condition & (whole_lanes)chosen) | (~condition & (whole_lanes)other));
}

/* one bit for each lane whose condition holds, the first lane's lowest */
static inline uint32_t bits_of(whole_lanes condition) {
#if defined(__AVX512F__)
    return (uint32_t)_mm512_movepi32_mask((__m512i)condition);
#elif defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps((__m256)condition);
#elif defined(__aarch64__) && defined(__ARM_NEON)
    return vaddvq_u32((uint32x4_t)(condition & (whole_lanes){1, 2, 4, 8}));
#else
    uint32_t found = 0;
    for (int lane = 0; lane < LANES; lane++) found |= (uint32_t)(condition[lane] & 1) << lane;
    return found;
#endif
}

/* a > b ? a : b in every lane, which is what processors call a maximum */
static inline lanes greater_lanes(lanes a, lanes b) {
#if defined(__AVX512F__)
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (lanes)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return choose(a > b, a, b);
#endif
}

static inline whole_lanes greater_whole(whole_lanes a, whole_lanes b) {
#if defined(__AVX512F__)
    return (whole_lanes)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (whole_lanes)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif defined(__ARM_NEON)
    return (whole_lanes)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
#else
    return (whole_lanes)choose(a > b, (lanes)a, (lanes)b);
#endif
}

/* a * b + c, rounded once where the processor can: always so, or never, in one library */
static inline lanes fused(lanes a, lanes b, lanes c) {
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_FEATURE_FMA) && defined(__ARM_NEON)
    return (lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLED(A, B, ...) __builtin_shuffle(A, B, (whole_lanes){__VA_ARGS__})
#endif

/* DO with the lanes and their halves in each other's place, then those of the halves, and so on down to neighbours */
#if LANE_COUNT == 16
#define HALVES(X, DO) \
    DO(X, SHUFFLED(X, X, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)) \
    DO(X, SHUFFLED(X, X, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)) \
    DO(X, SHUFFLED(X, X, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)) \
    DO(X, SHUFFLED(X, X, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14))
#elif LANE_COUNT == 8
#define HALVES(X, DO) \
    DO(X, SHUFFLED(X, X, 4, 5, 6, 7, 0, 1, 2, 3)) \
    DO(X, SHUFFLED(X, X, 2, 3, 0, 1, 6, 7, 4, 5)) \
    DO(X, SHUFFLED(X, X, 1, 0, 3, 2, 5, 4, 7, 6))
#else
#define HALVES(X, DO) \
    DO(X, SHUFFLED(X, X, 2, 3, 0, 1)) \
    DO(X, SHUFFLED(X, X, 1, 0, 3, 2))
#endif

/* halves added to halves until one number is left */
static inline float sum_of_lanes(lanes x) {
#define ADD_TO(X, OTHER) X += OTHER;
    HALVES(x, ADD_TO)
    return x[0];
}

static inline int32_t sum_of_whole_lanes(whole_lanes x) {
    HALVES(x, ADD_TO)
    return x[0];
}

static inline float greatest_lane(lanes x) {
#define TAKE_GREATER(X, OTHER) X = greater_lanes(X, OTHER);
    HALVES(x, TAKE_GREATER)
    return x[0];
}

static inline int32_t greatest_whole_lane(whole_lanes x) {
#define TAKE_GREATER_WHOLE(X, OTHER) X = greater_whole(X, OTHER);
    HALVES(x, TAKE_GREATER_WHOLE)
    return x[0];
}

/* e to the power of x in every lane. A lane's result depends on that lane alone.

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
    lanes found = (lanes)((bit_lanes)p + ((bit_lanes)shifted << 23));
    found = choose(x < all_lanes(-87.0f), all_lanes(0.0f), found);
    found = choose(x > all_lanes(88.37f), all_lanes(__builtin_inff()), found);
    return choose(x != x, x, found);
}

static inline float exponential_of_one(float x) {
    return exponential(all_lanes(x))[0];
}
