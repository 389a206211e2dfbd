/* Products with packed weights: what Linear's files share. */

#pragma once

#include <stdatomic.h>

#include "lanes.h"
#include "native.h"

/* --- dot products of bytes ------------------------------------------------------------------------------------------- */

/* As many sums as lanes, of four products of bytes each: what every processor calls by another name.

   Activations are unsigned with the zero point ZERO_POINT, or 0 where none is negative; where a processor multiplies only
   signed bytes, the zero point is 0 and there are half as many levels for what is never negative. Weights are signed, from
   -WEIGHT_LEVELS to WEIGHT_LEVELS: where an instruction sums two products in 16 bits, as many as fit (2 * 255 * 63, or of
   two signed bytes 2 * 127 * 127, are less than 32,768). */

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define DOT_NAME "AVX-512 VNNI"
enum { DOT_VECTORS = 2, DOT_ROWS = 14 };   /* 28 of 32 registers hold sums, two weights, one codes */
#elif defined(__AVX512BW__)
#define DOT_NAME "AVX-512"
#define SUMS_IN_16_BITS
enum { DOT_VECTORS = 2, DOT_ROWS = 14 };   /* 28 of 32: a sum takes several steps */
#elif defined(__AVXVNNI__)
#define DOT_NAME "AVX-VNNI"
enum { DOT_VECTORS = 2, DOT_ROWS = 6 };    /* 12 of 16 */
#elif defined(__AVX2__)
#define DOT_NAME "AVX2"
#define SUMS_IN_16_BITS
enum { DOT_VECTORS = 2, DOT_ROWS = 4 };    /* 8 of 16 */
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define DOT_NAME "NEON dot products of signed and unsigned bytes"
enum { DOT_VECTORS = 4, DOT_ROWS = 6 };    /* 24 of 32, four weights, one codes */
#elif defined(__ARM_FEATURE_DOTPROD)
#define DOT_NAME "NEON dot products"
#define SIGNED_ACTIVATIONS
enum { DOT_VECTORS = 4, DOT_ROWS = 6 };
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define DOT_NAME "NEON"
#define SIGNED_ACTIVATIONS
enum { DOT_VECTORS = 4, DOT_ROWS = 5 };
#else
enum { DOT_VECTORS = 16 / LANE_COUNT, DOT_ROWS = 4 };
#endif

#ifdef SIGNED_ACTIVATIONS
enum { ZERO_POINT = 0, SIGNED_LEVELS = 127, UNSIGNED_LEVELS = 127 };
#else
enum { ZERO_POINT = 128, SIGNED_LEVELS = 127, UNSIGNED_LEVELS = 255 };
#endif

#ifdef SUMS_IN_16_BITS
enum { WEIGHT_LEVELS = 63 };
#else
enum { WEIGHT_LEVELS = 127 };
#endif

#if defined(__AVX2__)
#define DOT_LANES
/* sums[lane] += codes[4 lane ... 4 lane + 3] times weights[4 lane ... 4 lane + 3], bytes without and with a sign */
ALWAYS_INLINE whole_lanes dot_lanes(whole_lanes sums, whole_lanes codes, whole_lanes weights) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    return (whole_lanes)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, (__m512i)weights);
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)codes, (__m512i)weights);
    return sums + (whole_lanes)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVXVNNI__)
    return (whole_lanes)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)codes, (__m256i)weights);
#else
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, (__m256i)weights);
    return sums + (whole_lanes)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}
#endif

/* sums[lane] += four activations (one after another in the bytes of `four`) times weights[4 lane ... 4 lane + 3] */
ALWAYS_INLINE whole_lanes dot(whole_lanes sums, uint32_t four, const int8_t *weights) {
#if defined(DOT_LANES)
    return dot_lanes(sums, (whole_lanes){0} + (int32_t)four, load_whole(weights));
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    return (whole_lanes)vsudotq_lane_s32((int32x4_t)sums, vld1q_s8(weights), vreinterpret_u8_u32((uint32x2_t){four, 0}), 0);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (whole_lanes)vdotq_lane_s32((int32x4_t)sums, vld1q_s8(weights), vreinterpret_s8_u32((uint32x2_t){four, 0}), 0);
#elif defined(__aarch64__) && defined(__ARM_NEON)
    const int8x8_t codes = vreinterpret_s8_u32(vdup_n_u32(four));
    const int8x16_t weight = vld1q_s8(weights);
    const int16x8_t pairs = vpaddq_s16(vmull_s8(vget_low_s8(weight), codes), vmull_s8(vget_high_s8(weight), codes));
    return (whole_lanes)vpadalq_s16((int32x4_t)sums, pairs);
#else
    uint8_t codes[4];
    memcpy(codes, &four, sizeof codes);
    for (int lane = 0; lane < LANES; lane++)
        for (int number = 0; number < 4; number++) sums[lane] += codes[number] * weights[4 * lane + number];
    return sums;
#endif
}

/* --- packed weights -------------------------------------------------------------------------------------------------- */

/* A weight matrix as products read it: in panels of neighbouring outputs, each panel one run of memory from its first
   input to its last, so that a product reads its weights once, in order.

   int8: [panels][inputs / 4][PANEL][4] codes; fp32: [panels][inputs][PANEL] floats. Inputs and outputs that are missing in
   the last four, or in the last panel, are zero. */

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

void *pack_linear(const float *weight, const float *bias, int64_t outputs, int64_t inputs, int64_t precision);
void free_linear(void *packed);

/* 1 where this processor multiplies and sums four bytes at once; otherwise int8 is right but slow */
int has_integer_products(void);

/* WEIGHT_LEVELS, for who makes codes elsewhere */
int weight_levels(void);

/* --- one product ----------------------------------------------------------------------------------------------------- */

enum {
    AHEAD = 2048,       /* bytes between what is read and what is fetched */
    MOST_RANGES = 16    /* of panels, one for each thread */
};

/* Panels that one thread takes first, some at a time; whoever has none left takes from the others. */
typedef struct {
    _Alignas(128) _Atomic int64_t next;
    int64_t end;
} range;

typedef struct {
    const packed *weights;
    const float *x;         /* [rows, inputs] */
    uint8_t *codes;         /* [rows, code_bytes] */
    float *steps;           /* [rows] what a step of each row's codes is worth */
    float *y;               /* [rows, outputs] */
    float *most;            /* [rows, panels] the largest output of each panel, for who looks for the best; or NULL */
    int64_t rows, code_bytes, nonnegative, relu;
    int64_t together;       /* rows that are quantized at a time */
    int64_t turns;          /* in which rows are multiplied */
    int64_t ranges;
    range *range;           /* [ranges] */
    const packed *then;     /* the matrix that is read next, or NULL */
    int by_tiles;           /* the processor's own unit for products of matrices does it */
} product;

/* As many outputs of a row as lanes, or as there are */
ALWAYS_INLINE void write_row(const product *p, int64_t row, int64_t output, lanes y) {
    const int64_t outputs = p->weights->outputs;
    if (p->relu) y = greater_lanes(all_lanes(0.0f), y);   /* which NaN stays */
    float *to = p->y + row * outputs + output;
    if (output + LANES <= outputs) store_lanes(to, y);
    else if (output < outputs) store_some(to, y, outputs - output);
}

/* Of one row of a panel that has been written */
static inline void note_largest(const product *p, int64_t row, int64_t panel) {
    if (!p->most) return;
    const int64_t outputs = p->weights->outputs, first = panel * PANEL;
    const float *y = p->y + row * outputs + first;
    float most = y[0];
    for (int64_t j = 1; j < PANEL && first + j < outputs; j++) most = y[j] > most ? y[j] : most;
    p->most[row * p->weights->panels + panel] = most;
}

ALWAYS_INLINE lanes from_sums(const product *p, int64_t row, int64_t output, whole_lanes sums) {
    const packed *w = p->weights;
    if (!p->nonnegative) {
        whole_lanes surplus;
        memcpy(&surplus, w->surplus + output, sizeof surplus);
        sums -= surplus;
    }
    lanes found = __builtin_convertvector(sums, lanes);
    return found * all_lanes(p->steps[row]) * load_lanes(w->scale + output) + load_lanes(w->bias + output);
}

/* --- rows of activations in 8 bits; a row's codes depend on that row alone ------------------------------------------- */

/* x [width] -> codes, `bytes` of them, those beyond the width being 0; what one step of them is worth. So many levels are
   for what is above zero, and as many for what is below, if there is any. */
float quantize_row(const float *x, int64_t width, int32_t levels, int32_t zero_point, uint8_t *codes, int64_t bytes);

/* --- AMX ------------------------------------------------------------------------------------------------------------- */

/* Integer products by a unit for small matrices (AMX), where a processor has one. It sums the same integers: which way a
   product takes changes no bit. */

enum { AMX_ROWS = 16 };   /* codes must be there, whatever they are, up to a multiple of so many rows */

/* 1 where the unit is there, can be had, and does this product sooner */
int suits_tiles(const product *p);

void do_panels_by_tiles(const product *p, int64_t panel, int64_t last);
