#include "trainer/fail.h"

#include <stdarg.h>
#include <stdio.h>

gw_status trainer_fail(gw_why *why, gw_status status, const char *format, ...)
{
    if (why != NULL) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(why->text, sizeof why->text, format, args);
        va_end(args);
    }
    return status;
}
