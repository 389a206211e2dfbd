/* Operators that put parts of tensors elsewhere: Concat, Split, Slice, Pad, Expand. What lies side by side before and
   after is moved at once, and where all of it does, nothing is: the result is the same memory. */

#include "operators.h"

/* `count` runs of bytes, so many bytes from one to the next on either side */
static void copy_runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t run, int64_t count) {
    for (int64_t j = 0; j < count; j++) copy_bytes(to + j * to_step, from + j * from_step, run);
}

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
        if (run) copy_runs(to, whole, x->data, run, run, before);
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
} splitting;

static void split_rows(void *context, int64_t first, int64_t end) {
    const splitting *s = context;
    for (int64_t j = first; j < end; j++)
        for (int t = 0; t < s->outputs; t++)
            copy_bytes(s->to[t] + j * s->runs[t], s->from + j * s->whole + s->places[t], s->runs[t]);
}

/* attributes: axis, num_outputs; input 1: sizes, or left out */
int op_Split(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *given = input_of(m, i, 1);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (axis < 0) return wrong(m, "Split expects an axis of its input");
    int64_t bytes = bytes_of(x->kind), behind = product_of(x->sizes, axis + 1, x->rank) * bytes;
    int64_t length = x->sizes[axis], each = (length + i->outputs - 1) / i->outputs, done = 0;
    int64_t rows = product_of(x->sizes, 0, axis), sizes[MOST_OUTPUTS];
    splitting s = {.from = x->data, .whole = length * behind, .outputs = i->outputs};
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
        if (rows == 1) {
            part.data = (char *)x->data + s.places[t];
            alias(m, i, t, &part, x->rank, part.sizes);
        } else if ((s.to[t] = give(m, i, t, x->kind, x->rank, part.sizes)) == NULL) {
            return 1;
        }
    }
    if (rows > 1) in_rows(m, split_rows, &s, rows, s.whole * rows / bytes);
    return 0;
}

/* --- Slice and Pad ------------------------------------------------------------------------------------------------- */

/* inputs: x, start, end, axis, of one number each */
int op_Slice(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *axes = input_of(m, i, 3);
    int32_t axis = axis_of(integer_of(axes, 0), x->rank);
    if (axis < 0 || count_of(axes) != 1) return wrong(m, "Slice expects one axis of its input");
    int64_t length = x->sizes[axis], first = integer_of(input_of(m, i, 1), 0), end = integer_of(input_of(m, i, 2), 0);
    if (first < 0) first += length;
    if (end < 0) end += length;
    first = larger(0, smaller(first, length));
    end = larger(first, smaller(end, length));
    int64_t rows = product_of(x->sizes, 0, axis), behind = product_of(x->sizes, axis + 1, x->rank) * bytes_of(x->kind);
    value part = *x;
    part.data = (char *)x->data + first * behind;
    part.sizes[axis] = end - first;
    if (rows == 1 || end - first == length) {
        alias(m, i, 0, &part, x->rank, part.sizes);
        return 0;
    }
    char *to = give(m, i, 0, x->kind, x->rank, part.sizes);
    if (to == NULL) return 1;
    copy_runs(to, (end - first) * behind, part.data, length * behind, (end - first) * behind, rows);
    return 0;
}

/* inputs: x, pads (before, behind), value or left out: zero, axis */
int op_Pad(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *pads = input_of(m, i, 1), *filling = input_of(m, i, 2), *axes = input_of(m, i, 3);
    int32_t axis = axis_of(integer_of(axes, 0), x->rank);
    int64_t before = integer_of(pads, 0), after = integer_of(pads, 1), zero = 0, bytes = bytes_of(x->kind);
    if (axis < 0 || count_of(axes) != 1 || before < 0 || after < 0)
        return wrong(m, "Pad expects one axis of its input, and no negative sizes");
    if (before + after == 0) {
        alias(m, i, 0, x, x->rank, x->sizes);
        return 0;
    }
    int64_t sizes[MOST_DIMENSIONS];
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[axis] += before + after;
    char *to = give(m, i, 0, x->kind, x->rank, sizes);
    if (to == NULL) return 1;
    const void *element = filling ? filling->data : &zero;
    int64_t behind = product_of(sizes, axis + 1, x->rank), rows = product_of(sizes, 0, axis);
    int64_t run = x->sizes[axis] * behind;
    const char *from = x->data;
    for (int64_t j = 0; j < rows; j++, from += run * bytes) {
        fill(to, element, bytes, before * behind);
        to += before * behind * bytes;
        copy_bytes(to, from, run * bytes);
        to += run * bytes;
        fill(to, element, bytes, after * behind);
        to += after * behind * bytes;
    }
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
