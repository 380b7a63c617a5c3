/* Checkpoints of a run: everything that training changes, so that it goes on bit for bit. docs/run-format.md */
#ifndef GW_CLI_TRAIN_CHECKPOINT_H
#define GW_CLI_TRAIN_CHECKPOINT_H

#include "cli/train/train_lost.h"
#include "cli/train/train_run.h"
#include "trainer/rank.h"

/* What a checkpoint says of the run beside its numbers: how often it tests, samples and writes checkpoints. */
typedef struct gw_cli_pace {
    uint64_t every, checkpoint, sample; /* steps; 0: never, but at the end */
} gw_cli_pace;

/* The newest whole checkpoint's steps, if there is one. */
gw_status gw_cli_checkpoint_newest(const char *folder, bool *found, uint64_t *step, gw_why *why);
/* Most bytes of one, all ranks' parts together. */
gw_status gw_cli_checkpoint_bytes(const rank *r, size_t *bytes, gw_why *why);
/* Called by all ranks after step `step`; `run` and its run.json are rank 0's. A failure is every rank's, and leaves the
 * last good one. */
gw_status gw_cli_checkpoint_save(const gw_cli_run *run, const gw_cli_pace *pace, rank *r,
                                 uint64_t step, gw_why *why);
/* checkpoint.json of `step`: pace, or if that is NULL the bytes of n_layers layers. */
gw_status gw_cli_checkpoint_read(const char *folder, uint64_t step, gw_cli_pace *pace,
                                 gw_cli_run_layer *layers, size_t n_layers, gw_why *why);
/* Whether the checkpoint has this file of the rank: "residuals" or "levels". */
gw_status gw_cli_checkpoint_has(const char *folder, uint64_t step, uint32_t whose, const char *what,
                                bool *there, gw_why *why);
/* The levels of rank `whose`, of a run that chooses them: before gw_step_agree and the rest. */
gw_status gw_cli_checkpoint_load_levels(const char *folder, uint64_t step, uint32_t whose, rank *r,
                                        gw_why *why);
/* One rank's part of a run that goes on, after rank_create with first_step = step. If residuals are lost, *norm becomes that
 * of this rank's. */
gw_status gw_cli_checkpoint_load(const char *folder, uint64_t step, const gw_cli_lost *lost,
                                 rank *r, double *norm, gw_why *why);

#endif
