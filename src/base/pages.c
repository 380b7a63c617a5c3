#define _DEFAULT_SOURCE
#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

void *gw_pages_allocate(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE) {
        return NULL;
    }
    const size_t grain = bytes < HUGE_PAGE ? LINE : HUGE_PAGE;
    const size_t whole = (bytes / grain + 1) * grain;
    void *data = aligned_alloc(grain, whole);
#if defined(MADV_HUGEPAGE)
    if (data != NULL && grain == HUGE_PAGE) {
        (void)madvise(data, whole, MADV_HUGEPAGE); /* a wish: it may be refused */
    }
#endif
    return data;
}
