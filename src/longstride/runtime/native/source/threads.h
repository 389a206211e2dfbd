/* Threads that help whoever shares work out (threads.c). What operators need of them, `share` and `threads_of`, is in
   native.h; this is for whoever makes and ends them. */

#ifndef LONGSTRIDE_THREADS_H
#define LONGSTRIDE_THREADS_H

#include "native.h"

typedef struct pool pool;

/* `threads` in all, the caller's own included; where fewer can be had, those. NULL where there is no memory. */
pool *make_pool(int threads);

/* nobody may be sharing work any more */
void end_pool(pool *p);

/* Work will come soon: threads that sleep are woken, so that they have come by then. Costs nothing where none sleeps. */
void wake(pool *p);

#endif
