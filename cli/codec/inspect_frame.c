/* `gradwire inspect FILE.gw`: the segments of a frame, whose checksums hold. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/codec/inspect.h"
#include "cli/files/framefile.h"
#include "cli/json_out.h"
#include "cli/say.h"
#include "cli/table.h"

enum { SPEC_SIZE = 512, SHAPE_SIZE = 24 * GW_FRAME_MAX_DIMS };

static void print_spec(const gw_segment *segment, char text[SPEC_SIZE])
{
    if (gw_params_print(&segment->params, text, SPEC_SIZE) != GW_OK) {
        (void)snprintf(text, SPEC_SIZE, "%s", gw_codec_name(segment->params.codec));
    }
}

/* 3x4; a scalar has an empty shape. */
static void print_shape(const gw_segment *segment, char text[SHAPE_SIZE])
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < segment->n_dims; i++) {
        at += (size_t)snprintf(text + at, SHAPE_SIZE - at, "%s%" PRIu64, i ? "x" : "",
                               segment->dims[i]);
    }
}

static double ratio(const gw_segment *segment)
{
    double bytes = (double)segment->count * (double)gw_dtype_size(segment->dtype);
    return bytes / (double)segment->payload_bytes; /* 0/0 for an empty tensor: no answer */
}

static json_t *segment_json(const gw_segment *segment)
{
    char spec[SPEC_SIZE];
    double count = (double)segment->count;
    json_t *shape = json_array();
    print_spec(segment, spec);
    for (uint32_t i = 0; i < segment->n_dims; i++) {
        json_array_append_new(shape, gw_cli_json_count(segment->dims[i]));
    }
    return json_pack("{s:s%, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:n, s:n, s:n}", "tensor",
                     segment->name, segment->name_bytes, "spec", spec, "dtype",
                     gw_dtype_name(segment->dtype), "shape", shape, "elements",
                     gw_cli_json_count(segment->count), "bytes",
                     gw_cli_json_count(segment->payload_bytes), "bits_per_element",
                     gw_cli_json_number(8.0 * (double)segment->payload_bytes / count), "ratio",
                     gw_cli_json_number(ratio(segment)), "rel_error", "cosine", "non_finite");
}

static bool print_json(const gw_cli_frame *frame)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < frame->info.segments; i++) {
        json_array_append_new(rows, segment_json(&frame->segments[i]));
    }
    return gw_cli_json_print(rows);
}

static bool print_table(const gw_cli_frame *frame)
{
    static const gw_cli_column COLUMNS[] = {{"tensor", false}, {"spec", false},    {"dtype", false},
                                            {"shape", false},  {"elements", true}, {"bytes", true},
                                            {"ratio", true}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = sizeof COLUMNS / sizeof COLUMNS[0]};
    for (uint32_t i = 0; i < frame->info.segments; i++) {
        const gw_segment *segment = &frame->segments[i];
        char spec[SPEC_SIZE], shape[SHAPE_SIZE];
        print_spec(segment, spec);
        print_shape(segment, shape);
        gw_cli_table_text(&table, segment->name, segment->name_bytes);
        gw_cli_table_cell(&table, "%s", spec);
        gw_cli_table_cell(&table, "%s", gw_dtype_name(segment->dtype));
        gw_cli_table_cell(&table, "%s", segment->n_dims ? shape : "scalar");
        gw_cli_table_cell(&table, "%" PRIu64, segment->count);
        gw_cli_table_cell(&table, "%" PRIu64, segment->payload_bytes);
        if (segment->payload_bytes > 0) {
            gw_cli_table_cell(&table, "%.3f", ratio(segment));
        } else {
            gw_cli_table_cell(&table, "-");
        }
    }
    return gw_cli_table_print(&table);
}

bool gw_cli_inspect_frame(const gw_cli_args *args, const char *path, gw_file_bytes *file)
{
    gw_cli_frame frame;
    if (!gw_cli_frame_take(path, UINT64_MAX, file, &frame)) {
        return false;
    }
    gw_cli_note(args->talk, GW_CLI_VERBOSE,
                "%s: frame of %" PRIu64 " bytes, %" PRIu32 " segments, hashes: %s, seed %" PRIu64
                ", step %" PRIu64 ", rank %" PRIu32 ", point %" PRIu32,
                path, frame.info.bytes, frame.info.segments,
                frame.info.flags & GW_FRAME_HASHED ? "yes" : "no", frame.info.seed, frame.info.step,
                frame.info.rank, frame.info.point);
    bool fine = args->json ? print_json(&frame) : print_table(&frame);
    gw_cli_frame_close(&frame);
    return fine;
}
