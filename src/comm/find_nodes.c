/* Which ranks share a node: every rank says where it runs, and equal answers are one node. */
#define _DEFAULT_SOURCE
#include "base/hash.h"
#include "base/why.h"

#include <gradwire/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACE = 320 };

/* The running kernel and the network namespace. A host's name says neither: cloned machines have the same one. */
static void find_place(char text[PLACE])
{
    char boot[64] = "";
    struct stat net;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL) {
            boot[0] = '\0';
        }
        (void)fclose(file);
    }
    if (boot[0] != '\0' && stat("/proc/self/ns/net", &net) == 0) {
        (void)snprintf(text, PLACE, "%s/%llu/%llu", boot, (unsigned long long)net.st_dev,
                       (unsigned long long)net.st_ino);
        return;
    }
    char host[256] = "?"; /* not Linux */
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(text, PLACE, "host %s", host);
}

gw_status gw_comm_nodes(gw_comm *comm, const char *node, double timeout, uint32_t *node_of,
                        gw_why *why)
{
    if (comm == NULL || node_of == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_comm_nodes: no comm, or no place for the result");
    }
    char place[PLACE];
    uint64_t *said = calloc(comm->ranks, sizeof *said);
    if (said == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare the nodes of %u ranks",
                       comm->ranks);
    }
    if (node == NULL) {
        find_place(place);
    }
    const char *text = node != NULL ? node : place;
    const uint64_t own = gw_hash(text, strlen(text), node != NULL);
    const gw_status status = gw_comm_gather(comm, &own, sizeof own, said, timeout, why);
    for (uint32_t r = 0; r < comm->ranks && status == GW_OK; r++) {
        uint32_t first = 0; /* the lowest rank of this node gives the node its number */
        while (said[first] != said[r]) {
            first++;
        }
        node_of[r] = first;
    }
    free(said);
    return status;
}
