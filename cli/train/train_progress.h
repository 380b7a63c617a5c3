/* How far a training is, on stderr: one line that is rewritten on a terminal, else a line now and then. */
#ifndef GW_CLI_TRAIN_PROGRESS_H
#define GW_CLI_TRAIN_PROGRESS_H

#include "cli/train/train_run.h"

typedef struct gw_cli_progress {
    bool on, terminal;
    char label[160];       /* "[2/4] adacomp, seed 1: "; may be empty */
    double begun, printed; /* seconds of the clock */
    uint64_t first;        /* steps that were done when it began */
} gw_cli_progress;

/* Before the run's first step here. */
void gw_cli_progress_begin(gw_cli_progress *p, const gw_cli_run *run);
/* After a step. */
void gw_cli_progress_step(gw_cli_progress *p, const gw_cli_run *run);
/* After a test. */
void gw_cli_progress_test(gw_cli_progress *p, const gw_cli_run *run);
/* A line of its own: "gradwire: TEXT". */
void gw_cli_progress_note(const gw_cli_progress *p, const char *text);
/* Ends the line of a terminal. */
void gw_cli_progress_end(gw_cli_progress *p);

/* Whether bits a character say how good it is, and not accuracy. */
bool gw_cli_run_is_text(const gw_cli_run *run);

#endif
