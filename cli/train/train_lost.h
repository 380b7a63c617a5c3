/* Residuals of ranks that are gone with their disks: `--missing drop` goes on without them. */
#ifndef GW_CLI_TRAIN_LOST_H
#define GW_CLI_TRAIN_LOST_H

#include "cli/train/train_progress.h"
#include "trainer/rank.h"

/* Starts zeroed: nothing is lost. */
typedef struct gw_cli_lost {
    uint32_t n;         /* ranks whose residuals are lost */
    uint32_t world;     /* of so many */
    bool own;           /* this rank's are */
    uint32_t levels_of; /* the rank whose levels this one loads */
    char ranks[80];     /* "ranks 1 and 3" */
    double residuals;   /* their norm, root mean square over the surviving ranks */
    float
        *gradients; /* rank 0: where its next gradient goes, to be measured; NULL: it is not due */
} gw_cli_lost;

/* Called by all ranks, before anything of the checkpoint of `step` is loaded: whose residuals are missing, and, with `levels`, whose
 * levels. Unless `drop`, either is a failure of all ranks. */
gw_status gw_cli_lost_find(gw_cli_lost *lost, const char *folder, uint64_t step, bool levels,
                           bool drop, const rank *r, gw_why *why);
/* Called by all ranks, after loading: `norm` is that of this rank's residuals. */
gw_status gw_cli_lost_gather(gw_cli_lost *lost, double norm, rank *r, gw_why *why);
/* Rank 0, after a step whose gradient was kept: prints one line as soon as the gradient is finite. */
void gw_cli_lost_print(gw_cli_lost *lost, const rank *r, uint64_t step, const gw_cli_progress *p);
void gw_cli_lost_close(gw_cli_lost *lost);

#endif
