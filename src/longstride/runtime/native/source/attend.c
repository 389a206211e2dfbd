/* Attend: each query's mixture of values, by how well keys fit it.

   The same functions do every query of every head, one by one, whatever stands beside it. Slots that a mask hides are
   passed over: of those that a query sees, as many as lanes are scored at a time, each by the same tree of additions, and what is
   beyond the last has the weight 0, which exponential() gives exactly. Neither how many slots are looked at, nor where the
   hidden ones lie, nor what lies in them changes a bit: a node of a draft's tree has the numbers of the chain that leads to
   it. */

#include <math.h>
#include <string.h>

#include "lanes.h"
#include "native.h"

#define LEAST_VISIBLE -1e29f   /* of a mask: what is lower hides a slot (GraphBuilder's HIDDEN is -1e30) */

enum {
    MOST_VECTORS = 4,   /* of one head, mixed at a time */
    USUAL = 64,         /* numbers of a head */
    MOST_TOGETHER = 16, /* queries */
    FEW_SCORES = 1024,  /* less work than so many pairs of query and slot is done by one thread */
    FEW_NUMBERS = 3000  /* that are written: fewer are by one thread */
};

typedef struct {
    int64_t row, head, slot;   /* distances, in numbers */
} distances;

typedef struct {
    const float *queries, *keys, *values, *mask;
    float *scores;             /* [rows * heads, together, room] */
    const struct sight *sights;   /* [rows or 1, heads or 1, step or 1] as the mask has them */
    int64_t sight_row, sight_head, sight_step;
    float *mixed;              /* [rows, step, heads * head] */
    int64_t heads, head, step, seen;
    int64_t query_step;        /* from a query to the next */
    int64_t room;              /* slots, up to a multiple of lanes */
    int64_t together;          /* queries of one head taken at a time */
    distances far;             /* of keys, and of values as well */
    int64_t mask_row, mask_head, mask_step;
    float scale;
} attention;

/* What one query sees: so many slots, the first `plain` of which are the first of all, the rest at `places` */
typedef struct sight {
    int64_t count, plain;
    const int32_t *places;   /* of all that are seen; NULL where all are the first */
} sight;

static sight look(const float *mask, int64_t slots, int32_t *places) {
    int64_t plain = 0, last = slots - 1;
    while (plain < slots && mask[plain] > LEAST_VISIBLE) plain++;
    while (last >= plain && !(mask[last] > LEAST_VISIBLE)) last--;
    if (last < 0) return (sight){slots, slots, NULL};   /* nobody reads what comes of it */
    if (last < plain) return (sight){plain, plain, NULL};
    int64_t count = plain;
    for (int64_t slot = 0; slot < plain; slot++) places[slot] = (int32_t)slot;
    for (int64_t slot = plain; slot <= last; slot++) {
        places[count] = (int32_t)slot;
        count += mask[slot] > LEAST_VISIBLE;
    }
    return (sight){count, plain, places};
}

/* --- as many sums as lanes at once ---------------------------------------------------------------------------------- */

/* Two vectors become one with half as many partial sums of each: neighbouring numbers by turns, ... */
ALWAYS_INLINE lanes by_ones(lanes a, lanes b) {
#if LANE_COUNT == 16
    return SHUFFLED(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           SHUFFLED(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
#elif LANE_COUNT == 8
    return SHUFFLED(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + SHUFFLED(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
#else
    return SHUFFLED(a, b, 0, 4, 1, 5) + SHUFFLED(a, b, 2, 6, 3, 7);
#endif
}

/* ... pairs by turns, ... */
ALWAYS_INLINE lanes by_twos(lanes a, lanes b) {
#if LANE_COUNT == 16
    return SHUFFLED(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           SHUFFLED(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
#elif LANE_COUNT == 8
    return SHUFFLED(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLED(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
#else
    return SHUFFLED(a, b, 0, 1, 4, 5) + SHUFFLED(a, b, 2, 3, 6, 7);
#endif
}

/* ... or fours. */
#if LANE_COUNT == 16
ALWAYS_INLINE lanes by_fours(lanes a, lanes b) {
    return SHUFFLED(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           SHUFFLED(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#elif LANE_COUNT == 8
ALWAYS_INLINE lanes by_fours(lanes a, lanes b) {
    return SHUFFLED(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLED(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#endif

/* x[LANES] -> in each lane the sum of one of them, all by the same tree */
ALWAYS_INLINE lanes sums_of(const lanes *x) {
    lanes four[LANES / 4];
UNROLLED
    for (int n = 0; n < LANES / 4; n++) four[n] = by_twos(by_ones(x[4 * n], x[4 * n + 1]), by_ones(x[4 * n + 2], x[4 * n + 3]));
#if LANE_COUNT == 16
    return by_fours(by_fours(four[0], four[1]), by_fours(four[2], four[3]));
#elif LANE_COUNT == 8
    return by_fours(four[0], four[1]);
#else
    return four[0];
#endif
}

/* --- one query of one head ---------------------------------------------------------------------------------------- */

/* A head of the usual size and as many slots as lanes, of which the compiler keeps everything in registers. The same
   operations in the same order as below. */
ALWAYS_INLINE lanes score_usual(const float *query, const float *key, int64_t far) {
    lanes sums[LANES];
UNROLLED
    for (int slot = 0; slot < LANES; slot++) sums[slot] = (lanes){0};
UNROLLED
    for (int v = 0; v < USUAL / LANES; v++) {
        const lanes q = load_lanes(query + v * LANES);
UNROLLED
        for (int slot = 0; slot < LANES; slot++) sums[slot] = fused(q, load_lanes(key + slot * far + v * LANES), sums[slot]);
    }
    return sums_of(sums);
}

/* [LANES] products of a query and the keys of `count` slots at places; 0 for those that are not there */
static __attribute__((noinline)) lanes score_places(const float *query, const float *keys, int64_t head, int64_t far,
                                                    const int32_t *places, int64_t count) {
    lanes sums[LANES];
    for (int slot = 0; slot < LANES; slot++) sums[slot] = (lanes){0};
    for (int slot = 0; slot < count; slot++) {
        const float *key = keys + places[slot] * far;
        int64_t place = 0;
        for (; place + LANES <= head; place += LANES)
            sums[slot] = fused(load_lanes(query + place), load_lanes(key + place), sums[slot]);
        if (place < head)
            sums[slot] = fused(load_some(query + place, head - place, 0.0f), load_some(key + place, head - place, 0.0f), sums[slot]);
    }
    return sums_of(sums);
}

/* [LANES] products of a query and `count` slots' keys; 0 for those that are not there */
static __attribute__((noinline)) lanes score_any(const float *query, const float *key, int64_t head, int64_t far, int64_t count) {
    lanes sums[LANES];
    for (int slot = 0; slot < LANES; slot++) sums[slot] = (lanes){0};
    int64_t place = 0;
    for (; place + LANES <= head; place += LANES) {
        lanes q = load_lanes(query + place);
        for (int slot = 0; slot < count; slot++) sums[slot] = fused(q, load_lanes(key + slot * far + place), sums[slot]);
    }
    if (place < head) {
        lanes q = load_some(query + place, head - place, 0.0f);
        for (int slot = 0; slot < count; slot++)
            sums[slot] = fused(q, load_some(key + slot * far + place, head - place, 0.0f), sums[slot]);
    }
    return sums_of(sums);
}

/* As many scores as lanes from the `slot`-th on that is seen; beyond the last they are so low that they weigh nothing */
static __attribute__((noinline)) void score(const attention *a, const float *query, const float *keys, const float *mask,
                                            float *scores, int64_t slot, sight seen) {
    const int64_t count = seen.count - slot < LANES ? seen.count - slot : LANES, far = a->far.slot;
    const float *key = keys + slot * far;
    lanes found, hidden;
    if (slot + count > seen.plain) {
        float masks[LANES];
        for (int n = 0; n < LANES; n++) masks[n] = n < count ? mask[seen.places[slot + n]] : -INFINITY;
        hidden = load_lanes(masks);
        found = score_places(query, keys, a->head, far, seen.places + slot, count);
    } else {
        const int usual = a->head == USUAL && count == LANES;
        hidden = count == LANES ? load_lanes(mask + slot) : load_some(mask + slot, count, -INFINITY);
        found = usual ? score_usual(query, key, far) : score_any(query, key, a->head, far, count);
    }
    store_lanes(scores + slot, found * all_lanes(a->scale) + hidden);
}

/* scores -> weights that are not yet divided by their sum; gives what they are to be multiplied by. Lane by lane, the
   sum goes over slots in order. */
static __attribute__((noinline)) float weigh(float *scores, int64_t count) {
    const int64_t room = (count + LANES - 1) / LANES * LANES;
    lanes largest = load_lanes(scores), sum = {0};
    for (int64_t slot = LANES; slot < room; slot += LANES) largest = greater_lanes(load_lanes(scores + slot), largest);
    largest = all_lanes(greatest_lane(largest));
    for (int64_t slot = 0; slot < room; slot += LANES) {
        lanes weights = exponential(load_lanes(scores + slot) - largest);
        store_lanes(scores + slot, weights);
        sum += weights;
    }
    /* The slot behind the last may not be there. Where scores are no numbers, its weight would be none either. */
    if (count < room) scores[count] = 0.0f;
    return 1.0f / sum_of_lanes(sum);
}

ALWAYS_INLINE void add_slot(const int vectors, float weight, const float *value, lanes *sums, int64_t count) {
    if (weight == 0.0f) return;
    const lanes factor = all_lanes(weight);
UNROLLED
    for (int v = 0; v < vectors; v++)
        sums[v] = fused(factor, count < LANES ? load_some(value, count, 0.0f) : load_lanes(value + v * LANES), sums[v]);
}

/* `vectors` times as many numbers of the mixture as lanes, or `count` where these are fewer. Slots with even and odd
   numbers have sums of their own, so that one addition need not wait for the other. Whatever lies in a slot without
   weight, it is not looked at. */
ALWAYS_INLINE void mix_vectors(const int vectors, const attention *a, const float *weights, float factor,
                               const float *values, float *mixed, int64_t count, sight seen) {
    const int64_t far = a->far.slot;
    lanes sums[2][MOST_VECTORS];
UNROLLED
    for (int v = 0; v < vectors; v++) sums[0][v] = sums[1][v] = (lanes){0};
    const int64_t plain = seen.places ? seen.plain / 2 * 2 : seen.count;
    for (int64_t slot = 0; slot < plain; slot += 2) {   /* an odd one beyond the last has no weight */
UNROLLED
        for (int odd = 0; odd < 2; odd++)
            add_slot(vectors, weights[slot + odd], values + (slot + odd) * far, sums[odd], count);
    }
    for (int64_t slot = plain; slot < seen.count; slot += 2) {
UNROLLED
        for (int odd = 0; odd < 2; odd++)
            add_slot(vectors, weights[slot + odd], values + seen.places[slot + odd] * far, sums[odd], count);
    }
UNROLLED
    for (int v = 0; v < vectors; v++) {
        lanes found = (sums[0][v] + sums[1][v]) * all_lanes(factor);
        if (count < LANES) store_some(mixed, found, count);
        else store_lanes(mixed + v * LANES, found);
    }
}

static __attribute__((noinline)) void mix(const attention *a, const float *weights, float factor, const float *values,
                                          float *mixed, sight seen) {
    int64_t place = 0;
    for (; place + MOST_VECTORS * LANES <= a->head; place += MOST_VECTORS * LANES)
        mix_vectors(MOST_VECTORS, a, weights, factor, values + place, mixed + place, LANES, seen);
    for (; place + LANES <= a->head; place += LANES)
        mix_vectors(1, a, weights, factor, values + place, mixed + place, LANES, seen);
    if (place < a->head) mix_vectors(1, a, weights, factor, values + place, mixed + place, a->head - place, seen);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* All queries of one head in one row, some at a time: first what all of them score, then what all of them weigh, then all
   mixtures. Each query's work is a chain in which every step waits for the one before; side by side they need not. */
static void attend_head(void *given, int64_t number) {
    const attention *a = given;
    const int64_t row = number / a->heads, h = number % a->heads, width = a->heads * a->head;
    const float *keys = a->keys + row * a->far.row + h * a->far.head;
    const float *values = a->values + row * a->far.row + h * a->far.head;
    float *scores = a->scores + number * a->together * a->room, factors[MOST_TOGETHER];
    sight seen[MOST_TOGETHER];
    for (int64_t first = 0; first < a->step; first += a->together) {
        const int64_t count = a->step - first < a->together ? a->step - first : a->together;
        const int64_t here = (row * a->step + first) * width + h * a->head;
        const float *queries = a->queries + (row * a->step + first) * a->query_step + h * a->head;
        const float *mask = a->mask + row * a->mask_row + h * a->mask_head + first * a->mask_step;
        const sight *sights = a->sights + row * a->sight_row + h * a->sight_head + first * a->sight_step;
        for (int64_t q = 0; q < count; q++) seen[q] = sights[q * a->sight_step];
        for (int64_t slot = 0; slot < a->seen; slot += LANES)
            for (int64_t q = 0; q < count; q++)
                if (slot < seen[q].count)
                    score(a, queries + q * a->query_step, keys, mask + q * a->mask_step, scores + q * a->room, slot, seen[q]);
        for (int64_t q = 0; q < count; q++) factors[q] = weigh(scores + q * a->room, seen[q].count);
        for (int64_t q = 0; q < count; q++)
            mix(a, scores + q * a->room, factors[q], values, a->mixed + here + q * width, seen[q]);
    }
}

static int fits(const value *v, int64_t rows, int64_t heads, int64_t head) {
    if (v->kind != F32 || v->sizes[0] != rows) return 0;
    if (v->rank == 4) return v->sizes[1] == heads && v->sizes[3] == head;
    return v->rank == 3 && v->sizes[2] == heads * head;
}

/* inputs: queries [rows, step, width]; keys and values, both [rows, heads, slots, head] or both [rows, slots, width]; mask
   [rows or 1, heads or 1, step or 1, seen or more]; how many slots are `seen` (I64 [1]; left out: all). attributes: heads;
   part and parts, where queries are one of so many equal parts of wider rows (parts 0: they are all of it) */
int op_Attend(machine *m, const instruction *i) {
    const value *queries = input_of(m, i, 0), *keys = input_of(m, i, 1), *values = input_of(m, i, 2);
    const value *mask = input_of(m, i, 3), *seen = input_of(m, i, 4);
    const int64_t heads = i->attribute[0], parts = i->attribute[2] ? i->attribute[2] : 1;
    if (queries->kind != F32 || queries->rank != 3 || heads < 1 || queries->sizes[2] % (heads * parts))
        return wrong(m, "Attend expects fp32 queries [rows, step, width], the width a multiple of the heads");
    const int64_t rows = queries->sizes[0], step = queries->sizes[1], head = queries->sizes[2] / parts / heads;
    if (!fits(keys, rows, heads, head) || !fits(values, rows, heads, head) || keys->rank != values->rank)
        return wrong(m, "Attend expects keys and values for as many rows, heads and numbers as queries have");
    const int apart = keys->rank == 4;
    const int64_t slots = keys->sizes[apart ? 2 : 1];
    const int64_t width = heads * head, sizes[3] = {rows, step, width};
    attention a = {.queries = (const float *)queries->data + i->attribute[1] * width, .query_step = queries->sizes[2],
                   .keys = keys->data, .values = values->data, .heads = heads, .head = head, .step = step,
                   .seen = slots, .scale = 1.0f / sqrtf((float)head)};
    if (seen) {
        if (seen->kind != I64 || count_of(seen) != 1) return wrong(m, "Attend expects one number of slots");
        a.seen = *(const int64_t *)seen->data;
    }
    if (values->sizes[apart ? 2 : 1] != slots || a.seen > slots || a.seen < 1)
        return wrong(m, "Attend expects at least one slot, and not more than there are keys and values");
    if (!mask || mask->kind != F32 || mask->rank != 4 || mask->sizes[3] < a.seen ||
        (mask->sizes[1] != heads && mask->sizes[1] != 1) || (mask->sizes[0] != rows && mask->sizes[0] != 1) || (mask->sizes[2] != step && mask->sizes[2] != 1))
        return wrong(m, "Attend expects an fp32 mask [rows or 1, heads or 1, step or 1, slots]");
    a.mask = mask->data;
    a.mask_step = mask->sizes[2] == 1 ? 0 : mask->sizes[3];
    a.mask_head = mask->sizes[1] == 1 ? 0 : mask->sizes[2] * mask->sizes[3];
    a.mask_row = mask->sizes[0] == 1 ? 0 : mask->sizes[1] * mask->sizes[2] * mask->sizes[3];
    if (apart) a.far = (distances){.row = heads * slots * head, .head = slots * head, .slot = head};
    else a.far = (distances){.row = slots * heads * head, .head = head, .slot = heads * head};
    a.mixed = give(m, i, 0, F32, 3, sizes);
    a.room = (a.seen + LANES - 1) / LANES * LANES;
    a.together = step < MOST_TOGETHER ? step : MOST_TOGETHER;
    /* What queries see is looked up once for all heads, where that is the same for them. */
    const int64_t numbers = rows * heads * a.together * a.room, lines = mask->sizes[0] * mask->sizes[1] * mask->sizes[2];
    const int64_t each = a.room + 1;   /* the slot behind the last may be asked for, and has no weight */
    sight *sights = take_scratch(m, lines * (int64_t)sizeof(sight) + (numbers + lines * each) * (int64_t)sizeof(float));
    if (!a.mixed || !sights) return 1;
    a.scores = (float *)(void *)(sights + lines);
    int32_t *places = (int32_t *)(void *)(a.scores + numbers);
    memset(places, 0, (size_t)(lines * each) * sizeof *places);
    for (int64_t line = 0; line < lines; line++) sights[line] = look(a.mask + line * mask->sizes[3], a.seen, places + line * each);
    a.sights = sights;
    a.sight_step = mask->sizes[2] > 1;
    a.sight_head = mask->sizes[1] == 1 ? 0 : mask->sizes[2];
    a.sight_row = mask->sizes[0] == 1 ? 0 : mask->sizes[1] * mask->sizes[2];
    share(rows * heads * step * a.seen < FEW_SCORES ? NULL : m->pool, attend_head, &a, rows * heads);
    return 0;
}

/* --- new slots into a cache, in its own memory, each row's from its own place on ------------------------------------- */

typedef struct {
    float *state;
    const float *new;
    const int64_t *from;       /* [rows] */
    int64_t rows, heads, slots, head, step, parts, apart;
    int64_t together;          /* heads of all rows that are one part */
} writing;

static void write_heads(void *given, int64_t number) {
    const writing *w = given;
    const int64_t heads = w->heads, head = w->head, step = w->step, all = w->rows * heads;
    int64_t one = number * w->together, last = one + w->together < all ? one + w->together : all;
    for (; one < last; one++) {
        for (int64_t line = 0; one + 1 < last && line < step * head; line += LANES)
            __builtin_prefetch(w->state + ((one + 1) * w->slots + w->from[(one + 1) / heads]) * head + line, 1, 2);
        const int64_t row = one / heads, h = one % heads;
        float *to = w->state + (one * w->slots + w->from[row]) * head;
        if (w->apart) {
            memcpy(to, w->new + one * step * head, (size_t)(step * head) * sizeof(float));
            continue;
        }
        const float *new = w->new + (row * step * w->parts * heads + h) * head;
        for (int64_t slot = 0; slot < step; slot++)
            memcpy(to + slot * head, new + slot * w->parts * heads * head, (size_t)head * sizeof(float));
    }
}

/* inputs: state [rows, heads, slots, head]; new, heads side by side [rows, step, width] or apart [rows, heads, step, head];
   start I64 [rows]. attributes: heads; part and parts, where what is new, heads side by side, is one of so many equal parts
   of wider rows (parts 0: it is all of it) */
int op_Write(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *new = input_of(m, i, 1), *start = input_of(m, i, 2);
    if (state->kind != F32 || new->kind != F32 || state->rank != 4 || start->kind != I64)
        return wrong(m, "Write expects fp32 slots [rows, heads, slots, head] and places in int64");
    const int64_t rows = state->sizes[0], heads = state->sizes[1], slots = state->sizes[2], head = state->sizes[3];
    const int apart = new->rank == 4;
    const int64_t step = new->sizes[apart ? 2 : 1], parts = i->attribute[2] ? i->attribute[2] : 1;
    if ((!apart && new->rank != 3) || new->sizes[0] != rows || count_of(new) != parts * rows * heads * step * head ||
        (apart && new->sizes[1] != heads) || count_of(start) != rows)
        return wrong(m, "Write expects new slots, and places, for as many rows and heads as the cache has");
    writing w = {.state = state->data, .new = (const float *)new->data + i->attribute[1] * heads * head, .from = start->data,
                 .rows = rows, .heads = heads, .slots = slots, .head = head, .step = step, .parts = parts, .apart = apart};
    for (int64_t row = 0; row < rows; row++)
        if (w.from[row] < 0 || w.from[row] > slots - step) return wrong(m, "Write expects room for all new slots in the cache");
    const int64_t threads = rows * step * heads * head < FEW_NUMBERS ? 1 : threads_of(m->pool);
    w.together = (rows * heads + threads - 1) / threads;
    if (w.together) share(threads > 1 ? m->pool : NULL, write_heads, &w, (rows * heads + w.together - 1) / w.together);
    alias(m, i, 0, state, state->rank, state->sizes);
    return 0;
}
