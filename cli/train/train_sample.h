/* What a sampled step looked like: each layer's times, and how much its coding loses. */
#ifndef GW_CLI_TRAIN_SAMPLE_H
#define GW_CLI_TRAIN_SAMPLE_H

#include "cli/train/train_run.h"
#include "trainer/rank.h"

/* Starts zeroed. Its own buffers, so that the error is measured after the step and beside its time. */
typedef struct gw_cli_sampler {
    float *gradients; /* what this rank posted: rank.kept */
    float *together;  /* those of a layer that has several params */
    float *decoded;
    void *payload, *workspace;
    size_t payload_bytes, workspace_bytes;
} gw_cli_sampler;

gw_status gw_cli_sampler_open(gw_cli_sampler *s, const rank *r, gw_why *why);
void gw_cli_sampler_close(gw_cli_sampler *s);
/* Fills in layers, kinds and plan of the run. */
gw_status gw_cli_describe_layers(gw_cli_run *run, const rank *r, gw_why *why);
/* Adds the rank's last step, whose gradients were kept, to the run's samples. */
gw_status gw_cli_sample(gw_cli_sampler *s, gw_cli_run *run, const rank *r, const rank_stats *stats,
                        gw_why *why);

#endif
