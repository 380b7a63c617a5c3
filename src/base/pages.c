#define _DEFAULT_SOURCE
#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

void *gw_pages_allocate(size_t bytes)
{
    if (bytes < HUGE_PAGE || bytes > SIZE_MAX - HUGE_PAGE) {
        return malloc(bytes + 1);
    }
    const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *data = aligned_alloc(HUGE_PAGE, whole);
#if defined(MADV_HUGEPAGE)
    if (data != NULL) {
        (void)madvise(data, whole, MADV_HUGEPAGE); /* a wish: it may be refused */
    }
#endif
    return data;
}
