/* Frames in files; see framefile.h. */
#include "cli/files/framefile.h"

#include <stdlib.h>
#include <string.h>

#include "cli/say.h"

bool gw_cli_frame_is(const gw_file_bytes *file)
{
    return file->size >= 4 && memcmp(file->data, "GWF\x1A", 4) == 0;
}

bool gw_cli_frame_open(const char *path, uint64_t max_bytes, gw_cli_frame *out)
{
    gw_file_bytes file;
    return gw_cli_file_read(path, &file) && gw_cli_frame_take(path, max_bytes, &file, out);
}

bool gw_cli_frame_take(const char *path, uint64_t max_bytes, gw_file_bytes *file, gw_cli_frame *out)
{
    gw_why why = {""};
    gw_cli_frame frame = {.file = *file};
    *file = (gw_file_bytes){0};
    gw_status status =
        gw_frame_open_limited(frame.file.data, frame.file.size, max_bytes, &frame.info, &why);
    if (status == GW_OK) {
        /* The header's hash held, and every segment has its entry in the bytes: n is no fancy. */
        frame.segments = calloc((size_t)frame.info.segments + 1, sizeof *frame.segments);
        status = frame.segments ? GW_OK : GW_ERR_MEMORY;
    }
    gw_frame_cursor cursor = {0};
    for (uint32_t i = 0; status == GW_OK && i < frame.info.segments; i++) {
        status =
            gw_frame_segment(frame.file.data, frame.file.size, &cursor, &frame.segments[i], &why);
    }
    if (status != GW_OK) {
        gw_cli_error("%s: %s%s", path, why.text[0] ? why.text : gw_status_string(status),
                     status == GW_ERR_CAPACITY ? "; --max-bytes allows more" : "");
        gw_cli_frame_close(&frame);
        return false;
    }
    *out = frame;
    return true;
}

void gw_cli_frame_close(gw_cli_frame *frame)
{
    free(frame->segments);
    gw_cli_bytes_free(&frame->file);
    *frame = (gw_cli_frame){0};
}
