/* The loop of one rank: steps, tests, samples, checkpoints. */
#ifndef GW_CLI_TRAIN_LOOP_H
#define GW_CLI_TRAIN_LOOP_H

#include <stdatomic.h>

#include "cli/train/train_checkpoint.h"
#include "cli/train/train_metrics.h"
#include "cli/train/train_plan.h"
#include "cli/train/train_progress.h"

typedef struct gw_cli_training {
    gw_cli_run *run; /* rank 0 writes it, the others read folder and config */
    const dataset *data;
    gw_cli_pace pace;
    bool drop;    /* go on without residuals that are lost */
    bool resumed; /* there is a checkpoint to go on from, of so many steps: */
    uint64_t first_step;
    gw_cli_progress progress;
    gw_cli_metrics metrics;
    atomic_int *stop;              /* not 0: a signal came */
    const gw_cli_train_plan *plan; /* NULL: none */
    const char *profile, *trace;   /* where job and trace go; NULL: nowhere */
    const gw_nodes *nodes;         /* NULL: config.ranks_per_node says which ranks share a node */
    bool alone;                    /* this rank is a process: it reports its failure, at once */
} gw_cli_training;

/* One rank's part, called by all. On failure every rank fails, and rank 0 has written so to run.json as far as it
 * could. */
gw_status gw_cli_train_rank(gw_cli_training *t, gw_comm *comm, gw_why *why);

/* On stderr, by rank 0 and by each rank that found a failure itself. */
void gw_cli_train_report(const gw_comm *comm, gw_status status, const gw_why *why);

/* The trainer's form of a config. */
rank_config gw_cli_rank_config(const gw_cli_run_config *config, uint64_t first_step);

#endif
