#define _DEFAULT_SOURCE
#include "base/huge_pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The first line holds where the block begins. A turn is 51 lines, so that few meet again within the 64 sets of a first-level cache. */
enum { LINE = 64, TURN = 51 * LINE, LARGE = 64 << 10, HUGE_PAGE = 2 << 20 };

void *gw_pages_allocate(size_t bytes, unsigned turn)
{
    void *block = NULL;
    const size_t before = LINE + (bytes < LARGE ? 0 : turn * (size_t)TURN);
    const size_t alignment = bytes < HUGE_PAGE ? LINE : HUGE_PAGE;
    if (bytes > SIZE_MAX - before || posix_memalign(&block, alignment, before + bytes) != 0) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (alignment == HUGE_PAGE) {
        (void)madvise(block, before + bytes, MADV_HUGEPAGE); /* a wish: it may be refused */
    }
#endif
    unsigned char *data = (unsigned char *)block + before;
    memcpy(data - LINE, &block, sizeof block);
    return data;
}

void gw_pages_free(void *data)
{
    if (data != NULL) {
        void *block = NULL;
        memcpy(&block, (unsigned char *)data - LINE, sizeof block);
        free(block);
    }
}
