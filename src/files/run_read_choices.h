/* The parts of run.json that only runs have whose sending is chosen while they train. Config and layers are read before. */
#ifndef GW_FILES_RUN_READ_CHOICES_H
#define GW_FILES_RUN_READ_CHOICES_H

#include "files/run_read.h"
#include "files/strict.h"

/* Nothing, of a run whose spec does not begin so. */
bool gw_run_file_adapt_read(const json_t *root, const gw_json_place *r, gw_run_file *run);
bool gw_run_file_auto_read(const json_t *root, const gw_json_place *r, gw_run_file *run);
void gw_run_file_choices_free(gw_run_file *run);

#endif
