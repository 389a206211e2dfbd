/* Operators that make one number of many: the largest, where it stands, a sum, the k largest. A tensor is [outer, n, inner]
   to them, and the n numbers of one (outer, inner) are gone through in an order that depends on n alone. */

#include <math.h>

#include "operators.h"
#include "product.h"

/* --- the largest of a row: two passes, each of which takes vectors; NaN is never the largest ---------------------------- */

float greatest(const float *x, int64_t n) {
    int64_t j = 0;
    if (n < LANES) {
        float found = -__builtin_inff();
        for (; j < n; j++) found = x[j] > found ? x[j] : found;
        return found;
    }
    lanes a = all_lanes(-__builtin_inff()), b = a, c = a, d = a;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        a = greater_lanes(load_lanes(x + j), a);
        b = greater_lanes(load_lanes(x + j + LANES), b);
        c = greater_lanes(load_lanes(x + j + 2 * LANES), c);
        d = greater_lanes(load_lanes(x + j + 3 * LANES), d);
    }
    for (; j + LANES <= n; j += LANES) a = greater_lanes(load_lanes(x + j), a);
    a = greater_lanes(load_lanes(x + n - LANES), a); /* some are seen twice */
    return greatest_lane(greater_lanes(greater_lanes(a, b), greater_lanes(c, d)));
}

static inline lanes sum_at(const float *x, const float *y, int64_t j) {
    return load_lanes(x + j) + load_lanes(y + j);
}

float greatest_sum(const float *x, const float *y, int64_t n) {
    int64_t j = 0;
    if (n < LANES) {
        float found = -__builtin_inff();
        for (; j < n; j++) found = x[j] + y[j] > found ? x[j] + y[j] : found;
        return found;
    }
    lanes a = all_lanes(-__builtin_inff()), b = a;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        a = greater_lanes(sum_at(x, y, j), a);
        b = greater_lanes(sum_at(x, y, j + LANES), b);
    }
    for (; j + LANES <= n; j += LANES) a = greater_lanes(sum_at(x, y, j), a);
    a = greater_lanes(sum_at(x, y, n - LANES), a);
    return greatest_lane(greater_lanes(a, b));
}

int64_t first_equal(const float *x, int64_t n, float wanted) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        uint32_t found = bits_of(load_lanes(x + j) == all_lanes(wanted));
        if (found) return j + __builtin_ctz(found);
    }
    for (; j < n; j++)
        if (x[j] == wanted) return j;
    return 0;
}

int64_t first_equal_sum(const float *x, const float *y, int64_t n, float wanted) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        uint32_t found = bits_of(sum_at(x, y, j) == all_lanes(wanted));
        if (found) return j + __builtin_ctz(found);
    }
    for (; j < n; j++)
        if (x[j] + y[j] == wanted) return j;
    return 0;
}

/* Of one column each, a lane each, in `wide` vectors: x [n, inner]; largest and where, either may be NULL */
ALWAYS_INLINE void down_vectors(
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

/* --- reductions of one axis -------------------------------------------------------------------------------------------- */

typedef struct {
    const value *x;
    int64_t outer, n, inner;
    int32_t axis;
    void *largest; /* or sums; either may be NULL */
    int64_t *where;
} reduction;

/* Output `number` of a kind, the axis as 1 or gone; -1: not asked for */
static void *give_reduced(machine *m, const instruction *i, int number, int32_t kind, const reduction *r, int64_t keep) {
    int64_t sizes[MOST_DIMENSIONS];
    int32_t rank = 0;
    for (int32_t d = 0; d < r->x->rank; d++)
        if (d != r->axis || keep) sizes[rank++] = d == r->axis ? 1 : r->x->sizes[d];
    return number < 0 ? NULL : give(m, i, number, kind, rank, sizes);
}

static reduction reduction_of(const value *x, int64_t axis) {
    reduction r = {.x = x, .axis = axis_of(axis, x->rank)};
    if (r.axis < 0) return r;
    r.outer = product_of(x->sizes, 0, r.axis);
    r.n = x->sizes[r.axis];
    r.inner = product_of(x->sizes, r.axis + 1, x->rank);
    return r;
}

static void seek_rows(void *context, int64_t first, int64_t end) {
    const reduction *r = context;
    float *largest = r->largest;
    for (int64_t o = first; o < end; o++) {
        const float *x = (const float *)r->x->data + o * r->n * r->inner;
        if (r->inner == 1) {
            float found = greatest(x, r->n);
            if (largest) largest[o] = found;
            if (r->where) r->where[o] = first_equal(x, r->n, found);
        } else {
            down_columns(x, r->n, r->inner, largest ? largest + o * r->inner : NULL,
                r->where ? r->where + o * r->inner : NULL);
        }
    }
}

/* Integers: few, one after the other */
static void seek_integers(const reduction *r) {
    for (int64_t o = 0; o < r->outer; o++)
        for (int64_t c = 0; c < r->inner; c++) {
            const int64_t *x = (const int64_t *)r->x->data + o * r->n * r->inner + c;
            int64_t at = 0;
            for (int64_t j = 1; j < r->n; j++)
                if (x[j * r->inner] > x[at * r->inner]) at = j;
            if (r->largest) ((int64_t *)r->largest)[o * r->inner + c] = x[at * r->inner];
            if (r->where) r->where[o * r->inner + c] = at;
        }
}

/* The outputs that are the largest numbers, and where they stand, the first of equals; -1: not asked for */
static int seek(machine *m, const instruction *i, int64_t axis, int64_t keep, int largest, int where) {
    const value *x = input_of(m, i, 0);
    reduction r = reduction_of(x, axis);
    if (r.axis < 0 || r.n == 0 || (x->kind != F32 && x->kind != I64))
        return wrong(m, "the largest is looked for along an axis, among at least one F32 or I64");
    r.largest = give_reduced(m, i, largest, x->kind, &r, keep);
    r.where = give_reduced(m, i, where, I64, &r, keep);
    if (m->error) return 1;
    if (x->kind == F32) in_rows(m, seek_rows, &r, r.outer, r.outer * r.n * r.inner);
    else seek_integers(&r);
    return 0;
}

/* attributes: axis, keepdims */
int op_ArgMax(machine *m, const instruction *i) { return seek(m, i, i->attribute[0], i->attribute[1], -1, 0); }

/* attribute: keepdims; input 1: the axis */
int op_ReduceMax(machine *m, const instruction *i) {
    return seek(m, i, integer_of(input_of(m, i, 1), 0), i->attribute[0], 0, -1);
}

/* attributes: axis, keepdims; outputs: what ReduceMax gives and what ArgMax gives, of numbers that are read once */
int op_Largest(machine *m, const instruction *i) { return seek(m, i, i->attribute[0], i->attribute[1], 0, 1); }

/* As many partial sums as lanes, and what is left over as if zeros came after it */
static __attribute__((noinline)) float sum_of(const float *x, int64_t n) {
    lanes sum = all_lanes(0.0f);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += load_lanes(x + j);
    if (j < n) sum += load_some(x + j, n - j, 0.0f);
    return sum_of_lanes(sum);
}

static void sum_rows(void *context, int64_t first, int64_t end) {
    const reduction *r = context;
    for (int64_t o = first; o < end; o++) {
        const float *x = (const float *)r->x->data + o * r->n * r->inner;
        float *to = (float *)r->largest + o * r->inner;
        if (r->inner == 1) {
            *to = sum_of(x, r->n);
            continue;
        }
        for (int64_t c = 0; c < r->inner; c++) to[c] = 0.0f;
        for (int64_t j = 0; j < r->n; j++)
            for (int64_t c = 0; c < r->inner; c++) to[c] += x[j * r->inner + c];
    }
}

/* attribute: keepdims; input 1: the axis */
int op_ReduceSum(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    reduction r = reduction_of(x, integer_of(input_of(m, i, 1), 0));
    if (r.axis < 0 || (x->kind != F32 && x->kind != I64)) return wrong(m, "ReduceSum expects an axis of F32 or I64");
    if ((r.largest = give_reduced(m, i, 0, x->kind, &r, i->attribute[0])) == NULL) return 1;
    if (x->kind == F32) {
        in_rows(m, sum_rows, &r, r.outer, r.outer * r.n * r.inner);
        return 0;
    }
    int64_t *to = r.largest;
    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t c = 0; c < r.inner; c++, to++) {
            *to = 0;
            for (int64_t j = 0; j < r.n; j++) *to += integer_of(x, (o * r.n + j) * r.inner + c);
        }
    return 0;
}

/* --- the k largest of a row ------------------------------------------------------------------------------------------ */

typedef struct {
    const float *x;
    int64_t n, k;
    float *values;
    int64_t *where;
    const int64_t *never; /* places that are left out, or NULL */
    int64_t nevers;
    const float *most;    /* [rows, panels] the largest of every PANEL numbers, or NULL */
} picking;

enum { STRETCH = 64 }; /* numbers that are passed over at once */

static int left_out(const picking *p, int64_t place) {
    for (int64_t j = 0; j < p->nevers; j++)
        if (p->never[j] == place) return 1;
    return 0;
}

/* Inserts one; how many there are then, k at most. Of equals the one that came first stays before the others. */
static inline int64_t insert(const picking *p, float x, int64_t place, float *values, int64_t *where, int64_t kept) {
    int64_t at = kept < p->k ? kept++ : kept - 1;
    for (; at > 0 && x > values[at - 1]; at--) {
        values[at] = values[at - 1];
        where[at] = where[at - 1];
    }
    values[at] = x;
    where[at] = place;
    return kept;
}

enum { MOST_STRETCHES = 1024 };

static int64_t count_from(const float *x, int64_t n, float least) {
    whole_lanes found = {0};
    const lanes wanted = all_lanes(least);
    int64_t j = 0, count = 0;
    for (; j + LANES <= n; j += LANES) found -= load_lanes(x + j) >= wanted;
    for (; j < n; j++) count += x[j] >= least;
    for (int lane = 0; lane < LANES; lane++) count += found[lane];
    return count;
}

/* A number that at least `wanted` of n are no less than, and not many more; the lowest of them where nothing is known.
   Infinity: some are no numbers, or infinite. */
static float enough_of(const float *x, int64_t n, int64_t wanted) {
    lanes lowest = all_lanes(INFINITY), highest = all_lanes(-INFINITY);
    whole_lanes finite = all_lanes(0.0f) == all_lanes(0.0f);
    for (int64_t j = 0; j < n; j += LANES) {
        const lanes here = j + LANES <= n ? load_lanes(x + j) : load_some(x + j, n - j, x[j]);
        finite &= here - here == all_lanes(0.0f);
        lowest = choose(here < lowest, here, lowest);
        highest = greater_lanes(here, highest);
    }
    if (bits_of(finite) != (1u << LANES) - 1) return INFINITY;
    float low = -greatest_lane(-lowest), high = greatest_lane(highest);
    for (int turn = 0; turn < 24; turn++) {
        float middle = low + (high - low) / 2;
        int64_t count = count_from(x, n, middle);
        if (count < wanted) high = middle;
        else low = middle;
        if (count >= wanted && count <= wanted + wanted / 4) break;
    }
    return low;
}

/* Where there are few numbers: those that are large enough are copied together, and each one's place is how many of them
   stand before it. 0: some are no numbers, or most are wanted. */
static int pick_from_few(const picking *p, const float *x, float *values, int64_t *where) {
    const int64_t wanted = p->k + p->nevers;
    if (p->n > MOST_STRETCHES || wanted * 2 > p->n) return 0;
    const float enough = enough_of(x, p->n, wanted);
    if (enough == INFINITY) return 0;
    float found[MOST_STRETCHES + LANES];
    int64_t places[MOST_STRETCHES], count = 0;
    for (int64_t j = 0; j < p->n; j += LANES) {
        const lanes here = j + LANES <= p->n ? load_lanes(x + j) : load_some(x + j, p->n - j, -INFINITY);
        for (uint32_t good = bits_of(here >= all_lanes(enough)); good; good &= good - 1) {
            const int64_t place = j + __builtin_ctz(good);
            if (left_out(p, place)) continue;
            found[count] = x[place];
            places[count++] = place;
        }
    }
    store_lanes(found + count, all_lanes(-INFINITY));
    for (int64_t one = 0; one < count; one++) {   /* of equals the first stays before the others */
        int64_t before = count_from(found, one, found[one]);
        for (int64_t j = one; j < count; j += LANES)
            before += __builtin_popcount(bits_of(load_lanes(found + j) > all_lanes(found[one])));
        if (before >= p->k) continue;
        values[before] = found[one];
        where[before] = places[one];
    }
    return 1;
}

/* Where there are many numbers: so many stretches have a number of at least `enough` that all that are wanted are among
   those of at least so much. 0: too few were found (some are no numbers), or there are too few stretches. */
static int pick_from_stretches(const picking *p, const float *x, const float *most, float *values, int64_t *where) {
    float found[MOST_STRETCHES];
    const int64_t stretch = most ? PANEL : STRETCH, stretches = p->n / stretch, wanted = p->k + p->nevers;
    if (stretches > MOST_STRETCHES || wanted * 2 > stretches) return 0;
    for (int64_t s = 0; !most && s < stretches; s++) found[s] = greatest(x + s * STRETCH, STRETCH);
    if (!most) most = found;
    const float enough = enough_of(most, stretches, wanted);
    if (enough == INFINITY) return 0;
    int64_t kept = 0, left[MOST_STRETCHES + 1], lefts = 0;
    for (int64_t s = 0; s < stretches; s++) {   /* all are asked for before the first is waited for */
        if (most[s] < enough) continue;
        for (int64_t j = 0; j < stretch; j += LANES) __builtin_prefetch(x + s * stretch + j);
        left[lefts++] = s * stretch;
    }
    left[lefts++] = stretches * stretch;
    for (int64_t l = 0; l < lefts; l++)
        for (int64_t j = left[l], end = smaller(j + stretch, p->n); j < end; j += LANES) {
            const int64_t count = smaller(LANES, end - j);
            uint32_t good = bits_of((count < LANES ? load_some(x + j, count, -INFINITY) : load_lanes(x + j)) >= all_lanes(enough));
            for (; good; good &= good - 1) {
                const int64_t place = j + __builtin_ctz(good);
                if (place >= end || (kept == p->k && !(x[place] > values[kept - 1])) || left_out(p, place)) continue;
                kept = insert(p, x[place], place, values, where, kept);
            }
        }
    return kept == p->k;
}

/* Kept in order; of equals the first stays before the others. Where too few are left, the rest is the lowest number */
static void pick_row(const picking *p, const float *x, const float *most, float *values, int64_t *where) {
    int64_t kept = 0, looked = 0;
    if (pick_from_stretches(p, x, most, values, where) || pick_from_few(p, x, values, where)) return;
    for (int64_t j = 0; j < p->n; j++) {
        if (kept == p->k && j >= looked) { /* a stretch without anything larger is passed over whole */
            looked = smaller(j + STRETCH, p->n);
            if (!(greatest(x + j, looked - j) > values[kept - 1])) {
                j = looked - 1;
                continue;
            }
        }
        if (kept == p->k && !(x[j] > values[kept - 1])) continue;
        if (left_out(p, j)) continue;
        kept = insert(p, x[j], j, values, where, kept);
    }
    for (; kept < p->k; kept++) {
        values[kept] = -INFINITY;
        where[kept] = 0;
    }
}

static void pick_rows(void *context, int64_t first, int64_t end) {
    const picking *p = context;
    for (int64_t r = first; r < end; r++) {
        const float *x = p->x + r * p->n;
        if (p->k == 1 && !p->nevers) {
            p->values[r] = greatest(x, p->n);
            p->where[r] = first_equal(x, p->n, p->values[r]);
        } else {
            const float *most = p->most ? p->most + r * ((p->n + PANEL - 1) / PANEL) : NULL;
            pick_row(p, x, most, p->values + r * p->k, p->where + r * p->k);
        }
    }
}

/* attribute: axis (the last); input 1: k; input 2: places [n] that are left out, if any; input 3: the largest of every
   panel [..., panels], as Linear gives it, if there is one; outputs: the largest numbers in order, where they stand */
int op_TopK(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (x->kind != F32 || axis < 0 || axis != x->rank - 1) return wrong(m, "TopK expects F32 and the last axis");
    picking p = {.x = x->data, .n = x->sizes[axis], .k = integer_of(input_of(m, i, 1), 0)};
    const value *never = input_of(m, i, 2);
    if (never && never->kind != I64) return wrong(m, "TopK expects integers for what is left out");
    if (never) p.never = never->data, p.nevers = count_of(never);
    if (p.k < 0 || p.k > p.n) return wrong(m, "TopK expects no more numbers than there are");
    int64_t sizes[MOST_DIMENSIONS], rows = product_of(x->sizes, 0, axis);
    const value *most = input_of(m, i, 3);
    if (most && (most->kind != F32 || count_of(most) != rows * ((p.n + PANEL - 1) / PANEL)))
        return wrong(m, "TopK expects the largest of every panel of a row");
    if (most) p.most = most->data;
    for (int32_t d = 0; d < axis; d++) sizes[d] = x->sizes[d];
    sizes[axis] = p.k;
    p.values = give(m, i, 0, F32, x->rank, sizes);
    p.where = give(m, i, 1, I64, x->rank, sizes);
    if (p.values == NULL || p.where == NULL) return 1;
    if (p.k) in_rows(m, pick_rows, &p, rows, rows * p.n);
    return 0;
}
