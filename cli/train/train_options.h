/* What `gradwire train` is asked for: options, and the configs of runs that follow from them. */
#ifndef GW_CLI_TRAIN_OPTIONS_H
#define GW_CLI_TRAIN_OPTIONS_H

#include "cli/engine.h"
#include "cli/options.h"
#include "cli/train/train_checkpoint.h"
#include "trainer/data.h"

typedef struct gw_cli_train_options {
    const char *model, *spec, *route, *optimiser, *schedule, *images, *text, *out, *resume;
    const char *missing; /* of --resume: "error" or "drop" */
    const char *adapt;   /* families */
    const char *plan, *profile, *trace, *metrics;
    const char *target_text;
    gw_cli_texts compare;
    /* UINT64_MAX, UINT32_MAX, NaN or NULL: not given */
    uint64_t batch, steps, epochs, seed, seeds, warmup, every, checkpoint, sample, period;
    uint32_t ranks, ranks_per_node;
    double link, latency, rate, momentum, decay, alpha;
    /* of these: */
    double target;        /* accuracy, or bits; NaN: none */
    const char **specs;   /* n_specs, of --compare or the one */
    char *spec_words;     /* where --compare's lie */
    char adapt_spec[256]; /* what --adapt, --period and --alpha come to */
    size_t n_specs;
    bool many; /* --compare or --seeds: a folder for each run */
} gw_cli_train_options;

/* GW_CLI_GO_ON, or the exit status. */
int gw_cli_train_options_read(const gw_cli_engine *engine, int argc, char **argv, gw_cli_args *args,
                              gw_cli_train_options *out);
void gw_cli_train_options_free(gw_cli_train_options *options);
int gw_cli_train_misuse(const gw_why *why); /* says it, with the usage */

/* A run's config but for steps, of what was given, and else of `base` (a run that goes on) or, if that is NULL, of
 * what suits the model. */
gw_cli_run_config gw_cli_train_config(const gw_cli_train_options *o, const gw_cli_engine *engine,
                                      const gw_cli_run_config *base);
/* The steps, which need the data's size when they are given as epochs; then what follows from them. */
gw_status gw_cli_train_steps(const gw_cli_train_options *o, const gw_cli_run_config *base,
                             const dataset *data, gw_cli_run_config *config, gw_why *why);
/* That nothing was given that such a run does not use. */
gw_status gw_cli_train_unused(const gw_cli_train_options *o, const gw_cli_run_config *config,
                              gw_why *why);
/* That numbers are in range, and that spec and route fit one another. */
gw_status gw_cli_train_check(const gw_cli_run_config *config, gw_why *why);
/* How often it tests, samples and saves. */
gw_cli_pace gw_cli_train_pace(const gw_cli_train_options *o, const gw_cli_pace *base,
                              uint64_t steps);

#endif
