/* The likeliest tree of continuations under a budget of nodes, best first: a queue of next children, one for every node
   that was taken. What it takes is what longstride/ops/draft_tree.py takes, in another order. A row is a part. */

#include <math.h>

#include "operators.h"

enum { MOST_NODES = 1024 };

typedef struct {
    const float *values;            /* [rows, depth, n] */
    const value *ids, *newest;      /* [rows, depth, n], [rows] */
    const float *before, *after;    /* tables [vocabulary, rank]; NULL: slots do not depend on each other */
    const float *factors;           /* [rows, depth, rank] */
    int64_t depth, n, rank, nodes;
    int64_t *tokens, *parents;      /* [rows, nodes] */
    float *scratch;                 /* of each row: children's logarithms [nodes + 1, n], one line [rank] */
    int64_t each;
} growing;

/* The product of two lines of numbers, in as many partial sums as lanes */
static inline float product_of_lines(const float *x, const float *y, int64_t n) {
    lanes sum = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) sum = fused(load_lanes(x + k), load_lanes(y + k), sum);
    if (k < n) sum = fused(load_some(x + k, n - k, 0.0f), load_some(y + k, n - k, 0.0f), sum);
    return sum_of_lanes(sum);
}

/* The logarithm of the sum of what numbers are the logarithms of */
static float logarithm_of_sum(const float *x, int64_t n) {
    const float most = greatest(x, n);
    lanes sum = {0};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += exponential(load_lanes(x + j) - all_lanes(most));
    if (j < n) sum += exponential(load_some(x + j, n - j, -INFINITY) - all_lanes(most));
    return most + logf(sum_of_lanes(sum));
}

/* Logarithms of the shares of a slot's candidates after a token, plus that of the path so far */
static void expand(const growing *g, int64_t row, int64_t slot, int64_t token, float path, float *line, float *to) {
    const int64_t at = row * g->depth + slot, n = g->n, rank = g->rank;
    const float *values = g->values + at * n;
    if (g->before) {
        const float *before = g->before + token * rank, *factors = g->factors + at * rank;
        for (int64_t k = 0; k < rank; k++) line[k] = before[k] * factors[k];
        for (int64_t j = 0; j < n; j++)
            to[j] = values[j] + product_of_lines(line, g->after + integer_of(g->ids, at * n + j) * rank, rank);
    } else {
        memcpy(to, values, (size_t)n * sizeof(float));
    }
    const float less = logarithm_of_sum(to, n) - path;
    for (int64_t j = 0; j < n; j++) to[j] -= less;
}

/* Rows of the table after tokens, of all candidates, are asked for before the first is waited for. */
static void fetch_candidates(const growing *g, int64_t row) {
    for (int64_t j = 0; g->after && j < g->depth * g->n; j++) {
        const float *after = g->after + integer_of(g->ids, row * g->depth * g->n + j) * g->rank;
        for (int64_t k = 0; k < g->rank; k += LANES) __builtin_prefetch(after + k, 0, 2);
    }
}

static void grow_part(void *context, int64_t row) {
    const growing *g = context;
    const int64_t n = g->n;
    fetch_candidates(g, row);
    float *children = g->scratch + row * g->each, *line = children + (g->nodes + 1) * n;
    int64_t *tokens = g->tokens + row * g->nodes, *parents = g->parents + row * g->nodes;
    float best[MOST_NODES + 1];     /* of every node, slot 0 among them, the logarithm of its next child */
    int64_t which[MOST_NODES + 1];  /* and that child's place among the candidates */
    int64_t deep[MOST_NODES + 1];   /* how many tokens lead to it */
    deep[0] = 0;
    expand(g, row, 0, integer_of(g->newest, row), 0, line, children);
    best[0] = greatest(children, n);
    which[0] = first_equal(children, n, best[0]);
    for (int64_t made = 0; made < g->nodes; made++) {
        float most = greatest(best, made + 1);
        if (!(most > -INFINITY)) { /* nothing is left */
            for (int64_t j = made; j < g->nodes; j++) tokens[j] = parents[j] = 0;
            return;
        }
        int64_t parent = first_equal(best, made + 1, most), slot = deep[parent], me = made + 1;
        float *family = children + parent * n, *own = children + me * n;
        tokens[made] = integer_of(g->ids, (row * g->depth + slot) * n + which[parent]);
        parents[made] = parent;
        deep[me] = slot + 1;
        family[which[parent]] = -INFINITY;
        best[parent] = greatest(family, n);
        which[parent] = first_equal(family, n, best[parent]);
        best[me] = -INFINITY;
        if (slot + 1 < g->depth) {
            expand(g, row, slot + 1, tokens[made], most, line, own);
            best[me] = greatest(own, n);
            which[me] = first_equal(own, n, best[me]);
        }
    }
}

/* inputs: values and ids [rows, depth, n], newest [rows]; before [vocabulary, rank], factors [rows, depth, rank], after
   [vocabulary, rank], or none of these -> tokens and parents [rows, nodes] */
int op_Tree(machine *m, const instruction *i) {
    const value *values = input_of(m, i, 0), *ids = input_of(m, i, 1), *newest = input_of(m, i, 2);
    int fit = values->kind == F32 && ids->kind == I64 && newest->kind == I64 && ids->rank == 3 && values->rank == 3;
    if (!fit || count_of(values) != count_of(ids) || count_of(newest) != ids->sizes[0] || !ids->sizes[1] || !ids->sizes[2])
        return wrong(m, "Tree expects candidates of one slot at least, and a token before them");
    growing g = {.values = values->data, .ids = ids, .newest = newest, .depth = ids->sizes[1], .n = ids->sizes[2],
        .nodes = i->attribute[0]};
    if (g.nodes < 1 || g.nodes > MOST_NODES) return wrong(m, "Tree expects 1 to 1024 nodes");
    if (i->inputs > 3) {
        const value *before = input_of(m, i, 3), *factors = input_of(m, i, 4), *after = input_of(m, i, 5);
        int tables = before->kind == F32 && after->kind == F32 && factors->kind == F32 && before->rank == 2
            && after->rank == 2 && before->sizes[1] == after->sizes[1];
        if (!tables || count_of(factors) != ids->sizes[0] * ids->sizes[1] * before->sizes[1])
            return wrong(m, "Tree expects tables and factors of the same rank");
        if (!ids_within(ids, before->sizes[0]) || !ids_within(ids, after->sizes[0]) || !ids_within(newest, before->sizes[0]))
            return wrong(m, "an id lies outside of the vocabulary");
        g.before = before->data;
        g.after = after->data;
        g.factors = factors->data;
        g.rank = before->sizes[1];
    }
    const int64_t rows = ids->sizes[0], sizes[2] = {rows, g.nodes};
    if ((g.tokens = give(m, i, 0, I64, 2, sizes)) == NULL || (g.parents = give(m, i, 1, I64, 2, sizes)) == NULL) return 1;
    g.each = ((g.nodes + 1) * g.n + g.rank + LANES - 1) / LANES * LANES;
    if ((g.scratch = take_scratch(m, rows * g.each * (int64_t)sizeof(float))) == NULL) return rows != 0;
    in_parts(m, grow_part, &g, rows, rows * g.nodes * g.n * (g.rank + 8) / 16);
    return 0;
}
