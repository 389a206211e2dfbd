/* Linear: rows times a packed weight matrix.

   A step has few rows, and its time goes into reading weights: a panel's weights are read once for up to DOT_ROWS rows,
   whose sums all stand in registers, and are fetched some way ahead. More rows than that take turns, as even as may be.
   Panels are shared out. In int8 integers are summed; in fp32 each sum goes over the inputs in order: either way a number
   depends on its own row and output alone. */

#include "product.h"

enum {
    FEW_BYTES = 12 << 10,  /* of weights: a part has at least so many, if there is but one turn of rows */
    FEW_NUMBERS = 8192,    /* of activations: fewer are quantized by the one thread */
    TOGETHER = 2048        /* numbers, or a row, that one part quantizes at least */
};

/* --- tiles: one panel of outputs, so many rows --------------------------------------------------------------------- */

ALWAYS_INLINE void whole_tile(const product *p, const int rows, int64_t panel, int64_t row) {
    const packed *w = p->weights;
    const int8_t *weight = w->panel + panel * w->panel_bytes;
    const uint8_t *code = p->codes + row * p->code_bytes;
    const int64_t code_bytes = p->code_bytes, fours = w->fours;
    whole_lanes sums[DOT_ROWS][PANEL_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = (whole_lanes){0};
    for (int64_t four = 0; four < fours; four++) {
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) __builtin_prefetch(weight + AHEAD + v * 64, 0, 3);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            uint32_t codes;
            memcpy(&codes, code + r * code_bytes + four * FOUR, sizeof codes);
#pragma GCC unroll 2
            for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = dot(sums[r][v], codes, weight + v * 64);
        }
        weight += PANEL * FOUR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) {
            int64_t output = panel * PANEL + v * LANES;
            write_row(p, row + r, output, from_sums(p, row + r, output, sums[r][v]));
        }
}

ALWAYS_INLINE void float_tile(const product *p, const int rows, int64_t panel, int64_t row) {
    const packed *w = p->weights;
    const float *weight = (const float *)(const void *)(w->panel + panel * w->panel_bytes);
    const int64_t inputs = w->inputs;
    const float *x = p->x + row * inputs;
    lanes sums[DOT_ROWS][PANEL_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = all_lanes(0.0f);
    for (int64_t input = 0; input < inputs; input++) {
        lanes weights[PANEL_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) {
            __builtin_prefetch(weight + AHEAD / (int64_t)sizeof(float) + v * LANES, 0, 3);
            weights[v] = load_lanes(weight + v * LANES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            lanes one = all_lanes(x[r * inputs + input]);
#pragma GCC unroll 2
            for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = fused(one, weights[v], sums[r][v]);
        }
        weight += PANEL;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANEL_VECTORS; v++) {
            int64_t output = panel * PANEL + v * LANES;
            write_row(p, row + r, output, sums[r][v] + load_lanes(w->bias + output));
        }
}

/* one function for every number of rows, so that sums stay in registers */
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define WHOLE(ROWS) \
    static __attribute__((noinline)) void whole_tile_##ROWS(const product *p, int64_t panel, int64_t row) { \
        whole_tile(p, ROWS <= DOT_ROWS ? ROWS : 1, panel, row); \
    }
#define FLOAT(ROWS) \
    static __attribute__((noinline)) void float_tile_##ROWS(const product *p, int64_t panel, int64_t row) { \
        float_tile(p, ROWS <= DOT_ROWS ? ROWS : 1, panel, row); \
    }
TILES(WHOLE)
TILES(FLOAT)

typedef void (*tile)(const product *p, int64_t panel, int64_t row);

#define NAME_OF_WHOLE(ROWS) whole_tile_##ROWS,
#define NAME_OF_FLOAT(ROWS) float_tile_##ROWS,
static const tile whole_tiles[] = {NULL, TILES(NAME_OF_WHOLE)}, float_tiles[] = {NULL, TILES(NAME_OF_FLOAT)};

/* --- the whole product -------------------------------------------------------------------------------------------- */

static void do_panels(void *given, int64_t number) {
    const product *p = given;
    const tile *tiles = p->weights->precision == 8 ? whole_tiles : float_tiles;
    int64_t panel = p->begins[number], last = p->begins[number + 1];
    if (p->by_tiles) {
        do_panels_by_tiles(p, panel, last);
        return;
    }
    for (; panel < last; panel++)
        for (int64_t turn = 0; turn < p->turns; turn++) {
            int64_t row = p->rows * turn / p->turns, end = p->rows * (turn + 1) / p->turns;
            tiles[end - row](p, panel, row);
        }
}

static void quantize_rows(void *given, int64_t number) {
    const product *p = given;
    int64_t row = number * p->together, last = row + p->together < p->rows ? row + p->together : p->rows;
    for (; row < last; row++)
        p->steps[row] = quantize_row(p->x + row * p->weights->inputs, p->weights->inputs, p->nonnegative,
                                     p->codes + row * p->code_bytes, p->code_bytes);
}

/* Cuts panels into parts: how many. The first are long, as weights that lie side by side are fetched ahead; those that
   follow are ever shorter, so that threads end together. */
static int64_t cut_panels(product *p, int64_t threads) {
    const packed *w = p->weights;
    int64_t least = FEW_BYTES / (w->panel_bytes * p->turns + 1) + 1, parts = 0;
    if (least * MOST_PARTS < w->panels) least = (w->panels + MOST_PARTS - 1) / MOST_PARTS;
    if (threads < 2) least = w->panels;
    for (int64_t panel = 0; panel < w->panels; parts++) {
        int64_t left = w->panels - panel, size = left / (2 * threads);
        size = size < least ? least : size;
        p->begins[parts] = (int32_t)panel;
        panel += size < left ? size : left;
    }
    p->begins[parts] = (int32_t)w->panels;
    return parts;
}

/* attributes: inputs, outputs, whether x is never below zero, whether a Relu follows, precision (8 or 32) */
int op_Linear(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    const packed *w = i->weights;
    if (!w) return wrong(m, "Linear expects packed weights");
    if (x->kind != F32 || x->rank < 1 || x->sizes[x->rank - 1] != w->inputs)
        return wrong(m, "Linear expects as many fp32 numbers in a row as its weights have inputs");
    int64_t sizes[MOST_DIMENSIONS];
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[x->rank - 1] = w->outputs;
    int64_t rows = w->inputs ? count_of(x) / w->inputs : 0;
    float *y = give(m, i, 0, F32, x->rank, sizes);
    if (!y) return 1;
    if (!rows) return 0;
    product p = {.weights = w, .x = x->data, .y = y, .rows = rows, .nonnegative = i->attribute[2], .relu = i->attribute[3]};
    p.turns = (rows + DOT_ROWS - 1) / DOT_ROWS;
    if (w->precision == 8) {
        /* A line more than needed: rows whose distance is a power of two would stand in each other's way. */
        p.code_bytes = (w->fours * FOUR + 63) / 64 * 64 + 64;
        p.by_tiles = suits_tiles(&p);
        int64_t codes = (p.by_tiles ? (rows + AMX_ROWS - 1) / AMX_ROWS * AMX_ROWS : rows) * p.code_bytes;
        p.codes = take_scratch(m, codes + rows * (int64_t)sizeof(float));
        if (!p.codes) return 1;
        p.steps = (float *)(void *)(p.codes + codes);
        p.together = TOGETHER / w->inputs + 1;
        struct pool *helpers = rows * w->inputs < FEW_NUMBERS ? NULL : m->pool;
        share(helpers, quantize_rows, &p, (rows + p.together - 1) / p.together);
    }
    share(m->pool, do_panels, &p, cut_panels(&p, threads_of(m->pool)));
    return 0;
}
