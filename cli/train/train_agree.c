/* Agreement; see train_agree.h. */
#include "cli/train/train_agree.h"

#include <stdlib.h>
#include <string.h>

#include "cli/train/train_record.h"

typedef struct verdict {
    gw_status status;
    gw_why why;
} verdict;

static const char HEARD[] = " gave up: ";

bool gw_cli_train_heard(gw_status status, const gw_why *why)
{
    return status == GW_ERR_PEER && strstr(why->text, HEARD);
}

/* The other ranks do not know of it yet. */
static gw_status give_up(gw_comm *comm, gw_status status, const gw_why *why)
{
    comm->table->abort(comm, why->text[0] ? why->text : gw_status_string(status));
    return status;
}

/* The first rank that failed for a reason of its own; if there is none, the first that failed. NULL: none did. */
static const verdict *cause_of(const verdict *all, uint32_t ranks)
{
    const verdict *first = NULL;
    for (uint32_t i = 0; i < ranks; i++) {
        if (all[i].status != GW_OK && !gw_cli_train_heard(all[i].status, &all[i].why)) {
            return &all[i];
        }
        first = first == NULL && all[i].status != GW_OK ? &all[i] : first;
    }
    return first;
}

/* A rank that failed keeps its reason, unless several ranks have the same one. A reason that is too long loses its
 * beginning: its cause is at the end. */
static gw_status judge(const verdict *all, const gw_comm *comm, gw_why *why)
{
    const verdict *own = &all[comm->rank], *first = cause_of(all, comm->ranks);
    if (first == NULL || first == own ||
        (own->status != GW_OK && strcmp(own->why.text, first->why.text) != 0)) {
        return own->status;
    }
    const char *text = first->why.text[0] ? first->why.text : gw_status_string(first->status);
    const size_t size = strlen(text), most = 220;
    return gw_cli_train_fail(why, GW_ERR_PEER, "rank %u%s%s", (unsigned)(first - all), HEARD,
                             text + (size > most ? size - most : 0));
}

gw_status gw_cli_train_agree(gw_comm *comm, gw_status own, gw_why *why)
{
    const verdict mine = {own, own == GW_OK ? (gw_why){""} : *why};
    verdict *all = calloc(comm->ranks, sizeof *all);
    gw_why words = {""};
    gw_status status =
        all ? gw_comm_gather(comm, &mine, sizeof mine, all, GW_CLI_TRAIN_TIMEOUT, &words)
            : gw_cli_train_fail(&words, GW_ERR_MEMORY, "no memory");
    if (!all || status != GW_OK) {
        *why = own == GW_OK ? words : *why;
        status = give_up(comm, own == GW_OK ? status : own, why);
    } else {
        status = judge(all, comm, why);
    }
    free(all);
    return status;
}

gw_status gw_cli_train_tell(gw_comm *comm, void *bytes, size_t size, gw_why *why)
{
    const gw_status status = gw_comm_share(comm, bytes, size, 0, GW_CLI_TRAIN_TIMEOUT, why);
    return status == GW_OK ? status : give_up(comm, status, why);
}

gw_status gw_cli_train_part(gw_comm *comm, gw_why *why)
{
    gw_request request = NULL;
    gw_status status = comm->table->barrier(comm, &request, why);
    if (status == GW_OK) {
        status = gw_comm_wait(comm, request, GW_CLI_TRAIN_TIMEOUT, why);
    }
    return status == GW_OK ? status : give_up(comm, status, why);
}
