/* What ranks of a training tell one another beside gradients. */
#ifndef GW_CLI_TRAIN_AGREE_H
#define GW_CLI_TRAIN_AGREE_H

#include <stdbool.h>

#include <gradwire/comm.h>

enum { GW_CLI_TRAIN_TIMEOUT = 300 }; /* seconds that a rank waits for the others */

/* Called by all, and a barrier. If any rank failed, all return a failure: a rank with a failure of its own returns that, the
 * others GW_ERR_PEER and "rank 2 gave up: ..." with the reason of the rank that found the cause. Where the ranks cannot be
 * compared, as after a changed byte, the group is aborted. */
gw_status gw_cli_train_agree(gw_comm *comm, gw_status own, gw_why *why);
/* Rank 0's bytes, at all. If it fails, the group is aborted. */
gw_status gw_cli_train_tell(gw_comm *comm, void *bytes, size_t size, gw_why *why);
/* At the end: returns when all ranks have come to it, or one has given up. */
gw_status gw_cli_train_part(gw_comm *comm, gw_why *why);
/* Whether a failure is another rank's, which reports it itself. */
bool gw_cli_train_heard(gw_status status, const gw_why *why);

#endif
