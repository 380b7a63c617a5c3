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
    const verdict mine = {own, own == GW_OK ? (gw_why){""} : *why};
    verdict *all = calloc(ranks, sizeof *all);
    if (!all) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory");
    }
    gw_status status = gw_comm_gather(comm, &mine, sizeof mine, all, GW_CLI_TRAIN_TIMEOUT, why);
    for (uint32_t i = 0; i < ranks && status == GW_OK; i++) {
        if (all[i].status != GW_OK) {
            *why = all[i].why;
            status = all[i].status;
        }
    }
    free(all);
    return status;
}

gw_status gw_cli_train_tell(gw_comm *comm, void *bytes, size_t size, gw_why *why)
{
    return gw_comm_share(comm, bytes, size, 0, GW_CLI_TRAIN_TIMEOUT, why);
}
