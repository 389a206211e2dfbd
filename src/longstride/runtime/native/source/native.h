/* What all files here share: values, instructions, the machine that carries them out, and the threads it may share work
   with. A graph is a list of instructions over a table of values. Shapes are found while it runs.

   A row's numbers come from one and the same code whatever stands beside it, so that a block of tokens gives bit for bit
   what its tokens give one by one: integers are summed in products, and all that is in fp32 is done row by row, by a
   function that is told nothing of other rows. */

#pragma once

#include <stddef.h>
#include <stdint.h>

enum { MOST_DIMENSIONS = 6, MOST_INPUTS = 12, MOST_OUTPUTS = 12, MOST_ATTRIBUTES = 12 };

/* as ONNX numbers its types; a bool is one byte, 0 or 1 */
enum { F32 = 1, I64 = 7, BOOL = 9, F64 = 11 };

/* Operators by number, which Python asks for (operator_names). ONNX operators by their ONNX names. */
#define OPERATORS(X) \
    X(Abs) X(Add) X(And) X(ArgMax) X(Cast) X(Concat) X(Div) X(Equal) X(Expand) X(Gather) X(GatherElements) X(GatherND) \
    X(Gelu) X(Greater) X(GreaterOrEqual) X(Identity) X(Less) X(LessOrEqual) X(LogSoftmax) X(MatMul) X(Max) X(Min) \
    X(Mul) X(Not) X(Or) X(Pad) X(Range) X(ReduceMax) X(ReduceSum) X(Relu) X(Reshape) X(Shape) \
    X(Sigmoid) X(Slice) X(Softmax) X(Split) X(Squeeze) X(Sub) X(TopK) X(Transpose) X(Unsqueeze) X(Where) \
    X(Linear) X(Norm) X(Attend) X(Write) X(Move) X(Assign) X(Append) X(Accumulate) X(Portion) X(Join) X(Best) X(Chain) X(Largest) X(LogShares) X(Tree) X(Listed)

/* One tensor, rows side by side without gaps (C order). 80 bytes. */
typedef struct {
    void *data;
    int32_t kind;
    int32_t rank;
    int64_t sizes[MOST_DIMENSIONS];
    int32_t buffer;  /* which of the machine's buffers its numbers lie in; -1: in memory that was given from outside */
    int32_t fixed;  /* 1: data and sizes never change (constants, what a call is given) */
    int64_t held;   /* bytes of memory from outside that it may be written to (an output's); 0: none of its own */
} value;

/* One operator. 192 bytes or so: its size is asked for from Python (sizes_of), and so are the places of its fields. */
typedef struct {
    int32_t code;          /* which operator: its place in OPERATORS */
    int32_t inputs;        /* how many */
    int32_t outputs;
    int32_t input[MOST_INPUTS];   /* numbers of values; -1: left out */
    int32_t output[MOST_OUTPUTS];
    int32_t spare;
    int64_t attribute[MOST_ATTRIBUTES]; /* what each means is said where the operator is */
    const void *weights;   /* what was prepared for it ahead (a packed matrix), or NULL */
} instruction;

/* Memory for values that are made on the way. Values that never live at the same time share a buffer. It grows. */
typedef struct {
    void *data;      /* begins at a multiple of 64 bytes */
    int64_t size;
} buffer;

typedef struct pool pool;

typedef struct machine {
    value *values;
    int64_t value_count;
    const instruction *instructions;
    int64_t instruction_count;
    buffer *buffers;
    int64_t buffer_count;
    pool *pool;   /* NULL: this thread alone */
    void *scratch;       /* of whichever operator runs, through take_scratch */
    int64_t scratch_size;
    const char *error;   /* what was wrong, where an operator gave something else than 0 */
    int64_t *clock;      /* NULL, or nanoseconds by instruction, to which every run adds its own */
    int64_t portion;     /* the row at which the next portion begins: see op_Portion */
    int64_t next;        /* the instruction to go on with */
} machine;

/* An operator: reads values, makes its outputs by `give`, 0 if all is well. It is carried out by the machine's own
   thread, and may share work. */
typedef int (*operator)(machine *, const instruction *);

/* NULL: it is left out */
static inline value *input_of(machine *m, const instruction *i, int number) {
    return number >= i->inputs || i->input[number] < 0 ? NULL : m->values + i->input[number];
}

static inline int64_t count_of(const value *v) {
    int64_t count = 1;
    for (int d = 0; d < v->rank; d++) count *= v->sizes[d];
    return count;
}

int64_t bytes_of(int32_t kind);   /* of one element */

/* Says what output `number` is and gives memory for it (kept from call to call, 64 bytes more than asked for). NULL where
   there is none, with the error set. An output whose data comes from outside (buffer -1, data set) keeps it. */
void *give(machine *m, const instruction *i, int number, int32_t kind, int32_t rank, const int64_t *sizes);

/* Output `number` has the numbers of an input (a Reshape): it points to them. The execution plan keeps buffers apart accordingly. */
void alias(machine *m, const instruction *i, int number, const value *of, int32_t rank, const int64_t *sizes);

/* Memory for an operator's own use, until the next operator. 64-byte aligned. NULL where there is none. */
void *take_scratch(machine *m, int64_t bytes);

int wrong(machine *m, const char *what);   /* sets the error, gives 1 */

/* Work in parts that do not depend on each other: part(context, 0) ... part(context, parts - 1), by this thread and by
   whichever others are awake; all are done when it comes back. Which thread does which is not determined. */
void share(pool *pool, void (*part)(void *context, int64_t number), void *context, int64_t parts);

/* 1 where parts may run side by side at all: otherwise cutting work up is of no use */
int64_t threads_of(const pool *pool);

/* Of the thread that asks: 0 is the caller of `share`, others have theirs for good */
int thread_number(void);

/* All threads will read this soon, each an equal share of it in order: those that wait fetch theirs. */
void foresee(pool *p, const void *data, int64_t bytes);

/* Makes threads, `threads` in all, the caller's own included; where fewer can be had, those. NULL where there is no memory. */
pool *make_pool(int threads);

/* nobody may be sharing work any more */
void end_pool(pool *p);

/* Work will come soon: threads that sleep are woken, so that they have come by then. Costs nothing where none sleeps. */
void wake(pool *p);
