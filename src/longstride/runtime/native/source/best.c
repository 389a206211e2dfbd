/* The best of a vocabulary: where the largest number of each row stands, the first of equals, without writing down what
   it is the largest of: a sum, or all but what is forbidden. */

#include "operators.h"
#include "product.h"

enum { STRETCH = 2048 }; /* numbers that are still near when their largest is looked for once more */

typedef struct {
    const float *x, *added; /* added may be NULL */
    const float *most;      /* [rows, panels] the largest of every PANEL numbers of x, or NULL */
    int64_t n;
    int64_t *to;
    const int64_t *cuts;    /* [forbidden] places that do not count, in order */
    int64_t forbidden;
    int32_t rank;           /* where a row of `added` lies: dimensions before the last, and elements to go on by */
    const int64_t *sizes;
    int64_t steps[MOST_DIMENSIONS];
} looking;

static const float *added_row(const looking *l, int64_t row) {
    int64_t place = 0;
    for (int32_t d = l->rank - 2; d >= 0; d--) {
        place += row % l->sizes[d] * l->steps[d];
        row /= l->sizes[d];
    }
    return l->added + place;
}

static int64_t best_of_row(const looking *l, int64_t row) {
    const float *x = l->x + row * l->n, *y = l->added ? added_row(l, row) : NULL;
    const float *most = l->most ? l->most + row * ((l->n + PANEL - 1) / PANEL) : NULL;
    float best = -__builtin_inff();
    int64_t from = 0, length = 0; /* the stretch where it was found */
    for (int64_t c = 0, begin = 0; c <= l->forbidden; c++) {
        int64_t end = c < l->forbidden ? l->cuts[c] : l->n;
        for (int64_t here; begin < end; begin += here) {
            here = smaller(STRETCH, end - begin);
            if (most && end - begin >= PANEL) {
                if (begin % PANEL) {   /* up to a panel's beginning */
                    here = PANEL - begin % PANEL;
                } else {
                    here = (end - begin) / PANEL * PANEL;
                    const float *panels = most + begin / PANEL;
                    float found = greatest(panels, here / PANEL);
                    if (found > best) {
                        best = found;
                        from = begin + first_equal(panels, here / PANEL, found) * PANEL;
                        length = PANEL;
                    }
                    continue;
                }
            }
            float found = y ? greatest_sum(x + begin, y + begin, here) : greatest(x + begin, here);
            if (found > best) {
                best = found;
                from = begin;
                length = here;
            }
        }
        begin = end + 1;
    }
    return from + (y ? first_equal_sum(x + from, y + from, length, best) : first_equal(x + from, length, best));
}

static void best_of_rows(void *context, int64_t first, int64_t end) {
    const looking *l = context;
    for (int64_t row = first; row < end; row++) l->to[row] = best_of_row(l, row);
}

/* Forbidden ids as places in order, each once -> how many; -1 where one lies outside */
static int64_t cuts_of(const value *forbidden, int64_t n, int64_t *cuts) {
    int64_t kept = 0;
    for (int64_t j = 0, count = count_of(forbidden); j < count; j++) {
        int64_t place = integer_of(forbidden, j), at = kept;
        if (place < 0) place += n;
        if (place < 0 || place >= n) return -1;
        while (at > 0 && cuts[at - 1] > place) at--;
        if (at > 0 && cuts[at - 1] == place) continue;
        for (int64_t k = kept++; k > at; k--) cuts[k] = cuts[k - 1];
        cuts[at] = place;
    }
    return kept;
}

/* inputs: x [..., n]; added or left out, broadcast against x, whose last dimension is n too; forbidden ids or left out;
   the largest of every panel of x [..., panels], as Linear gives it, or left out (as it is where something is added) */
int op_Best(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *added = input_of(m, i, 1), *forbidden = input_of(m, i, 2);
    if (x->kind != F32 || x->rank < 1 || x->sizes[x->rank - 1] == 0) return wrong(m, "Best expects rows of F32");
    int32_t last = x->rank - 1;
    looking l = {.x = x->data, .n = x->sizes[last], .rank = x->rank, .sizes = x->sizes};
    int64_t rows = product_of(x->sizes, 0, last);
    const value *most = input_of(m, i, 3);
    if (most && (added || most->kind != F32 || count_of(most) != rows * ((l.n + PANEL - 1) / PANEL)))
        return wrong(m, "Best expects the largest of every panel of a row");
    if (most) l.most = most->data;
    if (added) {
        if (added->kind != F32 || added->rank > x->rank || added->rank < 1 || added->sizes[added->rank - 1] != l.n)
            return wrong(m, "Best expects to add rows of the same length");
        l.added = added->data;
        int64_t passed = l.n;
        for (int32_t d = added->rank - 2, of = last - 1; d >= 0; d--, of--) {
            if (added->sizes[d] == 1) continue;
            if (added->sizes[d] != x->sizes[of]) return wrong(m, "Best expects to add what fits");
            l.steps[of] = passed;
            passed *= added->sizes[d];
        }
    }
    if (forbidden && count_of(forbidden)) {
        int64_t *cuts = take_scratch(m, count_of(forbidden) * (int64_t)sizeof(int64_t));
        if (cuts == NULL) return 1;
        l.cuts = cuts;
        l.forbidden = cuts_of(forbidden, l.n, cuts);
        if (l.forbidden < 0) return wrong(m, "a forbidden id lies outside of the vocabulary");
    }
    if ((l.to = give(m, i, 0, I64, last, x->sizes)) == NULL) return 1;
    in_rows(m, best_of_rows, &l, rows, most ? count_of(most) : rows * l.n);
    return 0;
}
