/* Tensor names: checked, compared, and shown in a reason. */
#ifndef GW_BASE_NAME_H
#define GW_BASE_NAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* UTF-8 without NUL, overlong or surrogate forms: names end up in JSON and on terminals. */
int gw_name_is_utf8(const char *name, size_t bytes);

/* By bytes, as memcmp; of two that begin alike the shorter comes first. */
static inline int gw_name_compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int c = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return c != 0 ? c : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* The name, of a long one its beginning: a reason has 256 bytes. */
typedef struct gw_name_shown {
    char text[100];
} gw_name_shown;

gw_name_shown gw_name_show(const char *name, size_t bytes);

#endif
