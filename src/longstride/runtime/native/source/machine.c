/* The machine: carries out a list of instructions in order, and keeps the memory of what they make.

   Memory is asked for when a value is first made, or is larger than ever before, and kept from run to run: after a few
   runs nothing is asked for any more. */

#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "operators.h"

enum { BORDER = 64, BEYOND = 64 };   /* of memory in bytes: where it begins, and what may be read behind its end */

#define DECLARED(NAME) int op_##NAME(machine *, const instruction *);
OPERATORS(DECLARED)

#define NAMED(NAME) op_##NAME,
static const operator OF_CODE[] = {OPERATORS(NAMED)};

enum { CODES = sizeof OF_CODE / sizeof *OF_CODE };

int64_t bytes_of(int32_t kind) {
    return kind == I64 || kind == F64 ? 8 : kind == F32 ? 4 : 1;
}

int wrong(machine *m, const char *what) {
    m->error = what;
    return 1;
}

/* At least so many bytes in place of what was there, whose content is not kept */
static void *enlarged(void *before, int64_t bytes, int64_t *size) {
    if (bytes <= *size && before) return before;
    int64_t wanted = bytes + bytes / 4;   /* lengths grow by one and one */
    wanted = (wanted + BEYOND + BORDER - 1) / BORDER * BORDER;
    free(before);
    void *found = aligned_alloc(BORDER, (size_t)wanted);
    *size = found ? wanted - BEYOND : 0;
    return found;
}

/* For `make native-asan`: of memory that may be larger, only so many bytes may be touched, and BEYOND read */
static void fence(void *memory, int64_t bytes, int64_t size) {
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(memory, (size_t)(size + BEYOND));
    ASAN_POISON_MEMORY_REGION((char *)memory + bytes + BEYOND, (size_t)(size - bytes));
#else
    (void)memory, (void)bytes, (void)size;
#endif
}

void *take_scratch(machine *m, int64_t bytes) {
    if (!m->scratch || bytes > m->scratch_size) {
        m->scratch = enlarged(m->scratch, bytes, &m->scratch_size);
        if (!m->scratch) wrong(m, "There is no memory left to work in.");
    }
    if (m->scratch) fence(m->scratch, bytes, m->scratch_size);
    return m->scratch;
}

static value *described(machine *m, const instruction *i, int number, int32_t kind, int32_t rank, const int64_t *sizes) {
    value *made = m->values + i->output[number];
    made->kind = kind;
    made->rank = rank;
    for (int d = 0; d < rank; d++) made->sizes[d] = sizes[d];
    return made;
}

void *give(machine *m, const instruction *i, int number, int32_t kind, int32_t rank, const int64_t *sizes) {
    value *made = described(m, i, number, kind, rank, sizes);
    int64_t bytes = count_of(made) * bytes_of(kind);
    if (made->held) {
        if (bytes > made->held) {
            wrong(m, "An output is larger than the memory that was given for it.");
            return NULL;
        }
        return made->data;
    }
    if (made->buffer < 0) {
        wrong(m, "A value has neither a buffer nor memory of its own.");
        return NULL;
    }
    buffer *within = m->buffers + made->buffer;
    if (!within->data || bytes > within->size) {
        within->data = enlarged(within->data, bytes, &within->size);
        if (!within->data) wrong(m, "There is no memory left for a value.");
    }
    if (within->data) fence(within->data, bytes, within->size);
    return made->data = within->data;
}

void alias(machine *m, const instruction *i, int number, const value *of, int32_t rank, const int64_t *sizes) {
    void *data = of->data;
    int32_t kind = of->kind;
    value *made = described(m, i, number, kind, rank, sizes);
    if (made->held && made->data != data) {   /* it goes out: whoever reads it looks there */
        int64_t bytes = count_of(made) * bytes_of(kind);
        if (bytes > made->held) {
            wrong(m, "An output is larger than the memory that was given for it.");
            return;
        }
        memcpy(made->data, data, (size_t)bytes);
    } else {
        made->data = data;
    }
}

/* --- portions ------------------------------------------------------------------------------------------------------ */

/* A stretch of instructions carried out for a portion of rows at a time, for what would be too large all at once.

   Portion stands before the stretch and gives views of the rows whose turn it is; Join stands behind it, puts what was
   made of them where it belongs, and goes back as long as there are rows left. Stretches do not lie within each other. */

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

/* --- rows in parts ------------------------------------------------------------------------------------------------- */

typedef struct {
    void (*rows)(void *, int64_t, int64_t);
    void *context;
    int64_t count, together;
} row_work;

static void do_rows(void *given, int64_t number) {
    const row_work *w = given;
    int64_t first = number * w->together;
    w->rows(w->context, first, smaller(first + w->together, w->count));
}

void in_rows(machine *m, void (*rows)(void *, int64_t, int64_t), void *context, int64_t count, int64_t numbers) {
    if (count == 0) return;
    row_work w = {rows, context, count, count};
    if (numbers >= WORTH_SHARING) w.together = larger(1, count * NUMBERS_OF_A_PART / numbers);
    in_parts(m, do_rows, &w, (count + w.together - 1) / w.together, numbers);
}

/* --- running ------------------------------------------------------------------------------------------------------- */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Carries out all instructions: 0, or one more than the number of the one that went wrong */
int64_t run(machine *m) {
    m->error = NULL;
    if (m->pool) wake(m->pool);
    int64_t before = m->clock ? now() : 0;
    m->portion = 0;
    for (int64_t number = 0; number < m->instruction_count; number = m->next) {
        m->next = number + 1;
        const instruction *i = m->instructions + number;
        if (i->code < 0 || i->code >= CODES) {
            wrong(m, "There is no operator of this number.");
            return number + 1;
        }
        if (OF_CODE[i->code](m, i) || m->error) return number + 1;
        if (m->clock) {
            int64_t after = now();
            m->clock[number] += after - before;
            before = after;
        }
    }
    return 0;
}

/* Gives back what a machine has asked for; the machine itself is not ours */
void empty(machine *m) {
    for (int64_t number = 0; number < m->buffer_count; number++) {
        free(m->buffers[number].data);
        m->buffers[number] = (buffer){NULL, 0};
    }
    free(m->scratch);
    m->scratch = NULL;
    m->scratch_size = 0;
}

/* For Python: the names of all operators, in the order of their codes */
const char *operator_names(void) {
#define SPELT(NAME) #NAME " "
    return OPERATORS(SPELT);
}

/* For Python, which has structures of its own: the sizes of ours */
void sizes_of(int64_t *found) {
    found[0] = sizeof(value);
    found[1] = sizeof(instruction);
    found[2] = sizeof(buffer);
    found[3] = sizeof(machine);
}
