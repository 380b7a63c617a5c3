/* The header of a .safetensors file: eight bytes of length, then JSON, then the data. */
#ifndef GW_CLI_SAFETENSORS_H
#define GW_CLI_SAFETENSORS_H

#include "cli/files/shape.h"

typedef struct gw_cli_safetensor {
    char *name; /* UTF-8, no NUL inside */
    gw_cli_shape shape;
    uint64_t begin, end; /* offsets in the data area; end - begin is shape.bytes */
} gw_cli_safetensor;

typedef struct gw_cli_safetensors_info {
    gw_cli_safetensor *tensors; /* in order of their offsets, which cover the data without gaps */
    size_t n;
    size_t data_at; /* offset of the data area in the file */
} gw_cli_safetensors_info;

/* Reads the header of a whole file of `size` bytes. Any bytes may be given: on false `why` says
 * what is wrong and where, and *info is untouched. Memory is bounded by a small multiple of the
 * header's bytes. */
bool gw_cli_safetensors_parse(const uint8_t *file, size_t size, gw_cli_safetensors_info *info,
                              char *why, size_t why_size);
void gw_cli_safetensors_free(gw_cli_safetensors_info *info);

/* The eight bytes and the JSON in front of tensors that follow in this order (begin and end are
 * ignored), malloc'd; NULL and `why` if two names are equal, or one is not a name. */
char *gw_cli_safetensors_header(const gw_cli_safetensor *tensors, size_t n, size_t *header_bytes,
                                char *why, size_t why_size);

#endif
