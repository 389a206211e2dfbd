/* Operators that make one number of many: the largest, where it stands, a sum. A tensor is [outer, n, inner] to them,
   and the n numbers of one (outer, inner) are gone through in an order that depends on n alone. */

#include "lanes.h"
#include "native.h"
#include "searching.h"
#include "sharing.h"

typedef struct {
    int64_t outer, n, inner;
} extent;

static extent around(const value *x, int32_t first, int32_t end) {
    return (extent){product_of(x->sizes, 0, first), product_of(x->sizes, first, end), product_of(x->sizes, end, x->rank)};
}

/* Dimensions first ... end - 1 as 1, or gone -> rank */
static int32_t reduced(const value *x, int32_t first, int32_t end, int64_t keep, int64_t *sizes) {
    int32_t rank = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int goes = d >= first && d < end;
        if (!goes || keep) sizes[rank++] = goes ? 1 : x->sizes[d];
    }
    return rank;
}

/* --- the largest of a row -------------------------------------------------------------------------------------------- */

/* Of one column each, sixteen side by side, in `wide` vectors: x [n, inner]; largest and where, either may be NULL */
static inline __attribute__((always_inline)) void down_vectors(
    const float *x, int64_t n, int64_t inner, float *largest, int64_t *where, int wide) {
    lanes best[4];
    whole_lanes at[4] = {{0}, {0}, {0}, {0}};
    for (int v = 0; v < wide; v++) best[v] = load_lanes(x + v * LANES);
    for (int64_t j = 1; j < n; j++) {
        const whole_lanes number = (whole_lanes){0} + (int32_t)j;
        x += inner;
        for (int v = 0; v < wide; v++) {
            const lanes here = load_lanes(x + v * LANES);
            const whole_lanes more = here > best[v];
            best[v] = choose(more, here, best[v]);
            if (where) at[v] = (more & number) | (~more & at[v]);
        }
    }
    for (int v = 0; v < wide; v++) {
        if (largest) store_lanes(largest + v * LANES, best[v]);
        for (int k = 0; where && k < LANES; k++) where[v * LANES + k] = at[v][k];
    }
}

static void down_columns(const float *x, int64_t n, int64_t inner, float *largest, int64_t *where) {
    int64_t c = 0;
    for (; c + 4 * LANES <= inner; c += 4 * LANES) /* a row's numbers are read side by side, which memory likes best */
        down_vectors(x + c, n, inner, largest ? largest + c : NULL, where ? where + c : NULL, 4);
    for (; c + LANES <= inner; c += LANES)
        down_vectors(x + c, n, inner, largest ? largest + c : NULL, where ? where + c : NULL, 1);
    for (; c < inner; c++) {
        float best = x[c];
        int64_t at = 0;
        for (int64_t j = 1; j < n; j++)
            if (x[j * inner + c] > best) best = x[(at = j) * inner + c];
        if (largest) largest[c] = best;
        if (where) where[c] = at;
    }
}

typedef struct {
    const float *x;
    extent e;
    int64_t together; /* outer ones of a part */
    float *largest;
    int64_t *where;
} seeking;

static void seek_part(void *context, int64_t number) {
    const seeking *s = context;
    const extent *e = &s->e;
    int64_t end = smaller((number + 1) * s->together, e->outer);
    for (int64_t o = number * s->together; o < end; o++) {
        const float *x = s->x + o * e->n * e->inner;
        if (e->inner == 1) {
            float found = greatest(x, e->n);
            if (s->largest) s->largest[o] = found;
            if (s->where) s->where[o] = first_equal(x, e->n, found);
        } else {
            down_columns(x, e->n, e->inner, s->largest ? s->largest + o * e->inner : NULL,
                s->where ? s->where + o * e->inner : NULL);
        }
    }
}

static void seek(machine *m, const value *x, extent e, float *largest, int64_t *where) {
    seeking s = {.x = x->data, .e = e, .largest = largest, .where = where};
    int64_t each = e.n * e.inner, numbers = e.outer * each;
    s.together = numbers < WORTH_SHARING ? e.outer : larger(1, NUMBERS_OF_A_PART / each);
    in_parts(m, seek_part, &s, (e.outer + s.together - 1) / s.together, numbers);
}

/* Integers: few, one after the other */
#define SEEK_INTEGERS(NAME, TYPE)                                                                       \
    static void NAME(const value *v, extent e, TYPE *largest, int64_t *where) {                         \
        for (int64_t o = 0; o < e.outer; o++)                                                           \
            for (int64_t c = 0; c < e.inner; c++) {                                                     \
                const TYPE *x = (const TYPE *)v->data + o * e.n * e.inner + c;                          \
                int64_t at = 0;                                                                         \
                for (int64_t j = 1; j < e.n; j++)                                                       \
                    if (x[j * e.inner] > x[at * e.inner]) at = j;                                       \
                if (largest) largest[o * e.inner + c] = x[at * e.inner];                                \
                if (where) where[o * e.inner + c] = at;                                                 \
            }                                                                                           \
    }

SEEK_INTEGERS(seek_i64, int64_t)
SEEK_INTEGERS(seek_i32, int32_t)
SEEK_INTEGERS(seek_bool, uint8_t)

static void seek_any(machine *m, const value *x, extent e, void *largest, int64_t *where) {
    if (e.outer * e.inner == 0) return;
    if (x->kind == F32)
        seek(m, x, e, largest, where);
    else if (x->kind == I64)
        seek_i64(x, e, largest, where);
    else if (x->kind == I32)
        seek_i32(x, e, largest, where);
    else
        seek_bool(x, e, largest, where);
}

/* attributes: axis, keepdims; the first of equals */
int op_ArgMax(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (axis < 0) return wrong(m, "ArgMax expects an axis of its input");
    extent e = around(x, axis, axis + 1);
    if (e.n == 0) return wrong(m, "ArgMax expects at least one number");
    int64_t sizes[MOST_DIMENSIONS];
    int64_t *where = give(m, i, 0, I64, reduced(x, axis, axis + 1, i->attribute[1], sizes), sizes);
    if (where == NULL) return 1;
    seek_any(m, x, e, NULL, where);
    return 0;
}

/* The axes of input 1 (left out: all), which have to be neighbours; 0 if all is well */
static int axes_of(machine *m, const instruction *i, int32_t *first, int32_t *end) {
    const value *x = input_of(m, i, 0), *axes = i->inputs > 1 ? input_of(m, i, 1) : NULL;
    int goes[MOST_DIMENSIONS] = {0};
    int32_t count = 0;
    *first = 0;
    *end = x->rank;
    if (axes == NULL || count_of(axes) == 0) return 0;
    *first = x->rank;
    *end = 0;
    for (int64_t j = 0, all = count_of(axes); j < all; j++) {
        int32_t axis = axis_of(integer_of(axes, j), x->rank);
        if (axis < 0) return wrong(m, "axes of the input are expected");
        count += !goes[axis];
        goes[axis] = 1;
        if (axis < *first) *first = axis;
        if (axis + 1 > *end) *end = axis + 1;
    }
    return count == *end - *first ? 0 : wrong(m, "axes that are neighbours are expected");
}

/* attribute: keepdims; input 1: axes */
int op_ReduceMax(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t first, end;
    if (axes_of(m, i, &first, &end)) return 1;
    extent e = around(x, first, end);
    if (e.n == 0) return wrong(m, "ReduceMax expects at least one number");
    int64_t sizes[MOST_DIMENSIONS];
    void *largest = give(m, i, 0, x->kind, reduced(x, first, end, i->attribute[0], sizes), sizes);
    if (largest == NULL) return 1;
    seek_any(m, x, e, largest, NULL);
    return 0;
}

/* attributes: axis, keepdims; outputs: what ReduceMax gives and what ArgMax gives, of numbers that are read once */
int op_Largest(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (axis < 0) return wrong(m, "Largest expects an axis of its input");
    extent e = around(x, axis, axis + 1);
    if (e.n == 0) return wrong(m, "Largest expects at least one number");
    int64_t sizes[MOST_DIMENSIONS];
    int32_t rank = reduced(x, axis, axis + 1, i->attribute[1], sizes);
    void *largest = give(m, i, 0, x->kind, rank, sizes);
    int64_t *where = give(m, i, 1, I64, rank, sizes);
    if (largest == NULL || where == NULL) return 1;
    seek_any(m, x, e, largest, where);
    return 0;
}

/* --- sums ------------------------------------------------------------------------------------------------------------ */

/* Sixteen partial sums, and what is left over as if zeros came after it */
static __attribute__((noinline)) float sum_of(const float *x, int64_t n) {
    lanes sum = all_lanes(0.0f);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += load_lanes(x + j);
    if (j < n) sum += load_some(x + j, n - j, 0.0f);
    return sum_of_lanes(sum);
}

typedef struct {
    const float *x;
    float *to;
    extent e;
    int64_t together;
} summing;

static void sum_part(void *context, int64_t number) {
    const summing *s = context;
    const extent *e = &s->e;
    int64_t end = smaller((number + 1) * s->together, e->outer);
    for (int64_t o = number * s->together; o < end; o++) {
        const float *x = s->x + o * e->n * e->inner;
        float *to = s->to + o * e->inner;
        if (e->inner == 1) {
            *to = sum_of(x, e->n);
            continue;
        }
        for (int64_t c = 0; c < e->inner; c++) to[c] = 0.0f;
        for (int64_t j = 0; j < e->n; j++)
            for (int64_t c = 0; c < e->inner; c++) to[c] += x[j * e->inner + c];
    }
}

/* attribute: keepdims; input 1: axes */
int op_ReduceSum(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t first, end;
    if (axes_of(m, i, &first, &end)) return 1;
    if (x->kind != F32 && x->kind != I64) return wrong(m, "ReduceSum expects F32 or I64");
    extent e = around(x, first, end);
    int64_t sizes[MOST_DIMENSIONS];
    void *to = give(m, i, 0, x->kind, reduced(x, first, end, i->attribute[0], sizes), sizes);
    if (to == NULL) return 1;
    if (x->kind == I64) {
        const int64_t *from = x->data;
        for (int64_t o = 0; o < e.outer; o++)
            for (int64_t c = 0; c < e.inner; c++) {
                int64_t sum = 0;
                for (int64_t j = 0; j < e.n; j++) sum += from[(o * e.n + j) * e.inner + c];
                ((int64_t *)to)[o * e.inner + c] = sum;
            }
        return 0;
    }
    summing s = {.x = x->data, .to = to, .e = e};
    int64_t each = e.n * e.inner, numbers = e.outer * each;
    s.together = numbers < WORTH_SHARING ? larger(1, e.outer) : larger(1, NUMBERS_OF_A_PART / each);
    in_parts(m, sum_part, &s, (e.outer + s.together - 1) / s.together, numbers);
    return 0;
}

/* --- the k largest of a row ------------------------------------------------------------------------------------------ */

typedef struct {
    const float *x;
    int64_t n, k, rows, together;
    int largest;
    float *values;
    int64_t *where;
} picking;

enum { STRETCH = 64 }; /* numbers that are passed over at once */

/* Kept in order; of equals the first stays before the others */
static void pick_row(const picking *p, const float *x, float *values, int64_t *where) {
    int64_t kept = 0, looked = p->largest ? 0 : p->n;
    for (int64_t j = 0; j < p->n; j++) {
        if (kept == p->k && j >= looked) { /* a stretch without anything larger is passed over whole */
            looked = smaller(j + STRETCH, p->n);
            if (!(greatest(x + j, looked - j) > values[kept - 1])) {
                j = looked - 1;
                continue;
            }
        }
        if (kept == p->k && !(p->largest ? x[j] > values[kept - 1] : x[j] < values[kept - 1])) continue;
        int64_t at = kept < p->k ? kept++ : kept - 1;
        for (; at > 0 && (p->largest ? x[j] > values[at - 1] : x[j] < values[at - 1]); at--) {
            values[at] = values[at - 1];
            where[at] = where[at - 1];
        }
        values[at] = x[j];
        where[at] = j;
    }
}

static void pick_part(void *context, int64_t number) {
    const picking *p = context;
    int64_t end = smaller((number + 1) * p->together, p->rows);
    for (int64_t r = number * p->together; r < end; r++) {
        const float *x = p->x + r * p->n;
        if (p->k == 1 && p->largest) {
            p->values[r] = greatest(x, p->n);
            p->where[r] = first_equal(x, p->n, p->values[r]);
        } else {
            pick_row(p, x, p->values + r * p->k, p->where + r * p->k);
        }
    }
}

/* attributes: axis (the last), largest, sorted; input 1: k; outputs: numbers, where they stand */
int op_TopK(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    picking p = {.x = x->data, .k = integer_of(input_of(m, i, 1), 0), .largest = i->attribute[1] != 0};
    if (x->kind != F32 || axis < 0 || axis != x->rank - 1) return wrong(m, "TopK expects F32 and the last axis");
    p.n = x->sizes[axis];
    p.rows = product_of(x->sizes, 0, axis);
    if (p.k < 0 || p.k > p.n) return wrong(m, "TopK expects no more numbers than there are");
    int64_t sizes[MOST_DIMENSIONS];
    for (int32_t d = 0; d < axis; d++) sizes[d] = x->sizes[d];
    sizes[axis] = p.k;
    p.values = give(m, i, 0, F32, x->rank, sizes);
    p.where = give(m, i, 1, I64, x->rank, sizes);
    if (p.values == NULL || p.where == NULL) return 1;
    if (p.k == 0 || p.rows == 0) return 0;
    int64_t numbers = p.rows * p.n;
    p.together = numbers < WORTH_SHARING ? p.rows : larger(1, NUMBERS_OF_A_PART / p.n);
    in_parts(m, pick_part, &p, (p.rows + p.together - 1) / p.together, numbers);
    return 0;
}
