#ifndef GW_CLI_BENCH_ALLREDUCE_H
#define GW_CLI_BENCH_ALLREDUCE_H

#include "cli/bench/allreduce_race.h"

/* `bench allreduce` on ranks of this engine. argv[0] is "allreduce". */
int gw_cli_bench_allreduce(const gw_cli_engine *engine, int argc, char **argv);

#endif
