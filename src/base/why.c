/* Apart from status.c because every library of ours has a copy: it is not exported. */
#include "base/why.h"

#include <stdarg.h>
#include <stdio.h>

gw_status gw_fail(gw_why *why, gw_status status, const char *format, ...)
{
    if (why != NULL) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(why->text, sizeof why->text, format, args);
        va_end(args);
    }
    return status;
}
