/* Move, Assign, Append, Accumulate: what is kept from call to call, written in its own memory. */

#include <string.h>

#include "native.h"

static int keeps(machine *m, const instruction *i, const value *state) {
    alias(m, i, 0, state, state->rank, state->sizes);
    return 0;
}

/* inputs: state F32 [rows, heads, slots, head]; slots I64 [rows, step], which then also lie, in their order, from each
   row's own start I64 [rows] on. Any of them may be where others go: all are read before any is written. */
int op_Move(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *moved = input_of(m, i, 1), *start = input_of(m, i, 2);
    if (state->kind != F32 || state->rank != 4 || moved->kind != I64 || moved->rank != 2 || start->kind != I64 ||
        moved->sizes[0] != state->sizes[0] || count_of(start) != state->sizes[0])
        return wrong(m, "Move expects slots, and places, for as many rows as the cache has");
    const int64_t rows = state->sizes[0], heads = state->sizes[1], slots = state->sizes[2], step = moved->sizes[1];
    const int64_t each = state->sizes[3] * (int64_t)sizeof(float), *from = moved->data, *to = start->data;
    for (int64_t row = 0; row < rows; row++) {
        if (to[row] < 0 || to[row] > slots - step) return wrong(m, "Move expects room for all slots in the cache");
        for (int64_t k = 0; k < step; k++)
            if (from[row * step + k] < 0 || from[row * step + k] >= slots)
                return wrong(m, "Move expects slots that the cache has");
    }
    char *aside = take_scratch(m, step * each);
    if (!aside) return 1;
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = 0, last = step;   /* what lies where it belongs is not touched */
        while (first < last && from[row * step + first] == to[row] + first) first++;
        while (first < last && from[row * step + last - 1] == to[row] + last - 1) last--;
        for (int64_t h = 0; h < heads && first < last; h++) {   /* all are asked for before the first is waited for */
            const char *here = (const char *)state->data + (row * heads + h) * slots * each;
            for (int64_t k = first; k < last; k++)
                for (int64_t line = 0; line < each; line += 64) {
                    __builtin_prefetch(here + from[row * step + k] * each + line, 0, 2);
                    __builtin_prefetch(here + (to[row] + k) * each + line, 1, 2);
                }
        }
        for (int64_t h = 0; h < heads && first < last; h++) {
            char *here = (char *)state->data + (row * heads + h) * slots * each;
            for (int64_t k = first; k < last; k++) memcpy(aside + k * each, here + from[row * step + k] * each, (size_t)each);
            memcpy(here + (to[row] + first) * each, aside + first * each, (size_t)((last - first) * each));
        }
    }
    return keeps(m, i, state);
}

/* inputs: state; new, of the same kind and as many numbers */
int op_Assign(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *new = input_of(m, i, 1);
    if (state->kind != new->kind || count_of(state) != count_of(new))
        return wrong(m, "Assign expects a new state of the old one's kind and size");
    memmove(state->data, new->data, (size_t)(count_of(state) * bytes_of(state->kind)));
    return keeps(m, i, state);
}

/* inputs: state [rows, columns]; new [rows, step] of the same kind; start I64 [rows], each row's own place */
int op_Append(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *new = input_of(m, i, 1), *start = input_of(m, i, 2);
    if (state->rank != 2 || new->rank != 2 || state->kind != new->kind || start->kind != I64 ||
        new->sizes[0] != state->sizes[0] || count_of(start) != state->sizes[0])
        return wrong(m, "Append expects new columns, and places, for as many rows as the state has");
    const int64_t rows = state->sizes[0], columns = state->sizes[1], step = new->sizes[1], each = bytes_of(state->kind);
    const int64_t *from = start->data;
    for (int64_t row = 0; row < rows; row++) {
        if (from[row] < 0 || from[row] > columns - step) return wrong(m, "Append expects room for all new columns");
        memcpy((char *)state->data + (row * columns + from[row]) * each, (const char *)new->data + row * step * each,
               (size_t)(step * each));
    }
    return keeps(m, i, state);
}

/* inputs: state F64 [rows]; new F32 [rows, step], whose sum is added */
int op_Accumulate(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *new = input_of(m, i, 1);
    if (state->kind != F64 || new->kind != F32 || new->rank != 2 || new->sizes[0] != count_of(state))
        return wrong(m, "Accumulate expects a state in float64 and fp32 numbers for each of its rows");
    const int64_t step = new->sizes[1];
    double *total = state->data;
    const float *gained = new->data;
    for (int64_t row = 0; row < new->sizes[0]; row++) {
        double sum = 0;
        for (int64_t column = 0; column < step; column++) sum += gained[row * step + column];
        total[row] += sum;
    }
    return keeps(m, i, state);
}
