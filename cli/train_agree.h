/* What ranks of a training tell one another beside gradients. */
#ifndef GW_CLI_TRAIN_AGREE_H
#define GW_CLI_TRAIN_AGREE_H

#include <gradwire/comm.h>

enum { GW_CLI_TRAIN_TIMEOUT = 300 }; /* seconds that a rank waits for the others */

/* Called by all, and a barrier: the first failure, in order of rank, becomes everyone's, with its words. */
gw_status gw_cli_train_agree(gw_comm *comm, gw_status own, gw_why *why);
/* Rank 0's bytes, at all. */
gw_status gw_cli_train_tell(gw_comm *comm, void *bytes, size_t size, gw_why *why);

#endif
