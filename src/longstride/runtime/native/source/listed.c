/* Listed: Linear for few outputs, which each row of a batch has a list of. The rows of the matrix that are listed are read
   where they lie, one run of memory each, so that nothing is gathered: x [batch, slots, inputs] and ids [batch, words] ->
   [batch, slots, words].

   Where a processor sums products of bytes, unsigned ones times signed ones, states are shifted to be unsigned and what
   that adds is taken away again; elsewhere plain loops, which compilers turn into what there is. Either way the sums are
   the same whole numbers, and a number depends on its own row and output alone. */

#include "operators.h"
#include "product.h"

enum {
    TOGETHER = 16,   /* words that one part does */
    SLOTS = 4,       /* that a row is multiplied with at a time */
    NEXT = 4,        /* words between what is read and what is fetched */
    LINE = 64        /* bytes that are fetched at a time */
};

typedef struct {
    const float *scale;    /* [outputs]; int8 only */
    const char *matrix;    /* [outputs, row_bytes] codes or floats */
    const float *x;        /* [batch, slots, inputs] */
    uint8_t *codes;        /* the same in 8 bits, [batch * slots, row_bytes]; NULL in fp32 */
    float *steps;          /* [batch * slots] what a step of each row's codes is worth */
    const int64_t *ids;
    float *to;
    int64_t slots, words, inputs, row_bytes, parts;
} listing;

/* A row with SLOTS others, `n` bytes each: one sum alone would wait for each of its steps. */
#ifdef DOT_LANES
enum { SHIFT = ZERO_POINT };

static void dot_bytes(const int8_t *row, const uint8_t *x, int64_t n, int32_t *sums) {
    static const uint8_t ones[LINE] = {[0 ... LINE - 1] = 1};
    whole_lanes found[SLOTS] = {{0}}, whole = {0};
    for (int64_t k = 0; k < n; k += LANES * FOUR) {
        whole = dot_lanes(whole, load_whole(ones), load_whole(row + k));
UNROLLED
        for (int s = 0; s < SLOTS; s++) found[s] = dot_lanes(found[s], load_whole(x + s * n + k), load_whole(row + k));
    }
UNROLLED
    for (int s = 0; s < SLOTS; s++) sums[s] = sum_of_whole_lanes(found[s] - whole * SHIFT);
}
#else
enum { SHIFT = 0 };

static void dot_bytes(const int8_t *row, const uint8_t *codes, int64_t n, int32_t *sums) {
    const int8_t *x = (const int8_t *)codes;
    int32_t a = 0, b = 0, c = 0, d = 0;
    for (int64_t k = 0; k < n; k++) {
        a += (int32_t)row[k] * (int32_t)x[k];
        b += (int32_t)row[k] * (int32_t)x[n + k];
        c += (int32_t)row[k] * (int32_t)x[2 * n + k];
        d += (int32_t)row[k] * (int32_t)x[3 * n + k];
    }
    memcpy(sums, (const int32_t[]){a, b, c, d}, SLOTS * sizeof *sums);
}
#endif

static float dot_floats(const float *x, const float *y, int64_t n) {
    lanes sums[4] = {{0}};
    int64_t k = 0;
    for (; k + 4 * LANES <= n; k += 4 * LANES)
        for (int s = 0; s < 4; s++) sums[s] = fused(load_lanes(x + k + s * LANES), load_lanes(y + k + s * LANES), sums[s]);
    float sum = sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; k < n; k++) sum += x[k] * y[k];
    return sum;
}

static void do_words(void *given, int64_t number) {
    const listing *l = given;
    const int64_t batch = number / l->parts, first = number % l->parts * TOGETHER, end = smaller(first + TOGETHER, l->words);
    const int64_t *ids = l->ids + batch * l->words;
    for (int64_t word = first; word < end; word++) {
        const char *row = l->matrix + ids[word] * l->row_bytes;
        const char *next = l->matrix + ids[smaller(word + NEXT, l->words - 1)] * l->row_bytes;
        for (int64_t line = 0; line < l->row_bytes; line += LINE) __builtin_prefetch(next + line, 0, 3);
        for (int64_t slot = 0; slot < l->slots; slot += SLOTS) {
            const int64_t place = batch * l->slots + slot, count = smaller(SLOTS, l->slots - slot);
            float *to = l->to + place * l->words + word;
            int32_t sums[SLOTS];
            if (l->codes) dot_bytes((const int8_t *)row, l->codes + place * l->row_bytes, l->row_bytes, sums);
            for (int64_t s = 0; s < count; s++)
                to[s * l->words] = l->codes
                    ? (float)sums[s] * l->steps[place + s] * l->scale[ids[word]]
                    : dot_floats((const float *)(const void *)row, l->x + (place + s) * l->inputs, l->inputs);
        }
    }
}

/* attributes: inputs, outputs, precision (8 or 32); weights: in 8 bits [outputs] scales, then rows of codes, each filled up
   with zeros to a multiple of LINE; in 32 rows of floats */
int op_Listed(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0), *ids = input_of(m, i, 1);
    const int64_t inputs = i->attribute[0], outputs = i->attribute[1], whole = i->attribute[2] == 8;
    if (!i->weights) return wrong(m, "Listed expects a matrix");
    if (x->kind != F32 || x->rank != 3 || x->sizes[2] != inputs) return wrong(m, "Listed expects rows of slots as wide as its matrix");
    if (ids->kind != I64 || ids->rank != 2 || ids->sizes[0] != x->sizes[0]) return wrong(m, "Listed expects a list for each row");
    if (!ids_within(ids, outputs)) return wrong(m, "Listed expects ids of its matrix, found one outside");
    const int64_t sizes[] = {x->sizes[0], x->sizes[1], ids->sizes[1]};
    listing l = {.x = x->data, .ids = ids->data, .slots = sizes[1], .words = sizes[2], .inputs = inputs};
    if ((l.to = give(m, i, 0, F32, 3, sizes)) == NULL) return 1;
    const int64_t rows = sizes[0] * sizes[1];
    if (!rows || !sizes[2]) return 0;
    l.scale = i->weights;
    l.matrix = whole ? (const char *)(l.scale + outputs) : i->weights;
    l.row_bytes = whole ? (inputs + LINE - 1) / LINE * LINE : inputs * (int64_t)sizeof(float);
    l.parts = (l.words + TOGETHER - 1) / TOGETHER;
    if (whole) {
        /* behind the last row as many as may be read with it */
        if ((l.codes = take_scratch(m, (rows + SLOTS) * (l.row_bytes + (int64_t)sizeof(float)))) == NULL) return 1;
        l.steps = (float *)(void *)(l.codes + (rows + SLOTS) * l.row_bytes);
        for (int64_t row = 0; row < rows; row++)
            l.steps[row] = quantize_row(l.x + row * inputs, inputs, SIGNED_LEVELS, SHIFT, l.codes + row * l.row_bytes, l.row_bytes);
    }
    in_parts(m, do_words, &l, sizes[0] * l.parts, rows * sizes[2] * inputs / 16);
    return 0;
}
