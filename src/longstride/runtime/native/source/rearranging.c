/* Operators that put parts of tensors elsewhere: Concat, Split, Slice, Pad, Expand. What lies side by side before and
   after is moved at once, and where all of it does, nothing is: the result is the same memory. */

#include "copying.h"
#include "native.h"
#include "sharing.h"
#include "walking.h"

/* --- Concat and Split ---------------------------------------------------------------------------------------------- */

/* attribute: axis */
int op_Concat(machine *m, const instruction *i) {
    const value *first = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], first->rank);
    if (axis < 0) return wrong(m, "Concat expects an axis of its inputs");
    int64_t sizes[MOST_DIMENSIONS], bytes = bytes_of(first->kind);
    for (int32_t d = 0; d < first->rank; d++) sizes[d] = first->sizes[d];
    for (int t = 1; t < i->inputs; t++) {
        const value *x = input_of(m, i, t);
        if (x->kind != first->kind || x->rank != first->rank) return wrong(m, "Concat expects tensors that are alike");
        for (int32_t d = 0; d < x->rank; d++)
            if (d != axis && x->sizes[d] != sizes[d]) return wrong(m, "Concat expects sizes that are alike");
        sizes[axis] += x->sizes[axis];
    }
    char *to = give(m, i, 0, first->kind, first->rank, sizes);
    if (to == NULL) return 1;
    int64_t before = product_of(sizes, 0, axis), behind = product_of(sizes, axis + 1, first->rank) * bytes;
    int64_t whole = sizes[axis] * behind;
    for (int t = 0; t < i->inputs; t++) {
        const value *x = input_of(m, i, t);
        int64_t run = x->sizes[axis] * behind;
        const char *from = x->data;
        for (int64_t j = 0; run && j < before; j++) copy_bytes(to + j * whole, from + j * run, run);
        to += run;
    }
    return 0;
}

typedef struct {
    const char *from;
    int64_t whole; /* bytes from one row to the next */
    int outputs;
    int64_t runs[MOST_OUTPUTS], places[MOST_OUTPUTS];
    char *to[MOST_OUTPUTS];
    int64_t rows, together;
} splitting;

static void split_part(void *context, int64_t number) {
    const splitting *s = context;
    int64_t first = number * s->together, end = smaller(first + s->together, s->rows);
    for (int64_t j = first; j < end; j++)
        for (int t = 0; t < s->outputs; t++)
            copy_bytes(s->to[t] + j * s->runs[t], s->from + j * s->whole + s->places[t], s->runs[t]);
}

/* attributes: axis, num_outputs; input 1: sizes, or left out */
int op_Split(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *given = i->inputs > 1 ? input_of(m, i, 1) : NULL;
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (axis < 0) return wrong(m, "Split expects an axis of its input");
    int64_t bytes = bytes_of(x->kind), behind = product_of(x->sizes, axis + 1, x->rank) * bytes;
    int64_t length = x->sizes[axis], each = (length + i->outputs - 1) / i->outputs, done = 0;
    splitting s = {.from = x->data, .whole = length * behind, .outputs = i->outputs};
    s.rows = product_of(x->sizes, 0, axis);
    int64_t sizes[MOST_OUTPUTS];
    for (int t = 0; t < i->outputs; t++) {
        sizes[t] = given ? integer_of(given, t) : smaller(each, length - done);
        s.places[t] = done * behind;
        s.runs[t] = sizes[t] * behind;
        done += sizes[t];
    }
    if (done != length) return wrong(m, "Split expects sizes that make up what there is");
    value part = *x;
    for (int t = 0; t < i->outputs; t++) {
        part.sizes[axis] = sizes[t];
        if (s.rows == 1) {
            part.data = (char *)x->data + s.places[t];
            alias(m, i, t, &part, x->rank, part.sizes);
        } else if ((s.to[t] = give(m, i, t, x->kind, x->rank, part.sizes)) == NULL) {
            return 1;
        }
    }
    if (s.rows <= 1) return 0;
    int64_t numbers = s.whole * s.rows / bytes;
    s.together = numbers < WORTH_SHARING ? s.rows : larger(1, NUMBERS_OF_A_PART * bytes / larger(1, s.whole));
    in_parts(m, split_part, &s, (s.rows + s.together - 1) / s.together, numbers);
    return 0;
}

/* --- Slice --------------------------------------------------------------------------------------------------------- */

/* A box of elements in one tensor, moved to where they lie side by side, or the other way round */
typedef struct {
    int32_t rank; /* dimensions, the innermost first; that one's elements are moved one run each */
    int64_t sizes[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];   /* steps in bytes, of the tensor that has gaps */
    int64_t run;
} box;

static void move_box(const box *b, char *dense, char *gaps, int into_gaps) {
    int64_t at[MOST_DIMENSIONS] = {0};
    for (int32_t d = 0; d < b->rank; d++)
        if (b->sizes[d] == 0) return;
    for (;;) {
        if (into_gaps)
            copy_bytes(gaps, dense, b->run);
        else
            copy_bytes(dense, gaps, b->run);
        dense += b->run;
        int32_t d = 0;
        for (; d < b->rank; d++) {
            gaps += b->steps[d];
            if (++at[d] < b->sizes[d]) break;
            gaps -= b->steps[d] * b->sizes[d];
            at[d] = 0;
        }
        if (d == b->rank) return;
    }
}

/* Elements [sizes] that lie `steps` (by dimension, in bytes) from each other: as few and as long runs as possible */
static box box_of(int32_t rank, const int64_t *sizes, const int64_t *steps, int64_t bytes) {
    box b = {.rank = 0, .run = bytes};
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (sizes[d] == 1) continue;
        if (b.rank == 0 && steps[d] == b.run)
            b.run *= sizes[d];
        else if (b.rank && steps[d] == b.steps[b.rank - 1] * b.sizes[b.rank - 1])
            b.sizes[b.rank - 1] *= sizes[d];
        else {
            b.sizes[b.rank] = sizes[d];
            b.steps[b.rank++] = steps[d];
        }
    }
    return b;
}

/* inputs: x, starts, ends, axes or left out, steps or left out */
int op_Slice(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *starts = input_of(m, i, 1), *ends = input_of(m, i, 2);
    const value *axes = i->inputs > 3 ? input_of(m, i, 3) : NULL, *by = i->inputs > 4 ? input_of(m, i, 4) : NULL;
    int64_t sizes[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], bytes = bytes_of(x->kind), behind = bytes;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        sizes[d] = x->sizes[d];
        steps[d] = behind;
        behind *= x->sizes[d];
    }
    char *from = x->data;
    int empty = 0;
    for (int64_t j = 0, count = count_of(starts); j < count; j++) {
        int32_t axis = axis_of(axes ? integer_of(axes, j) : j, x->rank);
        int64_t first = integer_of(starts, j), end = integer_of(ends, j), step = by ? integer_of(by, j) : 1;
        if (axis < 0 || step == 0) return wrong(m, "Slice expects axes of its input, and steps other than zero");
        int64_t length = x->sizes[axis];
        if (first < 0) first += length;
        if (end < 0) end += length;
        if (step > 0) {
            first = larger(0, smaller(first, length));
            end = larger(0, smaller(end, length));
            sizes[axis] = end > first ? (end - first + step - 1) / step : 0;
        } else {
            first = larger(0, smaller(first, length - 1));
            end = larger(-1, smaller(end, length - 1));
            sizes[axis] = first > end && length ? (first - end - step - 1) / -step : 0;
        }
        if (sizes[axis] == 0) empty = 1;
        from += first * steps[axis];
        steps[axis] *= step;
    }
    if (empty) return give(m, i, 0, x->kind, x->rank, sizes) == NULL;
    box b = box_of(x->rank, sizes, steps, bytes);
    if (b.rank == 0) {
        value part = *x;
        part.data = from;
        alias(m, i, 0, &part, x->rank, sizes);
        return 0;
    }
    char *to = give(m, i, 0, x->kind, x->rank, sizes);
    if (to == NULL) return 1;
    move_box(&b, to, from, 0);
    return 0;
}

/* --- Pad ----------------------------------------------------------------------------------------------------------- */

/* inputs: x, pads (all beginnings, then all ends), value or left out: zero, axes or left out: all */
int op_Pad(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *pads = input_of(m, i, 1), *filling = i->inputs > 2 ? input_of(m, i, 2) : NULL;
    const value *axes = i->inputs > 3 ? input_of(m, i, 3) : NULL;
    int64_t sizes[MOST_DIMENSIONS], before[MOST_DIMENSIONS] = {0}, zero = 0, bytes = bytes_of(x->kind);
    int64_t count = count_of(pads) / 2;
    int32_t padded = 0, only = 0; /* how many dimensions, and the last of them */
    for (int32_t d = 0; d < x->rank; d++) sizes[d] = x->sizes[d];
    for (int64_t j = 0; j < count; j++) {
        int32_t axis = axis_of(axes ? integer_of(axes, j) : j, x->rank);
        int64_t more = integer_of(pads, j), behind = integer_of(pads, count + j);
        if (axis < 0 || more < 0 || behind < 0) return wrong(m, "Pad expects axes of its input, and no negative sizes");
        if (more + behind == 0) continue;
        before[axis] = more;
        sizes[axis] += more + behind;
        padded++;
        only = axis;
    }
    if (padded == 0) {
        alias(m, i, 0, x, x->rank, sizes);
        return 0;
    }
    char *to = give(m, i, 0, x->kind, x->rank, sizes);
    if (to == NULL) return 1;
    const void *element = filling ? filling->data : &zero;
    if (padded == 1) {
        int64_t behind = product_of(sizes, only + 1, x->rank), rows = product_of(sizes, 0, only);
        int64_t run = x->sizes[only] * behind, more = before[only] * behind, whole = sizes[only] * behind;
        const char *from = x->data;
        for (int64_t j = 0; j < rows; j++) {
            fill(to, element, bytes, more);
            to += more * bytes;
            copy_bytes(to, from, run * bytes);
            to += run * bytes;
            from += run * bytes;
            fill(to, element, bytes, whole - more - run);
            to += (whole - more - run) * bytes;
        }
        return 0;
    }
    fill(to, element, bytes, product_of(sizes, 0, x->rank));
    int64_t steps[MOST_DIMENSIONS], behind = bytes;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        steps[d] = behind;
        to += before[d] * behind;
        behind *= sizes[d];
    }
    if (count_of(x) == 0) return 0;
    box b = box_of(x->rank, x->sizes, steps, bytes);
    move_box(&b, x->data, to, 1);
    return 0;
}

/* --- Expand -------------------------------------------------------------------------------------------------------- */

#define LINE_OF_EXPAND(NAME, BYTES)                                                             \
    static void NAME(void *to, const void *const *given, const sheet *s) {                      \
        char *out = to;                                                                         \
        const char *from = given[0];                                                            \
        for (int64_t l = s->lines; l > 0; l--) {                                                \
            if (s->steps[0])                                                                    \
                copy_bytes(out, from, s->n * BYTES);                                            \
            else                                                                                \
                fill(out, from, BYTES, s->n);                                                   \
            out += s->out_jump * BYTES;                                                         \
            from += s->jumps[0] * BYTES;                                                        \
        }                                                                                       \
    }

LINE_OF_EXPAND(expand_1, 1)
LINE_OF_EXPAND(expand_4, 4)
LINE_OF_EXPAND(expand_8, 8)

/* inputs: x, sizes that it is broadcast against */
int op_Expand(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *wanted = input_of(m, i, 1);
    value other = {.kind = x->kind, .rank = (int32_t)count_of(wanted)};
    if (other.rank > MOST_DIMENSIONS) return wrong(m, "Expand expects six dimensions at most");
    for (int32_t d = 0; d < other.rank; d++) other.sizes[d] = integer_of(wanted, d);
    const value *given[2] = {x, &other};
    int32_t rank;
    int64_t sizes[MOST_DIMENSIONS];
    walk w;
    if (broadcast(2, given, &rank, sizes, &w)) return wrong(m, "Expand expects a shape that fits");
    if (product_of(sizes, 0, rank) == count_of(x)) {
        alias(m, i, 0, x, rank, sizes);
        return 0;
    }
    if (give(m, i, 0, x->kind, rank, sizes) == NULL) return 1;
    int64_t bytes = bytes_of(x->kind);
    walk_lines(m, &w, bytes == 4 ? expand_4 : bytes == 8 ? expand_8 : expand_1, m->values + i->output[0], 1, given);
    return 0;
}
