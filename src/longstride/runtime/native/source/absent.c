/* Stands in for what is not written yet. */
#include "codes.h"
#include "native.h"

#define ABSENT(NAME) \
    __attribute__((weak)) int op_##NAME(machine *m, const instruction *i) { \
        (void)i; \
        return wrong(m, #NAME " is not there yet"); \
    }
OPERATORS(ABSENT)

__attribute__((weak)) void wake(struct pool *pool) { (void)pool; }
__attribute__((weak)) struct pool *make_pool(int threads) { (void)threads; return 0; }
__attribute__((weak)) void end_pool(struct pool *pool) { (void)pool; }
__attribute__((weak)) int64_t threads_of(const struct pool *pool) { (void)pool; return 1; }
__attribute__((weak)) int has_integer_products(void) { return 0; }
__attribute__((weak)) void *pack_linear(const float *w, const float *b, int64_t n, int64_t k, int64_t p, int64_t s) {
    (void)w; (void)b; (void)n; (void)k; (void)p; (void)s;
    return 0;
}
__attribute__((weak)) void free_linear(void *packed) { (void)packed; }
__attribute__((weak)) void share(struct pool *pool, void (*part)(void *, int64_t), void *context, int64_t parts) {
    (void)pool;
    for (int64_t number = 0; number < parts; number++) part(context, number);
}
