#include "cli/files/checksum.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t gw_cli_fnv1a(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void gw_cli_checksum(const void *data, size_t size, char *text, size_t room)
{
    (void)snprintf(text, room, "fnv1a64:%016" PRIx64, gw_cli_fnv1a(data, size));
}
