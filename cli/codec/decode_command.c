/* `gradwire decode`: a frame -> a file of tensors, in the element types that were encoded. All is
 * decoded before the first byte is written. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/exec.h"
#include "cli/files/framefile.h"
#include "cli/files/tensorfile.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/say.h"

typedef struct values {
    const char *out, *format_text;
    gw_cli_format format;
    uint64_t max_bytes;
} values;

static const gw_cli_option OPTIONS[] = {
    {"output", 'o', GW_CLI_TEXT, offsetof(values, out), "OUT",
     "file to write: " GW_CLI_TENSOR_FILES "; - is standard output"},
    {"format", 0, GW_CLI_TEXT, offsetof(values, format_text), "F",
     "write " GW_CLI_FORMATS " (by OUT's extension; of - safetensors)"},
    {"max-bytes", 0, GW_CLI_SIZE, offsetof(values, max_bytes), "N",
     "the frame may decode to N bytes, such as 4Gi (1Gi, or 64 times its size if that is more)"},
};

static const gw_cli_page PAGE = {
    .command = "decode",
    .usage = "decode IN.gw -o OUT [options]",
    .about =
        "Decodes a frame. The extension of OUT says what is written: .npy (one segment; f32 or\n"
        "f16), .safetensors (any number, any type) or .f32 (one segment of f32, without its\n"
        "shape). OUT is written whole or not at all. IN.gw of - is standard input, OUT of - "
        "standard\n"
        "output; the result then goes to stderr.",
    .example = "  gradwire decode grads.gw -o grads.safetensors\n"
               "  gradwire decode - -o - --format npy < grads.gw > grads.npy",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* gw_decode looks at this too, but only once there is memory for as many elements as the segment
 * claims to have. */
static bool length_is_right(const gw_segment *segment, const char *name)
{
    size_t bound = 0;
    gw_status status = gw_payload_bound(&segment->params, segment->count, &bound);
    bool fixed = gw_params_flags(&segment->params) & GW_CODEC_FIXED_SIZE;
    if (status != GW_OK || segment->payload_bytes > bound ||
        (fixed && segment->payload_bytes != bound)) {
        gw_cli_error("segment '%.80s': a payload of %" PRIu64 " bytes is wrong for %" PRIu64
                     " elements",
                     name, segment->payload_bytes, segment->count);
        return false;
    }
    return true;
}

static bool decode_segment(const gw_cli_frame *frame, const gw_segment *segment, gw_exec *exec,
                           gw_cli_tensor *tensor)
{
    tensor->name = strndup(segment->name, segment->name_bytes);
    tensor->dtype = segment->dtype;
    tensor->shape.stored = gw_cli_stored_as(segment->dtype);
    tensor->shape.n_dims = segment->n_dims;
    memcpy(tensor->shape.dims, segment->dims, sizeof tensor->shape.dims);
    if (!tensor->name || !gw_cli_shape_measure(&tensor->shape)) {
        gw_cli_error("segment '%.80s': no memory for it", tensor->name ? tensor->name : "");
        return false;
    }
    if (!length_is_right(segment, tensor->name) || !gw_cli_tensor_allocate(tensor) ||
        !gw_cli_exec_fit(exec, &segment->params, segment->dtype, segment->count, false)) {
        return false;
    }
    gw_why why = {""};
    gw_tensor out = {tensor->data, tensor->shape.count, tensor->dtype};
    gw_status status = gw_decode(&segment->params, exec, frame->file.data + segment->payload_at,
                                 segment->payload_bytes, GW_SET, &out, &why);
    if (status != GW_OK) {
        gw_cli_error("segment '%.80s': %s", tensor->name,
                     why.text[0] ? why.text : gw_status_string(status));
    }
    return status == GW_OK;
}

static bool decode_all(const gw_cli_frame *frame, gw_cli_tensors *tensors, uint64_t *elements)
{
    gw_exec exec = {0};
    bool fine = gw_cli_exec_open(GW_ISA_AUTO, 1, &exec) &&
                gw_cli_tensors_reserve(tensors, frame->info.segments);
    *elements = 0;
    for (uint32_t i = 0; fine && i < frame->info.segments; i++) {
        tensors->n++;
        fine = decode_segment(frame, &frame->segments[i], &exec, &tensors->items[i]);
        *elements += frame->segments[i].count;
    }
    gw_cli_exec_close(&exec);
    return fine;
}

static bool decode(const gw_cli_args *args, const values *v)
{
    gw_cli_frame frame;
    gw_cli_tensors tensors = {0};
    uint64_t elements = 0;
    if (!gw_cli_frame_open(args->words[0], v->max_bytes, &frame)) {
        return false;
    }
    bool fine = decode_all(&frame, &tensors, &elements) &&
                gw_cli_tensors_write(v->out, v->format, &tensors);
    if (fine && args->json) {
        fine = gw_cli_json_print(json_pack("{s:o}", "elements", gw_cli_json_count(elements)));
    } else if (fine) {
        gw_cli_result(args->talk, v->out, "%" PRIu64 " elements", elements);
    }
    gw_cli_tensors_close(&tensors);
    gw_cli_frame_close(&frame);
    return fine;
}

int gw_cli_decode(int argc, char **argv)
{
    gw_cli_args args;
    values v = {0};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words == 0) {
        return gw_cli_misuse(&PAGE, "IN.gw is missing: the frame to decode");
    }
    if (args.n_words > 1) {
        return gw_cli_misuse(&PAGE, "one frame at a time: what is '%s'?", args.words[1]);
    }
    if (!v.out) {
        return gw_cli_misuse(&PAGE, "-o OUT is missing");
    }
    if (!gw_cli_format_parse(v.format_text, &v.format)) {
        return gw_cli_misuse(&PAGE, "option --format: '%s' is not " GW_CLI_FORMATS, v.format_text);
    }
    if (v.format == GW_CLI_BY_NAME && !gw_cli_tensors_known(v.out)) {
        return gw_cli_misuse(&PAGE, "'%s' is not named " GW_CLI_TENSOR_FILES, v.out);
    }
    if ((status = gw_cli_check_stream(&PAGE, &args, v.out, true)) != GW_CLI_GO_ON) {
        return status;
    }
    return decode(&args, &v) ? GW_CLI_DONE : GW_CLI_FAILED;
}
