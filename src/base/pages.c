#define _DEFAULT_SOURCE
#include "base/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

void *gw_pages_allocate(size_t bytes)
{
    void *data = NULL;
    const size_t alignment = bytes < HUGE_PAGE ? LINE : HUGE_PAGE;
    if (posix_memalign(&data, alignment, bytes + 1) != 0) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (alignment == HUGE_PAGE) {
        (void)madvise(data, bytes, MADV_HUGEPAGE); /* a wish: it may be refused */
    }
#endif
    return data;
}
