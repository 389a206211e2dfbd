/* Moving elements as they are, whatever they mean. */

#ifndef LONGSTRIDE_COPYING_H
#define LONGSTRIDE_COPYING_H

#include <stdint.h>
#include <string.h>

/* Single numbers are most of what is copied, and calling memcpy for them would take longer than copying. */
static inline void copy_bytes(char *to, const char *from, int64_t bytes) {
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, (size_t)bytes);
}

/* The same element again and again: `bytes` is the size of one */
static inline void fill(char *to, const void *element, int64_t bytes, int64_t count) {
    if (bytes == 8) {
        uint64_t x;
        memcpy(&x, element, 8);
        for (int64_t j = 0; j < count; j++) memcpy(to + j * 8, &x, 8);
    } else if (bytes == 4) {
        uint32_t x;
        memcpy(&x, element, 4);
        for (int64_t j = 0; j < count; j++) memcpy(to + j * 4, &x, 4);
    } else {
        memset(to, *(const unsigned char *)element, (size_t)count);
    }
}

#endif
