/* A few threads that help with a job cut into parts.

   They wait for work busily for a short while, since the next operator follows within microseconds, and then sleep. Parts
   are claimed one by one from a single word: the number of the job in its upper half, how many parts are left in its
   lower. A claim succeeds only while that very job has parts left, and a job's function and parts are changed only when
   all its parts are done: a thread that comes late, or was halted in between, finds nothing to take and can never carry
   out one job's part with another's arguments. The caller takes parts like anyone else, and waits only for those that
   others have claimed: never for a thread to wake up.

   A second caller at the same time, or a part that shares work itself, does its parts alone. So does a forked process,
   in which there are no such threads. */

#include "native.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("isb")   /* "yield" is nothing at all on most of them */
#else
#define PAUSE() ((void)0)
#endif

enum { LINE = 128 };   /* bytes that travel between processors together, their neighbour included */

static const int64_t BUSY_NANOSECONDS = 200000;
static const int PAUSES_BETWEEN_LOOKS = 64;     /* at the clock */
static const int PAUSES_BEFORE_YIELDING = 256;  /* a part's thread was halted: whoever waits for it makes room */
static const int64_t MOST_PARTS = INT32_MAX;    /* of one job */
enum { MOST_FETCHED = 256 << 10, FETCHED_AT_ONCE = 512 };   /* bytes, while waiting */

typedef void (*part_function)(void *context, int64_t number);

struct pool {
    /* the job: its number and how many parts nobody has claimed */
    _Alignas(LINE) _Atomic uint64_t word;

    /* changed only between jobs, by whoever holds `busy` */
    _Alignas(LINE) part_function part;
    void *context;
    int64_t parts;
    uint32_t rounding;

    _Alignas(LINE) _Atomic int64_t done;   /* parts that others than the caller have finished */
    _Alignas(LINE) atomic_flag busy;       /* somebody shares work out */

    _Alignas(LINE) pthread_mutex_t mutex;  /* of all that follows */
    pthread_cond_t woken;
    _Atomic int32_t sleepers;
    int64_t wakings;                       /* so far */
    _Atomic int32_t ending;

    int64_t forks;                         /* as many as there had been when it was made */
    int32_t threads;                       /* the caller's included */
    struct helper *others;

    /* what all will read next, a share for each: a thread that waits fetches its own */
    _Alignas(LINE) _Atomic(const char *) soon;
    _Atomic int64_t soon_bytes;
};

typedef struct helper {
    pthread_t thread;
    pool *of;
    int number;   /* among all, the caller being 0 */
} helper;

/* --- forks -------------------------------------------------------------------------------------------------------- */

static int64_t forks;   /* between this process and the first; changed only where no other thread can run */
static pthread_once_t fork_is_watched = PTHREAD_ONCE_INIT;

static void forked(void) { forks++; }

static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

/* --- how a thread rounds ------------------------------------------------------------------------------------------ */

/* Rounding, and whether the smallest numbers are taken for zero: its caller may have changed either since a thread began,
   and what comes out must not depend on who did which part. */
#if defined(__x86_64__)
enum { ROUNDING = 0xffc0 };   /* the rest tells what has happened */
static uint32_t rounding(void) { return __builtin_ia32_stmxcsr() & ROUNDING; }
static void round_as(uint32_t wanted) { __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~(uint32_t)ROUNDING) | wanted); }
#elif defined(__aarch64__)
static uint32_t rounding(void) {
    uint64_t found;
    __asm__ volatile("mrs %0, fpcr" : "=r"(found));
    return (uint32_t)found;
}
static void round_as(uint32_t wanted) { __asm__ volatile("msr fpcr, %0" :: "r"((uint64_t)wanted)); }
#else
static uint32_t rounding(void) { return 0; }
static void round_as(uint32_t wanted) { (void)wanted; }
#endif

/* --- claiming ----------------------------------------------------------------------------------------------------- */

static int64_t left_in(uint64_t word) { return (int64_t)(uint32_t)word; }

/* How many parts were left before one was claimed; 0: none. Those after it are not touched. */
static int64_t claim(pool *p) {
    uint64_t word = atomic_load_explicit(&p->word, memory_order_acquire);
    while (left_in(word))
        if (atomic_compare_exchange_weak_explicit(&p->word, &word, word - 1, memory_order_acq_rel, memory_order_acquire))
            return left_in(word);
    return 0;
}

/* Parts until none is left. How many. */
static int64_t take_parts(pool *p) {
    int64_t taken = 0;
    for (int64_t left = claim(p); left; left = claim(p), taken++) {
        if (!taken && rounding() != p->rounding) round_as(p->rounding);
        p->part(p->context, p->parts - left);
    }
    return taken;
}

/* --- the other threads -------------------------------------------------------------------------------------------- */

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int has_work(pool *p) { return left_in(atomic_load_explicit(&p->word, memory_order_acquire)) != 0; }

/* What was foreseen, as far as there is time */
static void fetch_own(pool *p, int own) {
    const char *from = atomic_exchange_explicit(&p->soon, NULL, memory_order_relaxed);
    if (!from) return;
    int64_t share = atomic_load_explicit(&p->soon_bytes, memory_order_relaxed) / p->threads;
    from += share * own;
    if (share > MOST_FETCHED) share = MOST_FETCHED;
    for (int64_t place = 0; place < share && !has_work(p); place += FETCHED_AT_ONCE)
        for (int64_t line = 0; line < FETCHED_AT_ONCE; line += 64) __builtin_prefetch(from + place + line, 0, 2);
}

static void wait_busily(pool *p, int own) {
    fetch_own(p, own);
    int64_t until = nanoseconds() + BUSY_NANOSECONDS;
    do {
        for (int pauses = 0; pauses < PAUSES_BETWEEN_LOOKS; pauses++) {
            if (has_work(p) || atomic_load_explicit(&p->ending, memory_order_relaxed)) return;
            PAUSE();
        }
    } while (nanoseconds() < until);
}

/* Whoever shares work out first publishes it and then looks for sleepers; this first says that it sleeps and then looks
   for work. Both in one order for all (seq_cst), so at least one sees the other. */
static void sleep_until_woken(pool *p) {
    pthread_mutex_lock(&p->mutex);
    int64_t wakings = p->wakings;
    atomic_fetch_add(&p->sleepers, 1);
    while (p->wakings == wakings && !left_in(atomic_load(&p->word)) && !atomic_load(&p->ending))
        pthread_cond_wait(&p->woken, &p->mutex);
    if (p->wakings == wakings) atomic_fetch_sub(&p->sleepers, 1);   /* otherwise whoever woke it has said so */
    pthread_mutex_unlock(&p->mutex);
}

static _Thread_local int number;   /* of this thread among those of its pool; 0: of none, or the caller */

int thread_number(void) { return number; }

static void *help(void *given) {
    const helper *h = given;
    pool *p = h->of;
    number = h->number;
    for (;;) {
        int64_t taken = take_parts(p);
        if (taken) atomic_fetch_add_explicit(&p->done, taken, memory_order_release);
        if (atomic_load(&p->ending)) return NULL;
        wait_busily(p, number);
        if (!has_work(p) && !atomic_load(&p->ending)) sleep_until_woken(p);
    }
}

void wake(pool *p) {
    if (!p || p->forks != forks || !atomic_load(&p->sleepers)) return;
    pthread_mutex_lock(&p->mutex);
    p->wakings++;
    atomic_store(&p->sleepers, 0);
    pthread_cond_broadcast(&p->woken);
    pthread_mutex_unlock(&p->mutex);
}

/* --- sharing out -------------------------------------------------------------------------------------------------- */

static void do_alone(part_function part, void *context, int64_t parts) {
    for (int64_t number = 0; number < parts; number++) part(context, number);
}

void share(pool *p, part_function part, void *context, int64_t parts) {
    if (parts < 2 || parts > MOST_PARTS || threads_of(p) < 2 ||
        atomic_flag_test_and_set_explicit(&p->busy, memory_order_acquire)) {
        do_alone(part, context, parts);
        return;
    }
    p->part = part;
    p->context = context;
    p->parts = parts;
    p->rounding = rounding();
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&p->word, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->word, job << 32 | (uint64_t)parts);
    wake(p);
    int64_t others = parts - take_parts(p);
    for (int pauses = 0; atomic_load_explicit(&p->done, memory_order_acquire) != others; pauses++) {
        if (pauses < PAUSES_BEFORE_YIELDING) PAUSE();
        else sched_yield();
    }
    atomic_flag_clear_explicit(&p->busy, memory_order_release);
}

void foresee(pool *p, const void *data, int64_t bytes) {
    if (threads_of(p) < 2) return;
    atomic_store_explicit(&p->soon_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&p->soon, data, memory_order_relaxed);
}

int64_t threads_of(const pool *p) { return p && p->forks == forks ? p->threads : 1; }

/* --- making and ending -------------------------------------------------------------------------------------------- */

pool *make_pool(int threads) {
    pthread_once(&fork_is_watched, watch_forks);
    int64_t size = (int64_t)(sizeof(pool) + LINE - 1) / LINE * LINE;
    pool *p = aligned_alloc(LINE, (size_t)size);
    if (!p) return NULL;
    *p = (pool){.forks = forks, .threads = 1};
    atomic_flag_clear(&p->busy);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->woken, NULL);
    p->others = threads > 1 ? calloc((size_t)threads - 1, sizeof(helper)) : NULL;
    if (!p->others) return p;
    /* signals are for the threads that were there before */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; p->threads < threads; p->threads++) {
        helper *h = p->others + p->threads - 1;
        *h = (helper){.of = p, .number = p->threads};
        if (pthread_create(&h->thread, NULL, help, h)) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p;
}

void end_pool(pool *p) {
    if (!p) return;
    if (p->forks == forks) {
        atomic_store(&p->ending, 1);
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->woken);
        pthread_mutex_unlock(&p->mutex);
        for (int number = 0; number + 1 < p->threads; number++) pthread_join(p->others[number].thread, NULL);
        pthread_cond_destroy(&p->woken);
        pthread_mutex_destroy(&p->mutex);
    }
    free(p->others);
    free(p);
}
