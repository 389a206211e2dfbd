/* A stretch of instructions carried out for a portion of rows at a time, for what would be too large all at once.

   Portion stands before the stretch and gives views of the rows whose turn it is; Join stands behind it, puts what was
   made of them where it belongs, and goes back as long as there are rows left. Stretches do not lie within each other. */

#include <string.h>

#include "native.h"

/* inputs [n, ...], all with as many rows -> as many outputs, views of some of the rows; attribute: how many at most */
int op_Portion(machine *m, const instruction *i) {
    for (int number = 0; number < i->inputs; number++) {
        const value *whole = input_of(m, i, number);
        if (whole->rank < 1) return wrong(m, "A portion is taken of rows: a value without dimensions has none.");
        int64_t rows = whole->sizes[0], left = rows - m->portion;
        int64_t sizes[MOST_DIMENSIONS];
        memcpy(sizes, whole->sizes, sizeof sizes);
        sizes[0] = left < i->attribute[0] ? left : i->attribute[0];
        int64_t row = rows ? count_of(whole) / rows * bytes_of(whole->kind) : 0;
        value view = *whole;
        view.data = (char *)whole->data + m->portion * row;
        alias(m, i, number, &view, whole->rank, sizes);
    }
    return 0;
}

/* inputs: one of Portion's own, and what was made of its rows; outputs: the latter, of all rows; attribute: how far back
   Portion stands, how many rows it gives at most */
int op_Join(machine *m, const instruction *i) {
    int64_t all = input_of(m, i, 0)->sizes[0], done = m->portion;
    int64_t here = all - done < i->attribute[1] ? all - done : i->attribute[1];
    for (int number = 0; number < i->outputs; number++) {
        const value *part = input_of(m, i, number + 1);
        if (part->rank < 1 || part->sizes[0] != here) return wrong(m, "A portion has other rows behind than before.");
        int64_t bytes = count_of(part) * bytes_of(part->kind), row = here ? bytes / here : 0;
        int64_t sizes[MOST_DIMENSIONS];
        memcpy(sizes, part->sizes, sizeof sizes);
        sizes[0] = all;
        char *whole = give(m, i, number, part->kind, part->rank, sizes);
        if (!whole) return 1;
        memcpy(whole + done * row, part->data, (size_t)bytes);
    }
    m->portion = done + here;
    if (m->portion < all) m->next -= 1 + i->attribute[0];
    else m->portion = 0;
    return 0;
}
