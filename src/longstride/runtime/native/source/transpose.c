/* Transpose: dimensions in another order. Those that stay side by side are moved as one, and where the last stays the
   last, whole runs of it. Otherwise squares are turned, so that neither side is read or written far apart. */

#include "operators.h"

enum { SIDE = 16 }; /* of a square: sixteen numbers of fp32 fill a line of the processor's cache */

typedef struct {
    const char *from;
    char *to;
    int64_t bytes;                 /* of an element, or of a run where the last dimension stays */
    int32_t rank;                  /* dimensions in the order of the result */
    int64_t sizes[MOST_DIMENSIONS], steps[MOST_DIMENSIONS]; /* steps in elements of the input */
    int32_t turned;                /* the dimension of the result along which the input lies side by side */
    int64_t behind;                /* elements of the result from one along `turned` to the next */
} turning;

/* One line (of the last dimension) of the result after the other */
static void turn_lines(void *context, int64_t first, int64_t end) {
    const turning *t = context;
    int32_t last = t->rank - 1;
    int64_t n = t->sizes[last], step = t->steps[last] * t->bytes, bytes = t->bytes;
    for (int64_t j = first; j < end; j++) {
        int64_t rest = j, place = 0;
        for (int32_t d = last - 1; d >= 0; d--) {
            place += rest % t->sizes[d] * t->steps[d];
            rest /= t->sizes[d];
        }
        const char *from = t->from + place * bytes;
        char *to = t->to + j * n * bytes;
        for (int64_t k = 0; k < n; k++) copy_bytes(to + k * bytes, from + k * step, bytes);
    }
}

/* A square [SIDE, SIDE] of 4 bytes each, `from_row` and `to_row` elements from a row to the next. In registers: rows
   that lie eight, four, two and one apart change those of their elements that lie as far apart. */
#if defined(__AVX512F__)
typedef int32_t row __attribute__((vector_size(64)));

static inline row merged(row a, row b, row which) {
    return (row)_mm512_permutex2var_epi32((__m512i)a, (__m512i)which, (__m512i)b);
}

#define EXCHANGE(APART)                                                                               \
    do {                                                                                              \
        row low, high;                                                                                \
        for (int k = 0; k < SIDE; k++) {                                                              \
            low[k] = k & APART ? (k ^ APART) + SIDE : k;                                              \
            high[k] = k & APART ? k + SIDE : k ^ APART;                                               \
        }                                                                                             \
        for (int k = 0; k < SIDE; k++) {                                                              \
            if (k & APART) continue;                                                                  \
            const row a = rows[k], b = rows[k + APART];                                               \
            rows[k] = merged(a, b, low);                                                              \
            rows[k + APART] = merged(a, b, high);                                                     \
        }                                                                                             \
    } while (0)

static void turn_square(uint32_t *restrict to, int64_t to_row, const uint32_t *restrict from, int64_t from_row) {
    row rows[SIDE];
    for (int k = 0; k < SIDE; k++) memcpy(rows + k, from + k * from_row, sizeof(row));
    EXCHANGE(8);
    EXCHANGE(4);
    EXCHANGE(2);
    EXCHANGE(1);
    for (int k = 0; k < SIDE; k++) memcpy(to + k * to_row, rows + k, sizeof(row));
}
#else
static void turn_square(uint32_t *restrict to, int64_t to_row, const uint32_t *restrict from, int64_t from_row) {
    for (int64_t r = 0; r < SIDE; r++)
        for (int64_t c = 0; c < SIDE; c++) to[r * to_row + c] = from[c * from_row + r];
}
#endif

void turn(void *result, int64_t to_row, const void *given, int64_t from_row, int64_t rows, int64_t columns) {
    uint32_t *to = result;
    const uint32_t *from = given;
    int64_t r = 0;
    for (; r + SIDE <= rows; r += SIDE) {
        int64_t c = 0;
        for (; c + SIDE <= columns; c += SIDE) turn_square(to + r * to_row + c, to_row, from + c * from_row + r, from_row);
        for (; c < columns; c++)
            for (int64_t k = r; k < r + SIDE; k++) to[k * to_row + c] = from[c * from_row + k];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) to[r * to_row + c] = from[c * from_row + r];
}

/* The last dimension of the result and the one along which the input lies side by side make a matrix that is turned,
   for each of the others. A part is one such matrix. */
static void turn_matrix(void *context, int64_t number) {
    const turning *t = context;
    int32_t last = t->rank - 1;
    int64_t place = 0, there = 0, behind = t->sizes[last], rest = number;
    for (int32_t d = last - 1; d >= 0; behind *= t->sizes[d], d--) {
        if (d == t->turned) continue;
        int64_t at = rest % t->sizes[d];
        rest /= t->sizes[d];
        place += at * t->steps[d];
        there += at * behind;
    }
    turn((uint32_t *)(void *)t->to + there, t->behind, (const uint32_t *)(const void *)t->from + place, t->steps[last],
        t->sizes[t->turned], t->sizes[last]);
}

/* attributes: the dimension of the input that each of the result is */
int op_Transpose(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int64_t steps[MOST_DIMENSIONS], sizes[MOST_DIMENSIONS], count = 1;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        steps[d] = count;
        count *= x->sizes[d];
    }
    turning t = {.from = x->data, .bytes = bytes_of(x->kind)};
    for (int32_t d = 0; d < x->rank; d++) {
        int32_t own = axis_of(i->attribute[d], x->rank);
        if (own < 0) return wrong(m, "Transpose expects the dimensions of its input");
        int64_t size = sizes[d] = x->sizes[own], step = steps[own];
        if (size == 1) continue;
        if (t.rank && t.steps[t.rank - 1] == step * size) {
            t.sizes[t.rank - 1] *= size;
            t.steps[t.rank - 1] = step;
            continue;
        }
        t.sizes[t.rank] = size;
        t.steps[t.rank++] = step;
    }
    if (t.rank < 2) { /* all stay in their order */
        alias(m, i, 0, x, x->rank, sizes);
        return 0;
    }
    if ((t.to = give(m, i, 0, x->kind, x->rank, sizes)) == NULL) return 1;
    if (count == 0) return 0;
    int32_t last = t.rank - 1;
    for (int32_t d = 0; d < t.rank; d++)
        if (t.steps[d] == 1) t.turned = d;
    if (t.turned != last && t.bytes == 4 && t.sizes[t.turned] >= SIDE && t.sizes[last] >= SIDE) {
        t.behind = product_of(t.sizes, t.turned + 1, t.rank);
        in_parts(m, turn_matrix, &t, count / t.sizes[last] / t.sizes[t.turned], count);
        return 0;
    }
    if (t.turned == last) { /* a run of it is one element, and the dimension before it is the line */
        int64_t run = t.sizes[last];
        t.bytes *= run;
        t.rank = last--;
        for (int32_t d = 0; d < t.rank; d++) t.steps[d] /= run;
    }
    in_rows(m, turn_lines, &t, product_of(t.sizes, 0, last), count);
    return 0;
}
