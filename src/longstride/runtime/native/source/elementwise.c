/* Operators that make each number of one number, or of two or three that stand at the same place. */

#include <math.h>
#include <string.h>

#include "exponential.h"
#include "native.h"
#include "sharing.h"
#include "walking.h"

/* --- two numbers --------------------------------------------------------------------------------------------------- */

/* A line where `x` and `y` make an expression; the compiler makes vectors of each loop */
#define LINE_OF_TWO(NAME, IN, OUT, EXPRESSION)                                                              \
    static void NAME(void *to, const void *const *given, const int64_t *steps, int64_t n) {                \
        OUT *restrict out = to;                                                                             \
        const IN *first = given[0], *second = given[1];                                                     \
        if (steps[0] && steps[1])                                                                           \
            for (int64_t j = 0; j < n; j++) {                                                               \
                const IN x = first[j], y = second[j];                                                       \
                out[j] = (OUT)(EXPRESSION);                                                                 \
            }                                                                                               \
        else if (steps[0]) {                                                                                \
            const IN y = second[0];                                                                         \
            for (int64_t j = 0; j < n; j++) {                                                               \
                const IN x = first[j];                                                                      \
                out[j] = (OUT)(EXPRESSION);                                                                 \
            }                                                                                               \
        } else {                                                                                            \
            const IN x = first[0];                                                                          \
            for (int64_t j = 0; j < n; j++) {                                                               \
                const IN y = second[j];                                                                     \
                out[j] = (OUT)(EXPRESSION);                                                                 \
            }                                                                                               \
        }                                                                                                   \
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

/* Of F32, I64 and I32 the same kind comes out */
#define ARITHMETIC(NAME, EXPRESSION)                                                                        \
    LINE_OF_TWO(NAME##_f32, float, float, EXPRESSION)                                                       \
    LINE_OF_TWO(NAME##_i64, int64_t, int64_t, EXPRESSION)                                                   \
    LINE_OF_TWO(NAME##_i32, int32_t, int32_t, EXPRESSION)                                                   \
    int op_##NAME(machine *m, const instruction *i) {                                                       \
        int32_t kind = input_of(m, i, 0)->kind;                                                             \
        return of_two(m, i, kind, kind == F32 ? NAME##_f32 : kind == I64 ? NAME##_i64 : kind == I32 ? NAME##_i32 : NULL); \
    }

#define COMPARISON(NAME, EXPRESSION)                                                                        \
    LINE_OF_TWO(NAME##_f32, float, uint8_t, EXPRESSION)                                                     \
    LINE_OF_TWO(NAME##_i64, int64_t, uint8_t, EXPRESSION)                                                   \
    LINE_OF_TWO(NAME##_i32, int32_t, uint8_t, EXPRESSION)                                                   \
    LINE_OF_TWO(NAME##_bool, uint8_t, uint8_t, EXPRESSION)                                                  \
    int op_##NAME(machine *m, const instruction *i) {                                                       \
        int32_t kind = input_of(m, i, 0)->kind;                                                             \
        line each = kind == F32 ? NAME##_f32 : kind == I64 ? NAME##_i64 : kind == I32 ? NAME##_i32 : NULL;  \
        return of_two(m, i, BOOL, kind == BOOL ? NAME##_bool : each);                                       \
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
LINE_OF_TWO(Div_i32, int32_t, int32_t, y == -1 ? (int32_t)(0 - (uint32_t)x) : x / y)

int op_Div(machine *m, const instruction *i) {
    const value *by = input_of(m, i, 1);
    if (by->kind == F32) return of_two(m, i, F32, Div_f32);
    if (!is_integer(by)) return wrong(m, "booleans are not divided");
    for (int64_t j = 0, count = count_of(by); j < count; j++)
        if (integer_of(by, j) == 0) return wrong(m, "an integer was to be divided by zero");
    return of_two(m, i, by->kind, by->kind == I64 ? Div_i64 : Div_i32);
}

/* --- one number ---------------------------------------------------------------------------------------------------- */

#define LINE_OF_ONE(NAME, IN, OUT, EXPRESSION)                                                              \
    static void NAME(void *to, const void *const *given, const int64_t *steps, int64_t n) {                \
        (void)steps;                                                                                        \
        OUT *restrict out = to;                                                                             \
        const IN *from = given[0];                                                                          \
        for (int64_t j = 0; j < n; j++) {                                                                   \
            const IN x = from[j];                                                                           \
            out[j] = (OUT)(EXPRESSION);                                                                     \
        }                                                                                                   \
    }

static int of_one(machine *m, const instruction *i, int32_t kind, line each) {
    const value *x = input_of(m, i, 0);
    if (each == NULL) return wrong(m, "not for numbers of that kind");
    if (give(m, i, 0, kind, x->rank, x->sizes) == NULL) return 1;
    walk w = {.rank = 1, .sizes = {count_of(x)}, .steps = {{1}}};
    walk_lines(m, &w, each, m->values + i->output[0], 1, &x);
    return 0;
}

LINE_OF_ONE(abs_f32, float, float, __builtin_fabsf(x))
LINE_OF_ONE(abs_i64, int64_t, int64_t, x < 0 ? -x : x)
LINE_OF_ONE(abs_i32, int32_t, int32_t, x < 0 ? -x : x)
LINE_OF_ONE(relu_f32, float, float, x > 0 ? x : 0)
LINE_OF_ONE(not_bool, uint8_t, uint8_t, !x)
LINE_OF_ONE(gelu_f32, float, float, 0.5f * x * (1.0f + erff(x * 0.70710678f)))

int op_Abs(machine *m, const instruction *i) {
    int32_t kind = input_of(m, i, 0)->kind;
    return of_one(m, i, kind, kind == F32 ? abs_f32 : kind == I64 ? abs_i64 : kind == I32 ? abs_i32 : NULL);
}

int op_Relu(machine *m, const instruction *i) {
    return of_one(m, i, F32, input_of(m, i, 0)->kind == F32 ? relu_f32 : NULL);
}

int op_Not(machine *m, const instruction *i) {
    return of_one(m, i, BOOL, input_of(m, i, 0)->kind == BOOL ? not_bool : NULL);
}

int op_Gelu(machine *m, const instruction *i) {
    return of_one(m, i, F32, input_of(m, i, 0)->kind == F32 ? gelu_f32 : NULL);
}

/* 1 / (1 + e^-x) */
static void sigmoid_f32(void *to, const void *const *given, const int64_t *steps, int64_t n) {
    (void)steps;
    const float *from = given[0];
    float *out = to;
    const lanes one = all_lanes(1.0f);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) store_lanes(out + j, one / (one + exponential(-load_lanes(from + j))));
    if (j < n) store_some(out + j, one / (one + exponential(-load_some(from + j, n - j, 0.0f))), n - j);
}

int op_Sigmoid(machine *m, const instruction *i) {
    return of_one(m, i, F32, input_of(m, i, 0)->kind == F32 ? sigmoid_f32 : NULL);
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
    LINE_OF_ONE(NAME##_of_i32, int32_t, OUT, x)                                                             \
    LINE_OF_ONE(NAME##_of_bool, uint8_t, OUT, x)                                                            \
    static line NAME##_of(int32_t kind) {                                                                   \
        return kind == F32 ? NAME##_of_f32 : kind == I64 ? NAME##_of_i64 : kind == I32 ? NAME##_of_i32      \
            : kind == BOOL ? NAME##_of_bool : NULL;                                                         \
    }

CASTS_TO(f32, float)
CASTS_TO(i64, int64_t)
CASTS_TO(i32, int32_t)
LINE_OF_ONE(bool_of_f32, float, uint8_t, x != 0)
LINE_OF_ONE(bool_of_i64, int64_t, uint8_t, x != 0)
LINE_OF_ONE(bool_of_i32, int32_t, uint8_t, x != 0)

/* attribute: to */
int op_Cast(machine *m, const instruction *i) {
    const value *x = input_of(m, i, 0);
    int32_t to = (int32_t)i->attribute[0], kind = x->kind;
    if (to == kind) return op_Identity(m, i);
    line each = to == F32 ? f32_of(kind) : to == I64 ? i64_of(kind) : to == I32 ? i32_of(kind) : NULL;
    if (to == BOOL) each = kind == F32 ? bool_of_f32 : kind == I64 ? bool_of_i64 : kind == I32 ? bool_of_i32 : NULL;
    return of_one(m, i, to, each);
}

/* --- one of two ---------------------------------------------------------------------------------------------------- */

#define WHERE_LOOP(X, Y) for (int64_t j = 0; j < n; j++) out[j] = asked[j] ? X : Y

/* Of a kind of so many bits; what they mean does not matter */
#define LINE_OF_WHERE(NAME, TYPE)                                                                           \
    static void NAME(void *to, const void *const *given, const int64_t *steps, int64_t n) {                \
        TYPE *restrict out = to;                                                                            \
        const uint8_t *asked = given[0];                                                                    \
        const TYPE *x = given[1], *y = given[2];                                                            \
        if (!steps[0]) {                                                                                    \
            const TYPE *from = asked[0] ? x : y;                                                            \
            if (steps[asked[0] ? 1 : 2]) memcpy(out, from, (size_t)n * sizeof(TYPE));                       \
            else for (int64_t j = 0; j < n; j++) out[j] = from[0];                                          \
        } else if (steps[1] && steps[2])                                                                    \
            WHERE_LOOP(x[j], y[j]);                                                                         \
        else if (steps[1]) {                                                                                \
            const TYPE other = y[0];                                                                        \
            WHERE_LOOP(x[j], other);                                                                        \
        } else if (steps[2]) {                                                                              \
            const TYPE one = x[0];                                                                          \
            WHERE_LOOP(one, y[j]);                                                                          \
        } else {                                                                                            \
            const TYPE one = x[0], other = y[0];                                                            \
            WHERE_LOOP(one, other);                                                                         \
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
