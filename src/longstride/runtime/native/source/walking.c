/* Broadcasting: the shape that comes out, and all lines of it one after the other. */

#include "operators.h"

int broadcast(int count, const value *const *given, int32_t *rank, int64_t *sizes, walk *found) {
    int32_t most = 0;
    for (int t = 0; t < count; t++)
        if (given[t]->rank > most) most = given[t]->rank;
    *rank = most;
    int64_t passed[MOST_WALKED] = {1, 1, 1}; /* elements in the dimensions behind this one */
    int32_t last = -1;
    for (int32_t d = most - 1; d >= 0; d--) {
        int64_t size = 1, step[MOST_WALKED] = {0, 0, 0};
        for (int t = 0; t < count; t++) {
            int32_t own = d - (most - given[t]->rank);
            int64_t length = own < 0 ? 1 : given[t]->sizes[own];
            if (length == 1) continue;
            if (size != 1 && size != length) return 1;
            size = length;
            step[t] = passed[t];
            passed[t] *= length;
        }
        sizes[d] = size;
        if (size == 1) continue;
        int alike = last >= 0;
        for (int t = 0; alike && t < count; t++) alike = step[t] == found->steps[t][last] * found->sizes[last];
        if (alike) {
            found->sizes[last] *= size;
            continue;
        }
        last++;
        found->sizes[last] = size;
        for (int t = 0; t < count; t++) found->steps[t][last] = step[t];
    }
    if (last < 0) {
        last = 0;
        found->sizes[0] = 1;
        for (int t = 0; t < count; t++) found->steps[t][0] = 1;
    }
    found->rank = last + 1;
    found->weight = 1;
    return 0;
}

typedef struct {
    const walk *walk;
    line each;
    int count;
    char *out;
    int64_t out_bytes;
    const char *given[MOST_WALKED];
    int64_t bytes[MOST_WALKED];
    int64_t lines, together;   /* lines in all, and those of a part */
    int64_t piece, pieces;     /* or, where lines are long, numbers of a part, and parts of a line */
} errand;

/* Lines first ... end - 1, or a piece of one: as many at a time as lie in one row of dimension 1 */
static void walk_part(void *context, int64_t number) {
    const errand *e = context;
    const walk *w = e->walk;
    int64_t first = number / e->pieces * e->together, end = smaller(first + e->together, e->lines);
    int64_t from = number % e->pieces * e->piece, row = w->rank > 1 ? w->sizes[1] : 1;
    sheet s = {.n = smaller(e->piece, w->sizes[0] - from), .out_jump = w->sizes[0]};
    for (int t = 0; t < e->count; t++) {
        s.steps[t] = w->steps[t][0];
        s.jumps[t] = w->rank > 1 ? w->steps[t][1] : 0;
    }
    for (int64_t j = first; j < end; j += s.lines) {
        const void *here[MOST_WALKED] = {NULL};
        int64_t within = j % row;
        s.lines = smaller(row - within, end - j);
        for (int t = 0; t < e->count; t++) {
            int64_t place = from * s.steps[t] + within * s.jumps[t], rest = j / row;
            for (int32_t d = 2; d < w->rank; d++) {
                place += rest % w->sizes[d] * w->steps[t][d];
                rest /= w->sizes[d];
            }
            here[t] = e->given[t] + place * e->bytes[t];
        }
        e->each(e->out + (j * w->sizes[0] + from) * e->out_bytes, here, &s);
    }
}

void walk_lines(machine *m, const walk *w, line each, value *out, int count, const value *const *given) {
    errand e = {.walk = w, .each = each, .count = count, .out = out->data, .out_bytes = bytes_of(out->kind)};
    e.lines = product_of(w->sizes, 1, w->rank);
    int64_t numbers = e.lines * w->sizes[0];
    if (numbers == 0) return;
    for (int t = 0; t < count; t++) {
        e.given[t] = given[t]->data;
        e.bytes[t] = bytes_of(given[t]->kind);
    }
    e.piece = w->sizes[0];
    e.pieces = 1;
    e.together = e.lines;
    if (numbers * w->weight >= WORTH_SHARING) {
        int64_t enough = NUMBERS_OF_A_PART / w->weight;
        e.piece = smaller(w->sizes[0], enough);
        e.pieces = (w->sizes[0] + e.piece - 1) / e.piece;
        e.together = e.pieces > 1 ? 1 : larger(1, enough / w->sizes[0]);
    }
    in_parts(m, walk_part, &e, (e.lines + e.together - 1) / e.together * e.pieces, numbers * w->weight);
}
