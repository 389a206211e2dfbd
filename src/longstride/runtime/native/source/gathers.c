/* Operators that look elements up by integers: Gather, GatherElements and GatherND. A negative integer counts
   from the end. */

#include "operators.h"

/* --- Gather -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *from;
    char *to;
    const value *indices;
    int64_t count, size, run; /* of indices; of the axis; bytes of what one index stands for */
} looking;

/* Indices first ... end - 1, those of every dimension before the axis */
static void look_up(void *context, int64_t first, int64_t end) {
    const looking *l = context;
    for (int64_t j = first; j < end; j++) {
        int64_t place = place_of(integer_of(l->indices, j % l->count), l->size);
        copy_bytes(l->to + j * l->run, l->from + (j / l->count * l->size + place) * l->run, l->run);
    }
}

/* attribute: axis */
int op_Gather(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *indices = input_of(m, i, 1);
    int32_t axis = axis_of(i->attribute[0], x->rank), rank = 0;
    if (axis < 0 || indices->kind != I64) return wrong(m, "Gather expects an axis of its input, and integers");
    if (x->rank + indices->rank - 1 > MOST_DIMENSIONS) return wrong(m, "Gather expects six dimensions at most");
    int64_t sizes[MOST_DIMENSIONS], bytes = bytes_of(x->kind);
    for (int32_t d = 0; d < axis; d++) sizes[rank++] = x->sizes[d];
    for (int32_t d = 0; d < indices->rank; d++) sizes[rank++] = indices->sizes[d];
    for (int32_t d = axis + 1; d < x->rank; d++) sizes[rank++] = x->sizes[d];
    looking l = {.from = x->data, .indices = indices, .count = count_of(indices), .size = x->sizes[axis]};
    if (!all_within(indices, l.size)) return wrong(m, OUTSIDE);
    if ((l.to = give(m, i, 0, x->kind, rank, sizes)) == NULL) return 1;
    int64_t each = product_of(x->sizes, axis + 1, x->rank), rows = product_of(x->sizes, 0, axis) * l.count;
    l.run = each * bytes;
    if (each) in_rows(m, look_up, &l, rows, rows * each);
    return 0;
}

/* --- GatherElements ----------------------------------------------------------------------------------------------- */

/* All elements of `indices`: where each stands in a tensor x whose dimension `axis` is looked into. Indices are walked
   line by line of their last dimension; x may be longer than they are in any dimension. */
typedef struct {
    int32_t axis, last;
    int64_t at[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], base; /* steps in elements of x */
} places;

static places first_place(const value *x, int32_t axis) {
    places p = {.axis = axis, .last = x->rank - 1};
    for (int64_t d = x->rank - 1, behind = 1; d >= 0; d--) {
        p.steps[d] = behind;
        behind *= x->sizes[d];
    }
    return p;
}

/* The next line; 0 where there is none */
static int next_line(places *p, const value *indices) {
    for (int32_t d = p->last - 1; d >= 0; d--) {
        int64_t step = d == p->axis ? 0 : p->steps[d];
        p->base += step;
        if (++p->at[d] < indices->sizes[d]) return 1;
        p->base -= step * indices->sizes[d];
        p->at[d] = 0;
    }
    return 0;
}

static int can_look_up(const value *x, const value *indices, int32_t axis) {
    if (axis < 0 || indices->kind != I64 || x->rank != indices->rank) return 0;
    for (int32_t d = 0; d < x->rank; d++)
        if (d != axis && indices->sizes[d] > x->sizes[d]) return 0;
    return 1;
}

/* attribute: axis */
int op_GatherElements(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *indices = input_of(m, i, 1);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (!can_look_up(x, indices, axis)) return wrong(m, "GatherElements expects integers of a shape that fits");
    char *to = give(m, i, 0, x->kind, indices->rank, indices->sizes);
    if (to == NULL) return 1;
    if (count_of(indices) == 0) return 0;
    places p = first_place(x, axis);
    const char *from = x->data;
    int64_t bytes = bytes_of(x->kind), n = indices->sizes[p.last], along = axis != p.last, j = 0;
    do {
        for (int64_t k = 0; k < n; k++, j++) {
            int64_t place = place_of(integer_of(indices, j), x->sizes[axis]);
            if (place < 0) return wrong(m, OUTSIDE);
            copy_bytes(to + j * bytes, from + (p.base + k * along + place * p.steps[axis]) * bytes, bytes);
        }
    } while (next_line(&p, indices));
    return 0;
}

/* --- GatherND ------------------------------------------------------------------------------------------------------ */

/* attribute: batch_dims; inputs: x [batch, looked into, run], indices [batch, ..., how many are looked into] */
int op_GatherND(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *indices = input_of(m, i, 1);
    int32_t batch = (int32_t)i->attribute[0], before = indices->rank - 1, rank = 0;
    if (before < batch || indices->kind != I64) return wrong(m, "GatherND expects integers, and batches in both inputs");
    int64_t depth = indices->sizes[before], sizes[MOST_DIMENSIONS];
    if (batch + depth > x->rank) return wrong(m, "GatherND expects no more integers than its input has dimensions");
    int32_t looked = batch + (int32_t)depth;
    if (before + x->rank - looked > MOST_DIMENSIONS) return wrong(m, "GatherND expects six dimensions at most");
    for (int32_t d = 0; d < before; d++) sizes[rank++] = indices->sizes[d];
    for (int32_t d = looked; d < x->rank; d++) sizes[rank++] = x->sizes[d];
    for (int32_t d = 0; d < batch; d++)
        if (x->sizes[d] != indices->sizes[d]) return wrong(m, "GatherND expects as many batches in both inputs");
    char *to = give(m, i, 0, x->kind, rank, sizes);
    if (to == NULL) return 1;
    int64_t run = product_of(x->sizes, looked, x->rank) * bytes_of(x->kind);
    int64_t among = product_of(x->sizes, batch, looked);  /* runs of a batch */
    int64_t batches = product_of(x->sizes, 0, batch), each = product_of(indices->sizes, batch, before);
    const char *from = x->data;
    for (int64_t b = 0, j = 0; b < batches; b++, from += among * run)
        for (int64_t k = 0; k < each; k++, to += run) {
            int64_t place = 0;
            for (int32_t d = batch; d < looked; d++, j++) {
                int64_t here = place_of(integer_of(indices, j), x->sizes[d]);
                if (here < 0) return wrong(m, OUTSIDE);
                place = place * x->sizes[d] + here;
            }
            copy_bytes(to, from + place * run, run);
        }
    return 0;
}
