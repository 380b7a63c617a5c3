/* history.jsonl of a run folder: what happened in a run, a record a line. It is appended to while training goes on, so that
 * neither memory nor what is written at once grows with the steps. docs/run-format.md */
#ifndef GW_CLI_TRAIN_HISTORY_H
#define GW_CLI_TRAIN_HISTORY_H

#include "cli/train/train_run.h"

/* Rank 0, before the first step: the file is written anew with what is in memory, which is then dropped from there. */
gw_status gw_cli_history_begin(gw_cli_run *run, gw_why *why);
/* Appends the records that are new and drops them from memory. `durable`: they are on the disk afterwards. A failure
 * leaves the file as it was. */
gw_status gw_cli_history_append(gw_cli_run *run, bool durable, gw_why *why);
/* Appends where many records or some seconds have gathered. */
gw_status gw_cli_history_step(gw_cli_run *run, gw_why *why);

#endif
