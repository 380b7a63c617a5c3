#ifndef GW_CLI_TRAIN_H
#define GW_CLI_TRAIN_H

#include "cli/engine.h"

/* `gradwire train`, and under mpirun `gradwire-mpi train`. */
int gw_cli_train_on(const gw_cli_engine *engine, int argc, char **argv);

#endif
