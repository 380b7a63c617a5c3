/* A failure says why, once, where it is found: return gw_fail(why, GW_ERR_CORRUPT, "segment %u: …"). */
#ifndef GW_BASE_WHY_H
#define GW_BASE_WHY_H

#include <gradwire/base.h>

#include <stdarg.h>

/* Fills *why (if there is one) and returns `status`. A text that is too long is cut in the middle: a chain of reasons
 * begins with where it failed and ends with the cause. */
__attribute__((format(printf, 3, 4))) gw_status gw_fail(gw_why *why, gw_status status,
                                                        const char *format, ...);
__attribute__((format(printf, 2, 0))) void gw_why_write(gw_why *why, const char *format,
                                                        va_list args);
/* "rank 2 gave up: REASON", GW_ERR_PEER. A rank that gives up because another did passes the other's words on, not its
 * own, so that a chain names the rank that failed first. `reason` may be NULL. */
gw_status gw_gave_up(gw_why *why, uint32_t rank, const char *reason);

/* The same, with a status that the compiler and clang-tidy can see: GW_OK it is not. */
#define GW_FAIL(why, status, ...) ((void)gw_fail(why, status, __VA_ARGS__), (status))

/* Begins a public function: refuses a call without what it needs, a handle or a place for the answer. */
#define GW_REQUIRE(why, met, otherwise)                                                            \
    do {                                                                                           \
        if (!(met)) {                                                                              \
            return GW_FAIL(why, GW_ERR_ARG, "%s: %s", __func__, otherwise);                        \
        }                                                                                          \
    } while (0)

/* For a function that reads the reason of what it calls: `why`, or `own` if the caller passed NULL. */
static inline gw_why *gw_why_or(gw_why *why, gw_why *own)
{
    return why != NULL ? why : own;
}

#endif
