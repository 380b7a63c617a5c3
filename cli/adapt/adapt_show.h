/* How `adapt` shows what it chose. */
#ifndef GW_CLI_ADAPT_SHOW_H
#define GW_CLI_ADAPT_SHOW_H

#include <gradwire/gradwire.h>

#include "cli/adapt/layer_levels.h"

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
