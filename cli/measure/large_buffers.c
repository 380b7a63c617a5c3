/* Large buffers; see large_buffers.h. */
#include "cli/measure/large_buffers.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, SKEW = 17 * 4096, SKEWS = 16 };

gw_cli_huge gw_cli_huge_open(size_t bytes, size_t number)
{
    /* whole huge pages, so that neighbouring mappings share none */
    gw_cli_huge huge = {.mapped = (bytes / HUGE_PAGE + 3) * HUGE_PAGE};
    void *p = mmap(NULL, huge.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return (gw_cli_huge){0};
    }
    huge.mapping = p;
    huge.data =
        (uint8_t *)p + (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE + number % SKEWS * SKEW;
    (void)madvise(p, huge.mapped, MADV_HUGEPAGE);
    memset(huge.data, 1, bytes);
    return huge;
}

void gw_cli_huge_close(gw_cli_huge *huge)
{
    if (huge->mapping) {
        (void)munmap(huge->mapping, huge->mapped);
    }
    *huge = (gw_cli_huge){0};
}
