/* A link's steps: for every slot and every candidate before it, which candidate of the slot follows best. Bit for bit what
   plain operators give (Gather, Mul, Transpose, MatMul, Add, ArgMax; see GraphBuilder.link_steps), but all that belongs to a slot
   stays near the processor: a slot is a part. */

#include "operators.h"

typedef struct {
    const float *before, *after; /* tables [vocabulary, rank] */
    const value *earlier, *ids;  /* [rows, slots, classes] */
    const float *factors;        /* [rows, slots, rank] */
    const float *values;         /* [rows, slots, classes] */
    int64_t *to;                 /* [rows, slots, classes] */
    int64_t classes, rank, wide; /* wide: classes, filled up to whole tiles */
    float *scratch;              /* of each slot: [classes, rank], [classes, rank], [rank, wide], [TILE_ROWS, wide] */
    int64_t each;                /* numbers of one slot's scratch */
} chain;

static inline void fetch(const float *row, int64_t rank) {
    for (int64_t k = 0; k < rank; k += LANES) __builtin_prefetch(row + k);
}

static inline void multiply(float *restrict to, const float *restrict x, const float *restrict y, int64_t n) {
    for (int64_t k = 0; k < n; k++) to[k] = x[k] * y[k];
}

static void chain_part(void *context, int64_t slot) {
    const chain *c = context;
    const int64_t n = c->classes, rank = c->rank, wide = c->wide;
    float *left = c->scratch + slot * c->each, *gathered = left + n * rank, *right = gathered + n * rank;
    float *scores = right + rank * wide;
    const float *factors = c->factors + slot * rank, *values = c->values + slot * n;
    for (int64_t j = 0; j < n; j++) { /* all rows are asked for before the first is waited for */
        fetch(c->before + integer_of(c->earlier, slot * n + j) * rank, rank);
        fetch(c->after + integer_of(c->ids, slot * n + j) * rank, rank);
    }
    for (int64_t j = 0; j < n; j++) {
        multiply(left + j * rank, c->before + integer_of(c->earlier, slot * n + j) * rank, factors, rank);
        memcpy(gathered + j * rank, c->after + integer_of(c->ids, slot * n + j) * rank, (size_t)rank * sizeof(float));
    }
    turn(right, wide, gathered, rank, rank, n);
    for (int64_t k = 0; n < wide && k < rank; k++) memset(right + k * wide + n, 0, (size_t)(wide - n) * sizeof(float));
    for (int64_t first = 0; first < n; first += TILE_ROWS) {
        int64_t height = smaller(TILE_ROWS, n - first);
        for (int64_t column = 0; column < wide; column += TILE_WIDTH)
            multiply_tile(left + first * rank, height, rank, right + column, wide, scores + column, wide);
        for (int64_t r = 0; r < height; r++) {
            float best = greatest_sum(scores + r * wide, values, n);
            c->to[slot * n + first + r] = first_equal_sum(scores + r * wide, values, n, best);
        }
    }
}

/* inputs: before [vocabulary, rank], earlier ids [rows, slots, classes], factors [rows, slots, rank], after [vocabulary,
   rank], ids [rows, slots, classes], their values [rows, slots, classes] -> which of `ids` [rows, slots, classes] */
int op_Chain(machine *m, const instruction *i) {
    const value *before = input_of(m, i, 0), *earlier = input_of(m, i, 1), *factors = input_of(m, i, 2);
    const value *after = input_of(m, i, 3), *ids = input_of(m, i, 4), *values = input_of(m, i, 5);
    int fit = before->rank == 2 && after->rank == 2 && before->kind == F32 && after->kind == F32 && factors->kind == F32
        && values->kind == F32 && ids->kind == I64 && earlier->kind == I64 && ids->rank == 3;
    if (!fit || count_of(earlier) != count_of(ids) || count_of(values) != count_of(ids))
        return wrong(m, "Chain expects two tables, and as many candidates before as after");
    int64_t slots = ids->sizes[0] * ids->sizes[1];
    chain c = {.before = before->data, .after = after->data, .earlier = earlier, .ids = ids, .factors = factors->data,
        .values = values->data, .classes = ids->sizes[2], .rank = before->sizes[1]};
    if (after->sizes[1] != c.rank || count_of(factors) != slots * c.rank || c.classes == 0)
        return wrong(m, "Chain expects tables and factors of the same rank");
    if (!ids_within(earlier, before->sizes[0]) || !ids_within(ids, after->sizes[0]))
        return wrong(m, "an id lies outside of the vocabulary");
    if ((c.to = give(m, i, 0, I64, 3, ids->sizes)) == NULL) return 1;
    c.wide = (c.classes + TILE_WIDTH - 1) / TILE_WIDTH * TILE_WIDTH;
    c.each = 2 * c.classes * c.rank + c.rank * c.wide + TILE_ROWS * c.wide;
    c.each = (c.each + LANES - 1) / LANES * LANES;
    if ((c.scratch = take_scratch(m, slots * c.each * (int64_t)sizeof(float))) == NULL) return slots != 0;
    in_parts(m, chain_part, &c, slots, slots * c.classes * c.classes * c.rank / 16);
    return 0;
}
