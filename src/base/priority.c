#define _GNU_SOURCE
#include "base/priority.h"

#ifdef __linux__
#    include <stdint.h>
#    include <sys/resource.h>
#    include <sys/syscall.h>
#    include <unistd.h>

/* The kernel's struct sched_attr, its first version. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice, deadline, period; /* ns */
};

/* A thread that asks for a short slice has an early deadline when it wakes (Linux 6.12), without any right to more of the
 * core than others. 0 ns: the system's own. */
static void ask_for_slice(uint64_t nanoseconds)
{
    const struct attributes wish = {
        .size = sizeof wish, .nice = getpriority(PRIO_PROCESS, 0), .slice = nanoseconds};
    (void)syscall(SYS_sched_setattr, 0, &wish, 0U);
}

void gw_turn_soon(void)
{
    ask_for_slice(100000);
}

void gw_turn_as_usual(void)
{
    ask_for_slice(0);
}

void gw_turn_late(void)
{
    (void)setpriority(PRIO_PROCESS, 0, 19); /* 0 is the thread here, elsewhere the process */
}
#else
void gw_turn_soon(void)
{
}

void gw_turn_as_usual(void)
{
}

void gw_turn_late(void)
{
}
#endif
