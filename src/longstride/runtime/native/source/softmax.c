/* Softmax and LogSoftmax over the last axis. A row is cut into stretches of equal length, whatever stands beside it: the
   largest number of each and the sum of e^(x - largest) are found first, by whichever thread, and put together in
   order. */

#include <math.h>

#include "operators.h"

enum { STRETCH = 2048 };

typedef struct {
    float largest, sum;
} portion;

typedef struct {
    const float *x;
    float *to;
    int64_t rows, n, stretches;           /* stretches of a row */
    const value *chosen;                  /* [batch, each, 1] which of x [batch, slots, inner, n] they are; NULL: all */
    int64_t each, slots, inner;
    portion *portions;                    /* [rows, stretches], and then one for each row */
    int logarithm;
} shares;

static __attribute__((noinline)) portion look_at(const float *x, int64_t n) {
    const lanes lowest = all_lanes(-__builtin_inff());
    lanes most = lowest, more = lowest;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        most = greater_lanes(load_lanes(x + j), most);
        more = greater_lanes(load_lanes(x + j + LANES), more);
    }
    for (; j + LANES <= n; j += LANES) most = greater_lanes(load_lanes(x + j), most);
    if (j < n) most = greater_lanes(load_some(x + j, n - j, -__builtin_inff()), most);
    portion found = {greatest_lane(greater_lanes(most, more)), 0.0f};
    if (found.largest == -__builtin_inff()) return found; /* all of it is forbidden */
    const lanes largest = all_lanes(found.largest);
    lanes sum = all_lanes(0.0f), other = sum;
    for (j = 0; j + 2 * LANES <= n; j += 2 * LANES) {
        sum += exponential(load_lanes(x + j) - largest);
        other += exponential(load_lanes(x + j + LANES) - largest);
    }
    for (; j + LANES <= n; j += LANES) sum += exponential(load_lanes(x + j) - largest);
    if (j < n) sum += exponential(load_some(x + j, n - j, -__builtin_inff()) - largest);
    found.sum = sum_of_lanes(sum + other);
    return found;
}

/* [stretches] -> the row's largest number, and its sum or the sum's logarithm */
static __attribute__((noinline)) portion put_together(const portion *each, int64_t stretches, int logarithm) {
    portion all = each[0];
    if (stretches > 1) {
        for (int64_t s = 1; s < stretches; s++)
            if (each[s].largest > all.largest) all.largest = each[s].largest;
        all.sum = 0.0f;
        for (int64_t s = 0; s < stretches; s++)
            all.sum += each[s].sum * exponential_of_one(each[s].largest - all.largest);
    }
    if (logarithm) all.sum = logf(all.sum);
    return all;
}

static __attribute__((noinline)) void finish(const float *x, float *to, int64_t n, portion all, int logarithm) {
    int64_t j = 0;
    const lanes largest = all_lanes(all.largest), sum = all_lanes(all.sum);
    if (logarithm) {
        for (; j + LANES <= n; j += LANES) store_lanes(to + j, load_lanes(x + j) - largest - sum);
        if (j < n) store_some(to + j, load_some(x + j, n - j, 0.0f) - largest - sum, n - j);
        return;
    }
    for (; j + LANES <= n; j += LANES) store_lanes(to + j, exponential(load_lanes(x + j) - largest) / sum);
    if (j < n) store_some(to + j, exponential(load_some(x + j, n - j, 0.0f) - largest) / sum, n - j);
}

static const float *row_of(const shares *s, int64_t row) {
    if (s->chosen) {
        const int64_t number = row / s->inner, slot = place_of(integer_of(s->chosen, number), s->slots);
        row = (number / s->each * s->slots + slot) * s->inner + row % s->inner;
    }
    return s->x + row * s->n;
}

static void look_at_stretches(void *context, int64_t from, int64_t end) {
    const shares *s = context;
    for (int64_t j = from; j < end; j++) {
        int64_t first = j % s->stretches * STRETCH;
        s->portions[j] = look_at(row_of(s, j / s->stretches) + first, smaller(STRETCH, s->n - first));
    }
}

static void finish_stretches(void *context, int64_t from, int64_t end) {
    const shares *s = context;
    for (int64_t j = from; j < end; j++) {
        int64_t row = j / s->stretches, first = j % s->stretches * STRETCH, place = row * s->n + first;
        portion all = s->portions[s->rows * s->stretches + row];
        finish(s->x + place, s->to + place, smaller(STRETCH, s->n - first), all, s->logarithm);
    }
}

/* The largest number and the sum of every row, into `portions` behind those of stretches */
static int look_at_rows(machine *m, shares *s) {
    s->stretches = (s->n + STRETCH - 1) / STRETCH;
    int64_t all = s->rows * s->stretches;
    s->portions = take_scratch(m, (all + s->rows) * (int64_t)sizeof(portion));
    if (s->portions == NULL) return 1;
    in_rows(m, look_at_stretches, s, all, s->rows * s->n);
    for (int64_t r = 0; r < s->rows; r++)
        s->portions[all + r] = put_together(s->portions + r * s->stretches, s->stretches, s->logarithm);
    return 0;
}

static int soften(machine *m, const instruction *i, int logarithm) {
    const value *x = input_of(m, i, 0);
    int32_t axis = axis_of(i->attribute[0], x->rank);
    if (x->kind != F32 || axis < 0 || product_of(x->sizes, axis + 1, x->rank) != 1)
        return wrong(m, "Softmax expects F32 and the last axis");
    shares s = {.x = x->data, .n = x->sizes[axis], .rows = product_of(x->sizes, 0, axis), .logarithm = logarithm};
    if ((s.to = give(m, i, 0, F32, x->rank, x->sizes)) == NULL) return 1;
    if (s.rows * s.n == 0) return 0;
    if (look_at_rows(m, &s)) return 1;
    in_rows(m, finish_stretches, &s, s.rows * s.stretches, s.rows * s.n);
    return 0;
}

/* attribute: axis */
int op_Softmax(machine *m, const instruction *i) { return soften(m, i, 0); }

int op_LogSoftmax(machine *m, const instruction *i) { return soften(m, i, 1); }

/* inputs: x [..., n], indices [..., k]; bit for bit what GatherElements over the last axis finds in LogSoftmax(x). A
   third, [batch, rows, 1]: of x [batch, slots, ..., n] these slots alone, as GatherND finds them. */
int op_LogShares(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *indices = input_of(m, i, 1), *chosen = input_of(m, i, 2);
    const int32_t last = x->rank - 1;
    int fit = x->kind == F32 && indices->kind == I64 && last >= 0 && indices->rank == x->rank;
    if (fit && chosen)
        fit = chosen->kind == I64 && last >= 2 && chosen->rank == 3 && chosen->sizes[0] == x->sizes[0] && chosen->sizes[2] == 1;
    for (int32_t d = 0; fit && d < last; d++) fit = (chosen && d == 1 ? chosen : x)->sizes[d] == indices->sizes[d];
    if (!fit) return wrong(m, "LogShares expects rows of F32, and integers for each of them");
    shares s = {.x = x->data, .n = x->sizes[last], .rows = product_of(indices->sizes, 0, last), .logarithm = 1};
    float *to = give(m, i, 0, F32, x->rank, indices->sizes);
    if (to == NULL) return 1;
    if (count_of(indices) == 0) return 0;
    if (chosen) {
        s.chosen = chosen, s.each = chosen->sizes[1], s.slots = x->sizes[1], s.inner = product_of(x->sizes, 2, last);
        if (!all_within(chosen, s.slots)) return wrong(m, OUTSIDE);
    }
    if (look_at_rows(m, &s)) return 1;
    const portion *rows = s.portions + s.rows * s.stretches;
    for (int64_t r = 0, j = 0; r < s.rows; r++)
        for (int64_t k = 0; k < indices->sizes[last]; k++, j++) {
            const int64_t place = place_of(integer_of(indices, j), s.n);
            if (place < 0) return wrong(m, OUTSIDE);
            to[j] = row_of(&s, r)[place] - rows[r].largest - rows[r].sum;
        }
    return 0;
}
