/* Write: new slots into a cache, in its own memory, each row's from its own place on. */

#include <string.h>

#include "native.h"

/* inputs: state [rows, heads, slots, head]; new, heads side by side [rows, step, width] or apart [rows, heads, step, head];
   start I64 [rows]. attributes: heads; part and parts, where what is new, heads side by side, is one of so many equal parts
   of wider rows (parts 0: it is all of it) */
int op_Write(machine *m, const instruction *i) {
    const value *state = input_of(m, i, 0), *new = input_of(m, i, 1), *start = input_of(m, i, 2);
    if (state->kind != F32 || new->kind != F32 || state->rank != 4 || start->kind != I64)
        return wrong(m, "Write expects fp32 slots [rows, heads, slots, head] and places in int64");
    const int64_t rows = state->sizes[0], heads = state->sizes[1], slots = state->sizes[2], head = state->sizes[3];
    const int apart = new->rank == 4;
    const int64_t step = new->sizes[apart ? 2 : 1], parts = i->attribute[2] ? i->attribute[2] : 1;
    if ((!apart && new->rank != 3) || new->sizes[0] != rows || count_of(new) != parts * rows * heads * step * head ||
        (apart && new->sizes[1] != heads) || count_of(start) != rows)
        return wrong(m, "Write expects new slots, and places, for as many rows and heads as the cache has");
    const int64_t *from = start->data;
    for (int64_t row = 0; row < rows; row++)
        if (from[row] < 0 || from[row] + step > slots) return wrong(m, "Write expects room for all new slots in the cache");
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < heads; h++) {
            float *to = (float *)state->data + ((row * heads + h) * slots + from[row]) * head;
            const float *given = (const float *)new->data + i->attribute[1] * heads * head;
            if (apart) {
                memcpy(to, given + (row * heads + h) * step * head, (size_t)(step * head) * sizeof(float));
                continue;
            }
            for (int64_t slot = 0; slot < step; slot++)
                memcpy(to + slot * head, given + ((row * step + slot) * parts * heads + h) * head, (size_t)head * sizeof(float));
        }
    alias(m, i, 0, state, state->rank, state->sizes);
    return 0;
}
