/* A failure says why, once, where it is found: return gw_fail(why, GW_ERR_CORRUPT, "segment %u: …"). */
#ifndef GW_BASE_WHY_H
#define GW_BASE_WHY_H

#include <gradwire/base.h>

/* Fills *why (if there is one) and returns `status`. */
__attribute__((format(printf, 3, 4))) gw_status gw_fail(gw_why *why, gw_status status,
                                                        const char *format, ...);

/* The same, with a status that the compiler and clang-tidy can see: GW_OK it is not. */
#define GW_FAIL(why, status, ...) ((void)gw_fail(why, status, __VA_ARGS__), (status))

#endif
