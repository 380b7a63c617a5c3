/* `gradwire bench`: which benchmark? */
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench_allreduce.h"
#include "cli/bench/bench_codec.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/say.h"

static const char HELP[] =
    "usage: gradwire bench codec [SPEC]... [options]\n"
    "       gradwire bench allreduce -c SPEC [--route R] [options]\n"
    "\n"
    "  codec      encode and decode speed next to a plain copy in the same run\n"
    "  allreduce  the mean over ranks along a route, next to the uncompressed one in the same run\n"
    "\n"
    "example:\n"
    "  gradwire bench codec natural:bits=8 -n 64Mi\n"
    "  gradwire bench allreduce -c natural:bits=8 --link 1gbit\n";

int gw_cli_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "codec") == 0) {
        return gw_cli_bench_codec(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "allreduce") == 0) {
        static const gw_cli_engine THREADS = {.name = "threads"};
        return gw_cli_bench_allreduce(&THREADS, argc - 1, argv + 1);
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        (void)fputs(HELP, stdout);
        return GW_CLI_DONE;
    }
    if (argc > 1) {
        gw_cli_error("bench: '%s' is not a benchmark", argv[1]);
    }
    (void)fputs(HELP, stderr);
    return GW_CLI_MISUSED;
}
