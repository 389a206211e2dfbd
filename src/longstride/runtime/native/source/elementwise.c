/* Operators that make each number of one number, or of two or three that stand at the same place. */

#include "operators.h"

/* --- two numbers --------------------------------------------------------------------------------------------------- */

/* Lines where `x` and `y` make an expression; the compiler makes vectors of each loop */
#define LOOP(EXPRESSION_OF_J) for (int64_t j = 0; j < n; j++) out[j] = EXPRESSION_OF_J

#define LINE_OF_TWO(NAME, IN, OUT, EXPRESSION)                                                              \
    static inline OUT one_##NAME(IN x, IN y) { return (OUT)(EXPRESSION); }                                  \
    static void NAME(void *to, const void *const *given, const sheet *s) {                                  \
        OUT *restrict out = to;                                                                             \
        const IN *a = given[0], *b = given[1];                                                              \
        const int64_t n = s->n;                                                                             \
        for (int64_t l = s->lines; l > 0; l--, out += s->out_jump, a += s->jumps[0], b += s->jumps[1])      \
            if (s->steps[0] && s->steps[1])                                                                 \
                LOOP(one_##NAME(a[j], b[j]));                                                               \
            else if (s->steps[0]) {                                                                         \
                const IN y = b[0];                                                                          \
                LOOP(one_##NAME(a[j], y));                                                                  \
            } else {                                                                                        \
                const IN x = a[0];                                                                          \
                LOOP(one_##NAME(x, b[j]));                                                                  \
            }                                                                                               \
    }

static int of_two(machine *m, const instruction *i, int32_t kind, line each) {
    const value *given[2] = {input_of(m, i, 0), input_of(m, i, 1)};
    if (each == NULL || given[0]->kind != given[1]->kind) return wrong(m, "numbers of such kinds are not combined");
    int32_t rank;
    int64_t sizes[MOST_DIMENSIONS];
    walk w;
    if (broadcast(2, given, &rank, sizes, &w)) return wrong(m, "shapes do not fit each other");
    if (give(m, i, 0, kind, rank, sizes) == NULL) return 1;
    walk_lines(m, &w, each, m->values + i->output[0], 2, given);
    return 0;
}

/* Of F32 and I64 the same kind comes out */
#define ARITHMETIC(NAME, EXPRESSION)                                                                        \
    LINE_OF_TWO(NAME##_f32, float, float, EXPRESSION)                                                       \
    LINE_OF_TWO(NAME##_i64, int64_t, int64_t, EXPRESSION)                                                   \
    int op_##NAME(machine *m, const instruction *i) {                                                       \
        int32_t kind = input_of(m, i, 0)->kind;                                                             \
        return of_two(m, i, kind, kind == F32 ? NAME##_f32 : kind == I64 ? NAME##_i64 : NULL);              \
    }

#define COMPARISON(NAME, EXPRESSION)                                                                        \
    LINE_OF_TWO(NAME##_f32, float, uint8_t, EXPRESSION)                                                     \
    LINE_OF_TWO(NAME##_i64, int64_t, uint8_t, EXPRESSION)                                                   \
    LINE_OF_TWO(NAME##_bool, uint8_t, uint8_t, EXPRESSION)                                                  \
    int op_##NAME(machine *m, const instruction *i) {                                                       \
        int32_t kind = input_of(m, i, 0)->kind;                                                             \
        line each = kind == F32 ? NAME##_f32 : kind == I64 ? NAME##_i64 : kind == BOOL ? NAME##_bool : NULL; \
        return of_two(m, i, BOOL, each);                                                                    \
    }

#define LOGIC(NAME, EXPRESSION)                                                                             \
    LINE_OF_TWO(NAME##_bool, uint8_t, uint8_t, EXPRESSION)                                                  \
    int op_##NAME(machine *m, const instruction *i) {                                                       \
        return of_two(m, i, BOOL, input_of(m, i, 0)->kind == BOOL ? NAME##_bool : NULL);                    \
    }

ARITHMETIC(Add, x + y)
ARITHMETIC(Sub, x - y)
ARITHMETIC(Mul, x * y)
ARITHMETIC(Max, x > y ? x : y)
ARITHMETIC(Min, x < y ? x : y)
COMPARISON(Equal, x == y)
COMPARISON(Greater, x > y)
COMPARISON(GreaterOrEqual, x >= y)
COMPARISON(Less, x < y)
COMPARISON(LessOrEqual, x <= y)
LOGIC(And, x & y)
LOGIC(Or, x | y)

/* Integers are divided towards zero; the processor would stop at the smallest one divided by -1 */
LINE_OF_TWO(Div_f32, float, float, x / y)
LINE_OF_TWO(Div_i64, int64_t, int64_t, y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y)

int op_Div(machine *m, const instruction *i) {
    const value *by = input_of(m, i, 1);
    if (by->kind == F32) return of_two(m, i, F32, Div_f32);
    if (by->kind != I64) return wrong(m, "booleans are not divided");
    for (int64_t j = 0, count = count_of(by); j < count; j++)
        if (integer_of(by, j) == 0) return wrong(m, "an integer was to be divided by zero");
    return of_two(m, i, I64, Div_i64);
}

/* --- one number ---------------------------------------------------------------------------------------------------- */

#define LINE_OF_ONE(NAME, IN, OUT, EXPRESSION)                                                              \
    static inline OUT one_##NAME(IN x) { return (OUT)(EXPRESSION); }                                        \
    static void NAME(void *to, const void *const *given, const sheet *s) {                                  \
        OUT *restrict out = to;                                                                             \
        const IN *a = given[0];                                                                             \
        const int64_t n = s->n;                                                                             \
        LOOP(one_##NAME(a[j]));                                                                             \
    }

static int of_one_weighing(machine *m, const instruction *i, int32_t kind, line each, int32_t weight) {
    const value *x = input_of(m, i, 0);
    if (each == NULL) return wrong(m, "not for numbers of that kind");
    if (give(m, i, 0, kind, x->rank, x->sizes) == NULL) return 1;
    walk w = {.rank = 1, .weight = weight, .sizes = {count_of(x)}, .steps = {{1}}};
    walk_lines(m, &w, each, m->values + i->output[0], 1, &x);
    return 0;
}

static int of_one(machine *m, const instruction *i, int32_t kind, line each) {
    return of_one_weighing(m, i, kind, each, 1);
}

LINE_OF_ONE(abs_f32, float, float, __builtin_fabsf(x))
LINE_OF_ONE(abs_i64, int64_t, int64_t, x < 0 ? -x : x)
LINE_OF_ONE(relu_f32, float, float, x > 0 ? x : 0)
LINE_OF_ONE(not_bool, uint8_t, uint8_t, !x)

int op_Abs(machine *m, const instruction *i) {
    int32_t kind = input_of(m, i, 0)->kind;
    return of_one(m, i, kind, kind == F32 ? abs_f32 : kind == I64 ? abs_i64 : NULL);
}

int op_Relu(machine *m, const instruction *i) {
    return of_one(m, i, F32, input_of(m, i, 0)->kind == F32 ? relu_f32 : NULL);
}

int op_Not(machine *m, const instruction *i) {
    return of_one(m, i, BOOL, input_of(m, i, 0)->kind == BOOL ? not_bool : NULL);
}

/* Lanes at a time; what is left over as if zeros came after it */
#define LINE_OF_LANES(NAME, OF_LANES)                                                                       \
    static void NAME(void *to, const void *const *given, const sheet *s) {                                  \
        const float *from = given[0];                                                                       \
        float *out = to;                                                                                    \
        int64_t j = 0, n = s->n;                                                                            \
        for (; j + LANES <= n; j += LANES) store_lanes(out + j, OF_LANES(load_lanes(from + j)));            \
        if (j < n) store_some(out + j, OF_LANES(load_some(from + j, n - j, 0.0f)), n - j);                  \
    }

static inline lanes sigmoid(lanes x) {
    const lanes one = all_lanes(1.0f);
    return one / (one + exponential(-x));
}

/* x times the share of a normal distribution that lies below x: max(x, 0) - |x| e^-h, where e^-h is the share beyond |x|.
   h is nearly half a square: a polynomial of degree 10 is fitted to it as far as 6.5 (what it is off by changes the
   result by 4e-8 at most, or 5e-8 of it), beyond which less than 1e-9 would be left. */
static inline lanes gelu(lanes x) {
    const lanes zero = all_lanes(0.0f), far = greater_lanes(x, -x);
    lanes h = all_lanes(0x1.22ed4ep-26f);
    h = fused(h, far, all_lanes(-0x1.1a9edep-21f));
    h = fused(h, far, all_lanes(0x1.d2bdb6p-18f));
    h = fused(h, far, all_lanes(-0x1.a0c2aap-15f));
    h = fused(h, far, all_lanes(0x1.813182p-13f));
    h = fused(h, far, all_lanes(0x1.41fa9ap-16f));
    h = fused(h, far, all_lanes(-0x1.3cfdb0p-8f));
    h = fused(h, far, all_lanes(0x1.29e2eep-5f));
    h = fused(h, far, all_lanes(0x1.45f160p-2f));
    h = fused(h, far, all_lanes(0x1.988462p-1f));
    h = fused(h, far, all_lanes(0x1.62e430p-1f));
    const lanes less = choose(far > all_lanes(6.5f), zero, far * exponential(-h));
    return greater_lanes(x, zero) - less;
}

LINE_OF_LANES(sigmoid_f32, sigmoid)
LINE_OF_LANES(gelu_f32, gelu)

int op_Sigmoid(machine *m, const instruction *i) {
    return of_one_weighing(m, i, F32, input_of(m, i, 0)->kind == F32 ? sigmoid_f32 : NULL, 4);
}

int op_Gelu(machine *m, const instruction *i) {
    return of_one_weighing(m, i, F32, input_of(m, i, 0)->kind == F32 ? gelu_f32 : NULL, 8);
}

int op_Identity(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    alias(m, i, 0, x, x->rank, x->sizes);
    return 0;
}

/* --- kinds --------------------------------------------------------------------------------------------------------- */

#define CASTS_TO(NAME, OUT)                                                                                 \
    LINE_OF_ONE(NAME##_of_f32, float, OUT, x)                                                               \
    LINE_OF_ONE(NAME##_of_i64, int64_t, OUT, x)                                                             \
    LINE_OF_ONE(NAME##_of_bool, uint8_t, OUT, x)                                                            \
    static line NAME##_of(int32_t kind) {                                                                   \
        return kind == F32 ? NAME##_of_f32 : kind == I64 ? NAME##_of_i64 : kind == BOOL ? NAME##_of_bool : NULL; \
    }

CASTS_TO(f32, float)
CASTS_TO(i64, int64_t)
LINE_OF_ONE(bool_of_f32, float, uint8_t, x != 0)
LINE_OF_ONE(bool_of_i64, int64_t, uint8_t, x != 0)

/* attribute: to */
int op_Cast(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t to = (int32_t)i->attribute[0], kind = x->kind;
    if (to == kind) return op_Identity(m, i);
    line each = to == F32 ? f32_of(kind) : to == I64 ? i64_of(kind) : NULL;
    if (to == BOOL) each = kind == F32 ? bool_of_f32 : kind == I64 ? bool_of_i64 : NULL;
    return of_one(m, i, to, each);
}

/* --- one of two ---------------------------------------------------------------------------------------------------- */

/* Of a kind of so many bits; what they mean does not matter */
#define LINE_OF_WHERE(NAME, TYPE)                                                                           \
    static void NAME(void *to, const void *const *given, const sheet *s) {                                  \
        TYPE *restrict out = to;                                                                            \
        const uint8_t *c = given[0];                                                                        \
        const TYPE *a = given[1], *b = given[2];                                                            \
        const int64_t n = s->n;                                                                             \
        for (int64_t l = s->lines; l > 0; l--) {                                                            \
            const TYPE x = a[0], y = b[0];                                                                  \
            if (!s->steps[0] && s->steps[*c ? 1 : 2])                                                       \
                memcpy(out, *c ? a : b, (size_t)n * sizeof(TYPE));                                          \
            else if (!s->steps[0])                                                                          \
                LOOP(*c ? x : y);                                                                           \
            else if (s->steps[1] && s->steps[2])                                                            \
                LOOP(c[j] ? a[j] : b[j]);                                                                   \
            else if (s->steps[1])                                                                           \
                LOOP(c[j] ? a[j] : y);                                                                      \
            else if (s->steps[2])                                                                           \
                LOOP(c[j] ? x : b[j]);                                                                      \
            else                                                                                            \
                LOOP(c[j] ? x : y);                                                                         \
            out += s->out_jump;                                                                             \
            c += s->jumps[0];                                                                               \
            a += s->jumps[1];                                                                               \
            b += s->jumps[2];                                                                               \
        }                                                                                                   \
    }

LINE_OF_WHERE(where_32, uint32_t)
LINE_OF_WHERE(where_64, uint64_t)
LINE_OF_WHERE(where_8, uint8_t)

int op_Where(machine *m, const instruction *i) {
    const value *given[3] = {input_of(m, i, 0), input_of(m, i, 1), input_of(m, i, 2)};
    if (given[0]->kind != BOOL || given[1]->kind != given[2]->kind) return wrong(m, "Where expects a boolean and two alike");
    int64_t bytes = bytes_of(given[1]->kind);
    int32_t rank;
    int64_t sizes[MOST_DIMENSIONS];
    walk w;
    if (broadcast(3, given, &rank, sizes, &w)) return wrong(m, "shapes do not fit each other");
    if (give(m, i, 0, given[1]->kind, rank, sizes) == NULL) return 1;
    line each = bytes == 4 ? where_32 : bytes == 8 ? where_64 : where_8;
    walk_lines(m, &w, each, m->values + i->output[0], 3, given);
    return 0;
}
