/* MatMul in fp32, of tensors that are both made on the way: [..., rows, inner] times [..., inner, columns].

   Each number of the result is summed over `inner` from the first to the last, whatever tile it falls into, so that
   neither rows nor columns beside it matter. */

#include "operators.h"

typedef struct {
    const float *left, *right;
    float *to;
    int64_t rows, inner, columns;
    int64_t batches, bands;        /* a part is a band of rows in a batch */
    const int64_t *left_places, *right_places; /* [batches] matrices to go on by, in the order of the result */
    const float *ends;             /* [batches, inner, TILE_WIDTH] the last columns, where they do not fill a tile */
} product;

/* `height` rows: fixed when compiled, so that all sums stay in registers */
#define TILE(HEIGHT)                                                                                              \
    static void tile_##HEIGHT(const float *left, int64_t inner, const float *right, int64_t step, float *to,     \
        int64_t to_step) {                                                                                        \
        lanes sums[HEIGHT][2];                                                                                    \
        for (int r = 0; r < HEIGHT; r++) sums[r][0] = sums[r][1] = all_lanes(0.0f);                               \
        for (int64_t k = 0; k < inner; k++) {                                                                     \
            const lanes first = load_lanes(right + k * step), second = load_lanes(right + k * step + LANES);      \
            for (int r = 0; r < HEIGHT; r++) {                                                                    \
                const lanes x = all_lanes(left[r * inner + k]);                                                   \
                sums[r][0] = fused(x, first, sums[r][0]);                                                         \
                sums[r][1] = fused(x, second, sums[r][1]);                                                        \
            }                                                                                                     \
        }                                                                                                         \
        for (int r = 0; r < HEIGHT; r++) {                                                                        \
            store_lanes(to + r * to_step, sums[r][0]);                                                            \
            store_lanes(to + r * to_step + LANES, sums[r][1]);                                                    \
        }                                                                                                         \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)

typedef void (*tile)(const float *, int64_t, const float *, int64_t, float *, int64_t);
static const tile OF_HEIGHT[TILE_ROWS + 1] = {NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};

void multiply_tile(const float *left, int64_t height, int64_t inner, const float *right, int64_t step, float *to,
    int64_t to_step) {
    OF_HEIGHT[height](left, inner, right, step, to, to_step);
}

static void multiply_part(void *context, int64_t number) {
    const product *p = context;
    int64_t batch = number / p->bands, row = number % p->bands * TILE_ROWS, height = smaller(TILE_ROWS, p->rows - row);
    const float *left = p->left + (p->left_places[batch] * p->rows + row) * p->inner;
    const float *right = p->right + p->right_places[batch] * p->inner * p->columns;
    float *to = p->to + (batch * p->rows + row) * p->columns;
    int64_t c = 0;
    for (; c + TILE_WIDTH <= p->columns; c += TILE_WIDTH)
        multiply_tile(left, height, p->inner, right + c, p->columns, to + c, p->columns);
    if (c == p->columns) return;
    float found[TILE_ROWS * TILE_WIDTH];
    multiply_tile(left, height, p->inner, p->ends + batch * p->inner * TILE_WIDTH, TILE_WIDTH, found, TILE_WIDTH);
    for (int64_t r = 0; r < height; r++)
        memcpy(to + r * p->columns + c, found + r * TILE_WIDTH, (size_t)(p->columns - c) * sizeof(float));
}

/* The last columns of every matrix on the right, with zeros behind them */
static void lay_ends(const product *p, float *ends) {
    int64_t left_over = p->columns % TILE_WIDTH, first = p->columns - left_over;
    for (int64_t b = 0; b < p->batches; b++) {
        const float *right = p->right + p->right_places[b] * p->inner * p->columns + first;
        for (int64_t k = 0; k < p->inner; k++, ends += TILE_WIDTH) {
            memcpy(ends, right + k * p->columns, (size_t)left_over * sizeof(float));
            memset(ends + left_over, 0, (size_t)(TILE_WIDTH - left_over) * sizeof(float));
        }
    }
}

/* Which matrix of each side every matrix of the result is made of */
static void place_batches(const walk *w, int64_t batches, int64_t *left, int64_t *right) {
    for (int64_t b = 0; b < batches; b++) {
        int64_t rest = b;
        left[b] = right[b] = 0;
        for (int32_t d = 0; d < w->rank; d++) {
            left[b] += rest % w->sizes[d] * w->steps[0][d];
            right[b] += rest % w->sizes[d] * w->steps[1][d];
            rest /= w->sizes[d];
        }
    }
}

int op_MatMul(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *y = input_of(m, i, 1);
    if (x->kind != F32 || y->kind != F32 || x->rank < 2 || y->rank < 2) return wrong(m, "MatMul expects matrices of F32");
    product p = {.left = x->data, .right = y->data};
    p.rows = x->sizes[x->rank - 2];
    p.inner = x->sizes[x->rank - 1];
    p.columns = y->sizes[y->rank - 1];
    if (y->sizes[y->rank - 2] != p.inner) return wrong(m, "MatMul expects as many columns left as rows right");
    value left = *x, right = *y;
    left.rank -= 2;
    right.rank -= 2;
    const value *both[2] = {&left, &right};
    int32_t rank;
    int64_t sizes[MOST_DIMENSIONS];
    walk w;
    if (broadcast(2, both, &rank, sizes, &w)) return wrong(m, "MatMul expects batches that fit each other");
    p.batches = product_of(sizes, 0, rank);
    sizes[rank] = p.rows;
    sizes[rank + 1] = p.columns;
    if ((p.to = give(m, i, 0, F32, rank + 2, sizes)) == NULL) return 1;
    if (p.batches * p.rows * p.columns == 0) return 0;
    /* where all rows read one matrix on the right, they are rows of one matrix */
    if (count_of(&right) == 1) {
        p.rows *= p.batches;
        p.batches = 1;
        w = (walk){.rank = 1, .sizes = {1}};
    }
    p.bands = (p.rows + TILE_ROWS - 1) / TILE_ROWS;
    int64_t left_over = p.columns % TILE_WIDTH ? p.batches * p.inner * TILE_WIDTH : 0;
    int64_t *places = take_scratch(m, (left_over + 4 * p.batches + LANES) * (int64_t)sizeof(float) + 64);
    if (places == NULL) return 1;
    place_batches(&w, p.batches, places, places + p.batches);
    p.left_places = places;
    p.right_places = places + p.batches;
    if (left_over) {
        float *ends = (float *)(places + 2 * p.batches);
        lay_ends(&p, ends);
        p.ends = ends;
    }
    in_parts(m, multiply_part, &p, p.batches * p.bands, p.batches * p.rows * p.columns * p.inner / 16);
    return 0;
}
