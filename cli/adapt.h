/* `adapt`: the layers of a file with their levels and errors, and how the choice is shown. */
#ifndef GW_CLI_ADAPT_H
#define GW_CLI_ADAPT_H

#include <gradwire/gradwire.h>

#include "options.h"
#include "tensorfile.h"

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

typedef struct gw_cli_adapted {
    const gw_cli_layer *layers;
    size_t n_layers, n_ranks;
    const gw_adapt_choice *choice;
    const char *uniform, *metric; /* as the user wrote them */
    double alpha, tables_ms, solve_ms;
    uint64_t header;
} gw_cli_adapted;

/* Prints the choice. False: said. */
bool gw_cli_adapted_print(const gw_cli_args *args, const gw_cli_adapted *a);

/* The setting as a spec, without what is its codec's default or the tensor's shape. `size`: 256 is enough. */
void gw_cli_spec_text(const gw_params *params, char *text, size_t size);

#endif
