#define _POSIX_C_SOURCE 200809L
#include "cuda/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *device_take(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 256, bytes != 0 ? bytes : 1) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

void device_give(void *p)
{
    free(p);
}

void device_put(void *to, const void *from, size_t bytes)
{
    if (bytes != 0) {
        memcpy(to, from, bytes);
    }
}

void device_get(void *to, const void *from, size_t bytes)
{
    if (bytes != 0) {
        memcpy(to, from, bytes);
    }
}

void device_fill(void *p, int byte, size_t bytes)
{
    memset(p, byte, bytes);
}

void device_wait(void)
{
}

void *device_stream(void)
{
    return NULL;
}
