/* The layers of a file of gradients, the levels each could be sent with, and what each level would lose: what `adapt` chooses from,
 * and `plan --budget`. */
#ifndef GW_CLI_LAYER_LEVELS_H
#define GW_CLI_LAYER_LEVELS_H

#include <gradwire/gradwire.h>

#include "cli/files/tensorfile.h"
#include "cli/options.h"

/* One layer: a tensor of each rank. */
typedef struct gw_cli_layer {
    const char *name;            /* without rankN/; lies in a tensor's name */
    const gw_cli_tensor *tensor; /* the first rank's */
    size_t n_tensors;
    gw_params *levels;
    uint64_t *bytes;
    double *errors; /* means over the ranks */
    size_t n;
    uint32_t uniform;
} gw_cli_layer;

typedef struct gw_cli_levels {
    gw_params *families;
    gw_adapt_rules rules;
    gw_adapt_metric metric; /* the caller's, like header, seed and isa */
    uint64_t header, seed;
    gw_isa isa;
    gw_exec exec;
    gw_cli_tensors tensors;
    gw_cli_layer *layers; /* in the order of the file */
    size_t n_layers, n_ranks;
    double tables_ms; /* what measuring took */
} gw_cli_levels;

/* What --family and --default say. GW_CLI_GO_ON, or an exit status and it was said. */
int gw_cli_levels_ask(gw_cli_levels *l, const gw_cli_page *page, const gw_cli_texts *families,
                      const char *uniform);
/* Reads the file and measures every level. False: said. */
bool gw_cli_levels_measure(gw_cli_levels *l, const char *path, int talk);
/* By its name, of `size` characters; NULL: there is none. */
gw_cli_layer *gw_cli_levels_find(const gw_cli_levels *l, const char *name, size_t size);
void gw_cli_levels_free(gw_cli_levels *l);

/* A number of 0 or more, or "inf"; nothing behind it. */
bool gw_cli_factor_parse(const char *text, double *out);

#endif
