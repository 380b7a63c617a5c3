/* Agreement; see train_agree.h. */
#include "train_agree.h"

#include <stdlib.h>

#include "train_record.h"

typedef struct verdict {
    gw_status status;
    gw_why why;
} verdict;

gw_status gw_cli_train_agree(gw_comm *comm, gw_status own, gw_why *why)
{
    const uint32_t ranks = comm->ranks;
    gw_request request = NULL;
    const verdict mine = {own, own == GW_OK ? (gw_why){""} : *why};
    verdict *all = calloc(ranks, sizeof *all);
    size_t *sizes = calloc(2 * (size_t)ranks, sizeof *sizes);
    if (!all || !sizes) {
        free(all);
        free(sizes);
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory");
    }
    for (uint32_t i = 0; i < ranks; i++) {
        sizes[i] = sizeof mine;
        sizes[ranks + i] = i * sizeof mine;
    }
    gw_status status =
        comm->table->allgatherv(comm, &mine, sizeof mine, all, sizes, sizes + ranks, &request, why);
    if (status == GW_OK) {
        status = gw_comm_wait(comm, request, GW_CLI_TRAIN_TIMEOUT, why);
    }
    for (uint32_t i = 0; i < ranks && status == GW_OK; i++) {
        if (all[i].status != GW_OK) {
            *why = all[i].why;
            status = all[i].status;
        }
    }
    free(all);
    free(sizes);
    return status;
}

gw_status gw_cli_train_tell(gw_comm *comm, void *bytes, size_t size, gw_why *why)
{
    gw_request request = NULL;
    const gw_status status = comm->table->broadcast(comm, bytes, size, 0, &request, why);
    return status == GW_OK ? gw_comm_wait(comm, request, GW_CLI_TRAIN_TIMEOUT, why) : status;
}
