/* Weight matrices quantized and packed for products.

   Those of a model lie one behind the other in large pieces of memory, in the order in which they were packed, which is
   about the order in which they are read: pages are large where the system has such (a step reads all of a model's
   weights, and small pages' addresses alone would not fit where a processor keeps them), and what is fetched ahead of a
   matrix's end is the next one's beginning. */

#define _DEFAULT_SOURCE   /* madvise */

#include "product.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 1 << 21, PIECE = 32 << 20, BORDER = 64 };

/* --- memory ------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t size, used;
    int64_t users;   /* matrices in it that are still there */
} piece;             /* at the beginning of the memory itself */

typedef struct {
    packed about;
    piece *from;
} kept;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static piece *current;   /* where the next matrix goes, as long as there is room */

/* A process is forked while nobody holds it: in the child there is nobody to give it back. */
static pthread_once_t fork_is_watched = PTHREAD_ONCE_INIT;

static void lock(void) { pthread_mutex_lock(&mutex); }

static void unlock(void) { pthread_mutex_unlock(&mutex); }

static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

static int64_t up_to(int64_t size, int64_t border) { return (size + border - 1) / border * border; }

/* Zeros. NULL where there is no memory. */
static char *take(int64_t bytes, piece **from) {
    bytes = up_to(bytes, BORDER);
    pthread_once(&fork_is_watched, watch_forks);
    lock();
    if (!current || current->used + bytes > current->size) {
        int64_t size = up_to(BORDER + bytes > PIECE ? BORDER + bytes : PIECE, PAGE);
        piece *fresh = mmap(NULL, (size_t)(size + PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == MAP_FAILED) {
            unlock();
            return NULL;
        }
        /* What stands before the first border of large pages, and behind the last, is given back. */
        char *first = (char *)fresh, *begin = (char *)(uintptr_t)up_to((int64_t)(uintptr_t)first, PAGE);
        if (begin > first) munmap(first, (size_t)(begin - first));
        if (first + PAGE > begin) munmap(begin + size, (size_t)(first + PAGE - begin));
#ifdef MADV_HUGEPAGE
        madvise(begin, (size_t)size, MADV_HUGEPAGE);
#endif
        if (current && !current->users) munmap(current, (size_t)current->size);
        current = (piece *)(void *)begin;
        *current = (piece){.size = size, .used = BORDER};
    }
    char *found = (char *)current + current->used;
    current->used += bytes;
    current->users++;
    *from = current;
    unlock();
    return found;
}

static void let_go(piece *from) {
    lock();
    if (!--from->users) {
        if (from == current) current = NULL;
        munmap(from, (size_t)from->size);
    }
    unlock();
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* One output's codes, every four of them PANEL fours from the next; its scale */
static float pack_codes(const float *weight, int64_t inputs, int8_t *to, int64_t *sum) {
    const float levels = (float)WEIGHT_LEVELS;   /* above zero, and as many below */
    float largest = FLT_MIN * 127.0f;   /* a scale is never zero, nor too small to divide by */
    for (int64_t input = 0; input < inputs; input++) {
        float size = fabsf(weight[input]);
        largest = size > largest ? size : largest;
    }
    float scale = largest / levels;
    *sum = 0;
    for (int64_t input = 0; input < inputs; input++) {
        float code = rintf(weight[input] / scale);   /* half to even */
        code = code > levels ? levels : code < -levels ? -levels : code;
        to[input / FOUR * FOUR * PANEL + input % FOUR] = (int8_t)code;
        *sum += (int64_t)code;
    }
    return scale;
}

void *pack_linear(const float *weight, const float *bias, int64_t outputs, int64_t inputs, int64_t precision) {
    int64_t panels = (outputs + PANEL - 1) / PANEL, fours = (inputs + FOUR - 1) / FOUR, width = panels * PANEL;
    int whole = precision == 8;
    int64_t panel_bytes = whole ? fours * FOUR * PANEL : inputs * PANEL * (int64_t)sizeof(float);
    kept *k = calloc(1, sizeof(kept));
    if (!k) return NULL;
    int64_t vector_bytes = width * (int64_t)sizeof(float);
    char *memory = take(panels * panel_bytes + vector_bytes * (whole ? 3 : 1), &k->from);
    if (!memory) {
        free(k);
        return NULL;
    }
    int8_t *panel = (int8_t *)memory;
    float *biases = (float *)(void *)(memory + panels * panel_bytes), *scales = biases + width;
    int32_t *surplus = (int32_t *)(void *)(scales + width);
    for (int64_t output = 0; output < outputs; output++) {
        const float *from = weight + output * inputs;
        int8_t *own = panel + output / PANEL * panel_bytes;
        if (whole) {
            int64_t sum;
            scales[output] = pack_codes(from, inputs, own + output % PANEL * FOUR, &sum);
            surplus[output] = (int32_t)(sum * ZERO_POINT);
        } else {
            float *to = (float *)(void *)own + output % PANEL;
            for (int64_t input = 0; input < inputs; input++) to[input * PANEL] = from[input];
        }
        biases[output] = bias ? bias[output] : 0.0f;
    }
    k->about = (packed){outputs, inputs, precision, panels, fours, panel_bytes, panel, whole ? scales : NULL, biases,
                        whole ? surplus : NULL};
    return k;
}

void free_linear(void *given) {
    kept *k = given;
    if (!k) return;
    let_go(k->from);
    free(k);
}

int has_integer_products(void) {
#ifdef DOT_NAME
    return 1;
#else
    return 0;
#endif
}

int weight_levels(void) { return WEIGHT_LEVELS; }
