/* `gradwire bench codec --device cuda`. */
#ifndef GW_CLI_BENCH_CODEC_CUDA_H
#define GW_CLI_BENCH_CODEC_CUDA_H

#include <stdbool.h>

#include <gradwire/gradwire.h>

typedef struct gw_cli_cuda_wish {
    const char *library; /* NULL: where the system looks */
    size_t n, rounds;
    uint64_t steps; /* before timing with feedback */
    bool feedback, json;
    const char *const *specs;
    const gw_params *params;
    size_t n_specs;
} gw_cli_cuda_wish;

/* False after a message on stderr. */
bool gw_cli_bench_codec_cuda(const gw_cli_cuda_wish *wish);

#endif
