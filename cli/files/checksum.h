/* What a file was, for notes of where something comes from. */
#ifndef GW_CLI_CHECKSUM_H
#define GW_CLI_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t gw_cli_fnv1a(const void *data, size_t size);
/* "fnv1a64:" and 16 hex digits. */
void gw_cli_checksum(const void *data, size_t size, char *text, size_t room);

#endif
