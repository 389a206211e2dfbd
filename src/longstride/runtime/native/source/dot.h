/* Sixteen sums of four products of bytes each: what every processor calls by another name.

   Activations are unsigned with the zero point ZERO_POINT, or 0 where none is negative; where a processor multiplies only
   signed bytes, the zero point is 0 and there are half as many levels for what is never negative. */

#ifndef LONGSTRIDE_DOT_H
#define LONGSTRIDE_DOT_H

#include "lanes.h"

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define DOT_NAME "AVX-512 VNNI"
enum { DOT_VECTORS = 2, DOT_ROWS = 12 };   /* 24 of 32 registers hold sums */
#elif defined(__AVXVNNI__)
#define DOT_NAME "AVX-VNNI"
enum { DOT_VECTORS = 1, DOT_ROWS = 6 };    /* two registers each: 12 of 16 */
#elif defined(__ARM_FEATURE_MATMUL_INT8) || defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#define DOT_NAME "NEON dot products"
#ifndef __ARM_FEATURE_MATMUL_INT8
#define SIGNED_ACTIVATIONS
#endif
enum { DOT_VECTORS = 1, DOT_ROWS = 6 };    /* four registers each: 24 of 32 */
#else
enum { DOT_VECTORS = 1, DOT_ROWS = 4 };
#endif

#ifdef SIGNED_ACTIVATIONS
enum { ZERO_POINT = 0, SIGNED_LEVELS = 127, UNSIGNED_LEVELS = 127 };
#else
enum { ZERO_POINT = 128, SIGNED_LEVELS = 127, UNSIGNED_LEVELS = 255 };
#endif

/* sums[lane] += four activations (one after another in the bytes of `four`) times weights[4 lane ... 4 lane + 3] */
static inline __attribute__((always_inline)) whole_lanes dot(whole_lanes sums, uint32_t four, const int8_t *weights) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    __m512i codes = _mm512_set1_epi32((int32_t)four);
    return (whole_lanes)_mm512_dpbusd_epi32((__m512i)sums, codes, _mm512_loadu_si512(weights));
#elif defined(__AVXVNNI__)
    __m256i codes = _mm256_set1_epi32((int32_t)four), half[2], weight[2];
    memcpy(half, &sums, sizeof sums);
    memcpy(weight, weights, sizeof weight);
    half[0] = _mm256_dpbusd_avx_epi32(half[0], codes, weight[0]);
    half[1] = _mm256_dpbusd_avx_epi32(half[1], codes, weight[1]);
    memcpy(&sums, half, sizeof sums);
    return sums;
#elif defined(__ARM_FEATURE_MATMUL_INT8) || defined(__ARM_FEATURE_DOTPROD)
    int32x4_t quarter[4];
    memcpy(quarter, &sums, sizeof sums);
    for (int number = 0; number < 4; number++) {
#ifdef SIGNED_ACTIVATIONS
        quarter[number] = vdotq_s32(quarter[number], vld1q_s8(weights + 16 * number), vreinterpretq_s8_u32(vdupq_n_u32(four)));
#else
        quarter[number] = vusdotq_s32(quarter[number], vreinterpretq_u8_u32(vdupq_n_u32(four)), vld1q_s8(weights + 16 * number));
#endif
    }
    memcpy(&sums, quarter, sizeof sums);
    return sums;
#else
    uint8_t codes[4];
    memcpy(codes, &four, sizeof codes);
    for (int lane = 0; lane < LANES; lane++)
        for (int number = 0; number < 4; number++) sums[lane] += codes[number] * weights[4 * lane + number];
    return sums;
#endif
}

#endif
