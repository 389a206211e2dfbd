/* Operators that look at shapes alone: other shapes of the same memory, and the few that make or read sizes. */

#include "operators.h"

/* input 1: sizes, of which 0 stands for the size that is there and one -1 for what is left */
int op_Reshape(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *wanted = input_of(m, i, 1);
    int64_t sizes[MOST_DIMENSIONS], known = 1, rank = count_of(wanted), open = -1, count = count_of(x);
    if (rank > MOST_DIMENSIONS) return wrong(m, "Reshape expects six dimensions at most");
    for (int64_t d = 0; d < rank; d++) {
        sizes[d] = integer_of(wanted, d);
        if (sizes[d] == 0) {
            if (d >= x->rank) return wrong(m, "Reshape was to keep a dimension that is not there");
            sizes[d] = x->sizes[d];
        }
        if (sizes[d] < 0) {
            if (open >= 0) return wrong(m, "Reshape expects one -1 at most");
            open = d;
        } else {
            known *= sizes[d];
        }
    }
    if (open >= 0) sizes[open] = known ? count / known : 0;
    if (open >= 0) known *= sizes[open];
    if (known != count) return wrong(m, "Reshape expects as many numbers as there are");
    alias(m, i, 0, x, (int32_t)rank, sizes);
    return 0;
}

/* input 1: axes */
int op_Squeeze(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *axes = input_of(m, i, 1);
    int64_t sizes[MOST_DIMENSIONS];
    int goes[MOST_DIMENSIONS] = {0};
    int32_t rank = 0;
    for (int64_t j = 0, count = count_of(axes); j < count; j++) {
        int32_t axis = axis_of(integer_of(axes, j), x->rank);
        if (axis < 0 || x->sizes[axis] != 1) return wrong(m, "Squeeze expects dimensions of size 1");
        goes[axis] = 1;
    }
    for (int32_t d = 0; d < x->rank; d++)
        if (!goes[d]) sizes[rank++] = x->sizes[d];
    alias(m, i, 0, x, rank, sizes);
    return 0;
}

/* input 1: axes of the result */
int op_Unsqueeze(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *axes = input_of(m, i, 1);
    int64_t sizes[MOST_DIMENSIONS], count = count_of(axes);
    int comes[MOST_DIMENSIONS] = {0};
    if (x->rank + count > MOST_DIMENSIONS) return wrong(m, "Unsqueeze expects six dimensions at most");
    int32_t rank = x->rank + (int32_t)count;
    for (int64_t j = 0; j < count; j++) {
        int32_t axis = axis_of(integer_of(axes, j), rank);
        if (axis < 0 || comes[axis]) return wrong(m, "Unsqueeze expects axes of its result, each once");
        comes[axis] = 1;
    }
    for (int32_t d = 0, own = 0; d < rank; d++) sizes[d] = comes[d] ? 1 : x->sizes[own++];
    alias(m, i, 0, x, rank, sizes);
    return 0;
}

/* attributes: start, end */
int op_Shape(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int64_t start = i->attribute[0], end = i->attribute[1];
    if (start < 0) start += x->rank;
    if (end < 0) end += x->rank;
    start = larger(0, smaller(start, x->rank));
    end = larger(start, smaller(end, x->rank));
    int64_t count = end - start, *out = give(m, i, 0, I64, 1, &count);
    if (out == NULL) return 1;
    for (int64_t d = 0; d < count; d++) out[d] = x->sizes[start + d];
    return 0;
}

/* inputs: start, limit, step (1), of one integer each */
int op_Range(machine *m, const instruction *i) {
    int64_t first = integer_of(input_of(m, i, 0), 0), count = larger(0, integer_of(input_of(m, i, 1), 0) - first);
    if (input_of(m, i, 0)->kind != I64 || integer_of(input_of(m, i, 2), 0) != 1)
        return wrong(m, "Range expects integers, one after the other");
    int64_t *out = give(m, i, 0, I64, 1, &count);
    if (out == NULL) return 1;
    for (int64_t j = 0; j < count; j++) out[j] = first + j;
    return 0;
}
