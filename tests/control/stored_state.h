/* Checkpoints of adapt and auto that an earlier build wrote: they load, and are written again with the same bytes. */
#ifndef TESTS_CONTROL_STORED_STATE_H
#define TESTS_CONTROL_STORED_STATE_H

#include "support/steps.h"

#include <gradwire/frame.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef gw_status stored_load(gw_step *step, const void *bytes, size_t size, gw_why *why);
typedef gw_status stored_save(gw_step *step, void *buffer, size_t capacity, size_t *written,
                              gw_why *why);

enum { STORED_MOST = 1 << 16, STORED_NUMBER = 16 /* bytes before the number of the step */ };

static size_t stored_read(const char *name, uint8_t *bytes)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", GW_TESTS_GOLDEN, name);
    FILE *file = fopen(path, "rb");
    RANK_TRUE(file != NULL, path);
    const size_t size = fread(bytes, 1, STORED_MOST, file);
    (void)fclose(file);
    return size;
}

/* Any word may be another one, under a hash that fits: whatever comes of it, nothing is read or written out of range. */
static void stored_words_are_hostile(gw_step *step, uint8_t *bytes, size_t size, stored_load *load)
{
    static const uint64_t others[] = {0, 1, 1000, UINT64_MAX};
    for (size_t at = 0; at + 8 < size; at += 8) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            gw_why why = {""};
            uint64_t kept, hash;
            memcpy(&kept, bytes + at, sizeof kept);
            memcpy(bytes + at, &others[i], sizeof kept);
            hash = gw_payload_hash(bytes, size - 8, 0);
            memcpy(bytes + size - 8, &hash, sizeof hash);
            const gw_status status = load(step, bytes, size, &why);
            RANK_TRUE(status == GW_OK || why.text[0] != '\0', "refused without a reason");
            memcpy(bytes + at, &kept, sizeof kept);
        }
    }
    const uint64_t hash = gw_payload_hash(bytes, size - 8, 0);
    memcpy(bytes + size - 8, &hash, sizeof hash);
}

/* After begin; the step gets the number that the checkpoint was written at. */
static void stored_or_die(gw_step *step, const char *name, stored_load *load, stored_save *save)
{
    gw_why why = {""};
    uint8_t *bytes = calloc(2, STORED_MOST), *again = bytes + STORED_MOST;
    uint64_t number;
    size_t written = 0;
    const size_t size = stored_read(name, bytes);
    memcpy(&number, bytes + STORED_NUMBER, sizeof number);
    gw_step_set_number(step, number);
    stored_words_are_hostile(step, bytes, size, load);
    RANK_OK(load(step, bytes, size, &why), why.text);
    RANK_OK(save(step, again, STORED_MOST, &written, &why), why.text);
    RANK_TRUE(written == size && memcmp(bytes, again, size) == 0, "it is saved with other bytes");
    RANK_OK(gw_step_agree(step, &why), why.text);
    free(bytes);
}

#endif
