/* What a setting is to the chooser: the parameter that is its level, the table it is measured by. */
#ifndef GW_ADAPT_LEVELS_H
#define GW_ADAPT_LEVELS_H

#include <gradwire/adapt.h>

typedef enum gw_level_kind {
    GW_LEVEL_NONE, /* no table */
    GW_LEVEL_CAST, /* lossless */
    GW_LEVEL_NATURAL,
    GW_LEVEL_BITS,
    GW_LEVEL_DENSITY,
    GW_LEVEL_RANK
} gw_level_kind;

gw_level_kind gw_level_kind_of(const gw_params *p);
/* The index of a codec's parameter. */
size_t gw_level_param(const gw_params *p, const char *name);

/* A tensor as lowrank with these settings sees it; rows 0 if its columns are not known. */
typedef struct gw_level_matrix {
    uint64_t rank, rows, cols;
} gw_level_matrix;
gw_level_matrix gw_level_matrix_of(const gw_params *p, uint64_t elements);

#endif
