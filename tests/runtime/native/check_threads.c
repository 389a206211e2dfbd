/* What test_threads.py runs: jobs of all sizes, by several callers at once, with sleeps between them; every part must have
   been done exactly once, with its own job's arguments, by the time `share` comes back. Gives 0 where that was so. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

enum { MOST = 300 };

typedef struct {
    pool *shared;
    int64_t parts, jobs;
    unsigned seed;
    _Atomic int32_t times[MOST];   /* that each part was done */
    int64_t inner;                 /* parts that each part shares out itself */
    _Atomic int64_t inner_times;
} job;

static void inner_part(void *given, int64_t number) {
    (void)number;
    job *j = given;
    atomic_fetch_add(&j->inner_times, 1);
}

static void part(void *given, int64_t number) {
    job *j = given;
    if (number < 0 || number >= j->parts) abort();
    for (volatile int spin = 0; spin < (number * 37) % 200; spin++) {}
    atomic_fetch_add(&j->times[number], 1);
    if (j->inner) share(j->shared, inner_part, j, j->inner);
}

static void *call(void *given) {
    job *j = given;
    for (int64_t number = 0; number < j->jobs; number++) {
        j->parts = rand_r(&j->seed) % MOST;
        j->inner = number % 7 == 0 ? 3 : 0;
        for (int64_t p = 0; p < MOST; p++) atomic_store(&j->times[p], 0);
        atomic_store(&j->inner_times, 0);
        if (number % 101 == 0) {   /* long enough for threads to fall asleep */
            struct timespec time = {.tv_nsec = 400000};
            nanosleep(&time, NULL);
        }
        if (number % 13 == 0) wake(j->shared);
        share(j->shared, part, j, j->parts);
        for (int64_t p = 0; p < MOST; p++)
            if (atomic_load(&j->times[p]) != (p < j->parts)) return (void *)"a part was not done exactly once";
        if (atomic_load(&j->inner_times) != j->parts * j->inner) return (void *)"a part's own parts were not all done";
    }
    return NULL;
}

static const char *callers(pool *shared, int count, int64_t jobs) {
    job *all = calloc((size_t)count, sizeof(job));
    pthread_t *threads = calloc((size_t)count, sizeof(pthread_t));
    const char *said = NULL;
    for (int number = 0; number < count; number++) {
        all[number].shared = shared;
        all[number].jobs = jobs;
        all[number].seed = (unsigned)number + 1;
        pthread_create(&threads[number], NULL, call, &all[number]);
    }
    for (int number = 0; number < count; number++) {
        void *found;
        pthread_join(threads[number], &found);
        if (found) said = found;
    }
    free(threads);
    free(all);
    return said;
}

static const char *forked(pool *shared) {
    if (threads_of(shared) < 2) return "there are no threads";
    pid_t child = fork();
    if (!child) {
        const char *said = threads_of(shared) == 1 ? callers(shared, 1, 50) : "a child has its parent's threads";
        wake(shared);
        end_pool(shared);
        pool *own = make_pool(2);
        if (!said) said = callers(own, 1, 50);
        end_pool(own);
        _exit(said != NULL);
    }
    int status;
    waitpid(child, &status, 0);
    return status ? "a forked process did not do its work alone" : NULL;
}

int main(int count, char **given) {
    const int64_t jobs = count > 1 ? atoi(given[1]) : 1000;
    const char *said = NULL;
    for (int threads = 1; threads <= 5 && !said; threads++) {
        pool *shared = make_pool(threads);
        for (int people = 1; people <= 3 && !said; people++) said = callers(shared, people, jobs);
        if (!said && threads > 1) said = forked(shared);
        end_pool(shared);
        end_pool(make_pool(threads));
    }
    if (!said) said = callers(NULL, 2, 20);
    if (said) printf("%s\n", said);
    return said != NULL;
}
