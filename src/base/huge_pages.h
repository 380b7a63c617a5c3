/* Memory for buffers that are gone over again and again. */
#ifndef GW_BASE_HUGE_PAGES_H
#define GW_BASE_HUGE_PAGES_H

#include <stddef.h>

/* Begins on a cache line. Large ones lie on huge pages where the system grants them, so that going over them does not wait for
 * page tables, and an engine that copies between processes looks up few pages. Those that are gone over side by side take each its
 * `turn`, 0 to 15: large ones then begin at other cache sets. NULL: no memory. */
void *gw_pages_allocate(size_t bytes, unsigned turn);
void gw_pages_free(void *data); /* accepts NULL */

#endif
