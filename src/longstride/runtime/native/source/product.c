/* Linear: rows times a packed weight matrix.

   A step has few rows, and its time goes into reading weights: a panel's weights are read once for up to DOT_ROWS rows,
   whose sums all stand in registers. More rows than that take turns, as even as may be. What is read next is fetched
   meanwhile; behind a thread's last panel that is its share of the next matrix. Each thread has a range of panels, and
   helps the others when it has done its own. In int8 integers are summed; in fp32 each sum goes over the inputs in order:
   either way a number depends on its own row and output alone. */

#include "product.h"

enum {
    FEW_BYTES = 12 << 10,  /* of weights: so many at least are taken at a time, if there is but one turn of rows */
    FEW_NUMBERS = 8192,    /* of activations: fewer are quantized by the one thread */
    TOGETHER = 2048,       /* numbers, or a row, that one part quantizes at least */
    MOST_BETWEEN = 64,     /* instructions that are looked through for the next product */
    LINE = 64,             /* bytes that are fetched at a time */
    STEP = PANEL * 4       /* bytes of a panel's weights for one fp32 input, or for four in int8 */
};

/* --- tiles: one panel of outputs, so many rows --------------------------------------------------------------------- */

/* What is fetched while a tile is multiplied. Where all rows are in one tile, what comes a little later in the panel; where
   they take turns, each fetches a share of what is read next, a line at each step. Asking again for a line that is on its
   way would cost more than it brings. */
ALWAYS_INLINE void fetch(const int alone, const int8_t *weight, const int8_t *next, int64_t step) {
    if (alone) {
        for (int line = 0; line < STEP; line += LINE) __builtin_prefetch(weight + AHEAD + line, 0, 3);
    } else {
        __builtin_prefetch(next + step * LINE, 0, 2);
    }
}

/* Where a tile's outputs go; whoever wrote there last may be another thread */
ALWAYS_INLINE void fetch_outputs(const product *p, const int rows, int64_t panel, int64_t row) {
    const float *to = p->y + row * p->weights->outputs + panel * PANEL;
UNROLLED
    for (int r = 0; r < rows; r++, to += p->weights->outputs)
        for (int v = 0; v < PANEL_VECTORS; v++) __builtin_prefetch(to + v * LANES, 1, 2);
}

/* Sums of rows over all inputs, of integers or of floats, become outputs. */
static const int32_t none[PANEL];   /* what a zero point of 0 adds to sums */

/* of a panel all of whose outputs are there */
ALWAYS_INLINE void write_panel(const product *p, const int rows, const int largest, int64_t panel, int64_t row,
                               whole_lanes (*sums)[PANEL_VECTORS]) {
    const packed *w = p->weights;
    const int64_t output = panel * PANEL, outputs = w->outputs;
    const int32_t *surplus = p->nonnegative ? none : w->surplus + output;
    const float *scale = w->scale + output, *bias = w->bias + output, *steps = p->steps + row;
    const lanes lowest = all_lanes(p->relu ? 0.0f : -__builtin_inff());
    float *to = p->y + row * outputs + output;
UNROLLED
    for (int r = 0; r < rows; r++, to += outputs) {
        lanes most = lowest;
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) {
            whole_lanes less;
            memcpy(&less, surplus + v * LANES, sizeof less);
            lanes found = __builtin_convertvector(sums[r][v] - less, lanes) * all_lanes(steps[r]);
            found = found * load_lanes(scale + v * LANES) + load_lanes(bias + v * LANES);
            found = greater_lanes(lowest, found);
            store_lanes(to + v * LANES, found);
            if (largest) most = greater_lanes(most, found);
        }
        if (largest) p->most[(row + r) * w->panels + panel] = greatest_lane(most);
    }
}

static __attribute__((noinline)) void write_last_panel(const product *p, int64_t panel, int64_t row, int rows,
                                                       const whole_lanes (*sums)[PANEL_VECTORS]) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++) {
            int64_t output = panel * PANEL + v * LANES;
            write_row(p, row + r, output, from_sums(p, row + r, output, sums[r][v]));
            if (v + 1 == PANEL_VECTORS) note_largest(p, row + r, panel);
        }
}

static __attribute__((noinline)) void write_floats(const product *p, int64_t panel, int64_t row, int rows,
                                                   const lanes (*sums)[PANEL_VECTORS]) {
    for (int v = 0; v < PANEL_VECTORS; v++) {
        const int64_t output = panel * PANEL + v * LANES;
        const lanes bias = load_lanes(p->weights->bias + output);
        for (int r = 0; r < rows; r++) write_row(p, row + r, output, sums[r][v] + bias);
    }
    for (int r = 0; r < rows; r++) note_largest(p, row + r, panel);
}

/* Sums are copied: those whose address is known elsewhere would not stay in registers. */
ALWAYS_INLINE void whole_tile(const product *p, const int rows, const int alone, int64_t panel, int64_t row,
                              const int8_t *next) {
    const packed *w = p->weights;
    const int8_t *weight = w->panel + panel * w->panel_bytes;
    const uint8_t *code = p->codes + row * p->code_bytes;
    const int64_t code_bytes = p->code_bytes, fours = w->fours;
    fetch_outputs(p, rows, panel, row);
    whole_lanes sums[DOT_ROWS][PANEL_VECTORS];
UNROLLED
    for (int r = 0; r < rows; r++)
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = (whole_lanes){0};
    for (int64_t four = 0; four < fours; four++) {
        fetch(alone, weight, next, four);
UNROLLED
        for (int r = 0; r < rows; r++) {
            uint32_t codes;
            memcpy(&codes, code + r * code_bytes + four * FOUR, sizeof codes);
UNROLLED
            for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = dot(sums[r][v], codes, weight + v * LANES * FOUR);
        }
        weight += STEP;
    }
    if ((panel + 1) * PANEL <= w->outputs) {
        if (p->most) write_panel(p, rows, 1, panel, row, sums);
        else write_panel(p, rows, 0, panel, row, sums);
        return;
    }
    whole_lanes found[DOT_ROWS][PANEL_VECTORS];
UNROLLED
    for (int r = 0; r < rows; r++)
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) found[r][v] = sums[r][v];
    write_last_panel(p, panel, row, rows, (const whole_lanes(*)[PANEL_VECTORS])found);
}

ALWAYS_INLINE void float_tile(const product *p, const int rows, const int alone, int64_t panel, int64_t row,
                              const int8_t *next) {
    const packed *w = p->weights;
    const float *weight = (const float *)(const void *)(w->panel + panel * w->panel_bytes);
    const int64_t inputs = w->inputs;
    const float *x = p->x + row * inputs;
    fetch_outputs(p, rows, panel, row);
    lanes sums[DOT_ROWS][PANEL_VECTORS], found[DOT_ROWS][PANEL_VECTORS];
UNROLLED
    for (int r = 0; r < rows; r++)
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = all_lanes(0.0f);
    for (int64_t input = 0; input < inputs; input++) {
        lanes weights[PANEL_VECTORS];
        fetch(alone, (const int8_t *)(const void *)weight, next, input);
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) weights[v] = load_lanes(weight + v * LANES);
UNROLLED
        for (int r = 0; r < rows; r++) {
            lanes one = all_lanes(x[r * inputs + input]);
UNROLLED
            for (int v = 0; v < PANEL_VECTORS; v++) sums[r][v] = fused(one, weights[v], sums[r][v]);
        }
        weight += PANEL;
    }
UNROLLED
    for (int r = 0; r < rows; r++)
UNROLLED
        for (int v = 0; v < PANEL_VECTORS; v++) found[r][v] = sums[r][v];
    write_floats(p, panel, row, rows, (const lanes(*)[PANEL_VECTORS])found);
}

/* one function for every number of rows, so that sums stay in registers */
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define TILE(KIND, ROWS, ALONE, NAME) \
    static __attribute__((noinline)) void NAME(const product *p, int64_t panel, int64_t row, const int8_t *next) { \
        KIND(p, ROWS <= DOT_ROWS ? ROWS : 1, ALONE, panel, row, next); \
    }
#define ALL(ROWS) \
    TILE(whole_tile, ROWS, 1, whole_alone_##ROWS) TILE(whole_tile, ROWS, 0, whole_group_##ROWS) \
    TILE(float_tile, ROWS, 1, float_alone_##ROWS) TILE(float_tile, ROWS, 0, float_group_##ROWS)
TILES(ALL)

typedef void (*tile)(const product *p, int64_t panel, int64_t row, const int8_t *next);

#define NAMES(ROWS) {{float_group_##ROWS, float_alone_##ROWS}, {whole_group_##ROWS, whole_alone_##ROWS}},
static const tile tiles[][2][2] = {{{NULL}}, TILES(NAMES)};   /* by rows, whether in int8, whether alone */

/* --- the whole product --------------------------------------------------------------------------------------------- */

static int64_t first_of(const packed *w, int64_t number, int64_t ranges) { return w->panels * number / ranges; }

/* Panels up to `last` of a range up to `end`, by the thread of so high a number */
static void do_some(const product *p, int64_t panel, int64_t last, int64_t end, int64_t number) {
    const packed *w = p->weights, *then = p->then;
    if (p->by_tiles) {
        do_panels_by_tiles(p, panel, last);
        return;
    }
    const int whole = w->precision == 8;
    const int64_t turns = p->turns, share = w->panel_bytes / STEP * LINE;
    for (; panel < last; panel++) {
        const int8_t *next = w->panel + (panel + 1) * w->panel_bytes;
        if (panel + 1 == end && then) next = then->panel + first_of(then, number, p->ranges) * then->panel_bytes;
        for (int64_t turn = 0; turn < turns; turn++) {
            int64_t row = p->rows * turn / turns, past = p->rows * (turn + 1) / turns;
            tiles[past - row][whole][turns == 1](p, panel, row, next + turn % (STEP / LINE) * share);
        }
    }
}

/* Some panels of a range: how many. The first are many, those that follow ever fewer, so that threads end together. */
static int64_t claim(const product *p, range *from, int64_t *panel) {
    int64_t least = FEW_BYTES / (p->weights->panel_bytes * p->turns + 1) + 1, count;
    int64_t next = atomic_load_explicit(&from->next, memory_order_relaxed);
    do {
        int64_t left = from->end - next;
        if (left <= 0) return 0;
        count = left / 4 > least ? left / 4 : least < left ? least : left;
    } while (!atomic_compare_exchange_weak_explicit(&from->next, &next, next + count, memory_order_relaxed, memory_order_relaxed));
    *panel = next;
    return count;
}

static void do_panels(void *given, int64_t part) {
    const product *p = given;
    const int64_t own = thread_number() % p->ranges;
    (void)part;   /* every part does whatever is left */
    for (int64_t far = 0; far < p->ranges; far++) {
        range *from = p->range + (own + far) % p->ranges;
        int64_t panel;
        for (int64_t count; (count = claim(p, from, &panel));) do_some(p, panel, panel + count, from->end, own);
    }
}

static void quantize_rows(void *given, int64_t number) {
    const product *p = given;
    /* where no number of a row is below zero, all levels are for what is above */
    const int32_t levels = p->nonnegative ? UNSIGNED_LEVELS : SIGNED_LEVELS, zero_point = p->nonnegative ? 0 : ZERO_POINT;
    int64_t row = number * p->together, last = row + p->together < p->rows ? row + p->together : p->rows;
    for (; row < last; row++)
        p->steps[row] = quantize_row(p->x + row * p->weights->inputs, p->weights->inputs, levels, zero_point,
                                     p->codes + row * p->code_bytes, p->code_bytes);
}

/* The matrix of the product that comes next; after the last, of the first, as a graph is mostly run again */
static const packed *next_weights(const machine *m, const instruction *i) {
    const instruction *all = m->instructions;
    int64_t place = i - all;
    for (int64_t far = 1; far < MOST_BETWEEN && far < m->instruction_count; far++) {
        const instruction *other = all + (place + far) % m->instruction_count;
        if (other->code == i->code) return other->weights;
    }
    return NULL;
}

/* attributes: inputs, outputs, whether x is never below zero, whether a Relu follows, precision (8 or 32); a second
   output, where somebody wants it: the largest of every panel of outputs [..., panels] */
int op_Linear(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    const packed *w = i->weights;
    if (!w) return wrong(m, "Linear expects packed weights");
    if (x->kind != F32 || x->rank < 1 || x->sizes[x->rank - 1] != w->inputs)
        return wrong(m, "Linear expects as many fp32 numbers in a row as its weights have inputs");
    int64_t sizes[MOST_DIMENSIONS];
    if (!w->inputs) return wrong(m, "Linear expects at least one input");
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[x->rank - 1] = w->outputs;
    int64_t rows = count_of(x) / w->inputs;
    float *y = give(m, i, 0, F32, x->rank, sizes);
    sizes[x->rank - 1] = w->panels;
    float *most = i->outputs > 1 ? give(m, i, 1, F32, x->rank, sizes) : NULL;
    if (!y || m->error) return 1;
    if (!rows) return 0;
    product p = {.weights = w, .x = x->data, .y = y, .most = most, .rows = rows, .nonnegative = i->attribute[2], .relu = i->attribute[3]};
    p.turns = (rows + DOT_ROWS - 1) / DOT_ROWS;
    if (w->precision == 8) {
        /* A line more than needed: rows whose distance is a power of two would stand in each other's way. */
        p.code_bytes = (w->fours * FOUR + LINE - 1) / LINE * LINE + LINE;
        p.by_tiles = suits_tiles(&p);
        int64_t codes = (p.by_tiles ? (rows + AMX_ROWS - 1) / AMX_ROWS * AMX_ROWS : rows) * p.code_bytes;
        p.codes = take_scratch(m, codes + rows * (int64_t)sizeof(float));
        if (!p.codes) return 1;
        p.steps = (float *)(void *)(p.codes + codes);
        p.together = TOGETHER / w->inputs + 1;
        struct pool *helpers = rows * w->inputs < FEW_NUMBERS ? NULL : m->pool;
        share(helpers, quantize_rows, &p, (rows + p.together - 1) / p.together);
    }
    range ranges[MOST_RANGES];
    p.range = ranges;
    p.ranges = threads_of(m->pool) < MOST_RANGES ? threads_of(m->pool) : MOST_RANGES;
    for (int64_t number = 0; number < p.ranges; number++) {
        atomic_init(&ranges[number].next, first_of(w, number, p.ranges));
        ranges[number].end = first_of(w, number + 1, p.ranges);
    }
    p.then = next_weights(m, i);
    if (p.then) foresee(m->pool, p.then->panel, p.then->panels * p.then->panel_bytes);
    share(m->pool, do_panels, &p, p.ranges);
    return 0;
}
