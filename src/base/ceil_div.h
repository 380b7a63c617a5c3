/* How many units of b hold a, the last perhaps not full. */
#ifndef GW_BASE_CEIL_DIV_H
#define GW_BASE_CEIL_DIV_H

#include <stdint.h>

static inline uint64_t gw_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
