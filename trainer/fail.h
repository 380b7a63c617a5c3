/* A failure in words, where it is found: return trainer_fail(why, GW_ERR_CORRUPT, "%s: …", path). */
#ifndef TRAINER_FAIL_H
#define TRAINER_FAIL_H

#include <gradwire/base.h>

__attribute__((format(printf, 3, 4))) gw_status trainer_fail(gw_why *why, gw_status status,
                                                             const char *format, ...);

#endif
