/* Law 8 for codecs and frames: encoding, decoding, writing and reading a frame allocate nothing, with every setting, on one
 * thread and on a pool. */
#include "support/allocations.h"
#include "support/check.h"
#include "support/gen.h"

#include "codec/specs.h"

#include <gradwire/frame.h>

enum { N = 40000, THREADS = 3, PAYLOADS = 2 };

typedef struct tensors {
    float in[N], out[N], residual[N], after[N];
} tensors;

static tensors all;

/* Encodes twice, decodes, sums. */
static void code(const gw_params *params, const gw_exec *exec, uint8_t *payload, size_t bound)
{
    const gw_stream stream = {.seed = 5, .step = 1};
    const gw_tensor in = {all.in, N, GW_F32};
    gw_tensor out = {all.out, N, GW_F32};
    size_t written = 0;
    int finite = 0;
    assert_int_equal(gw_encode(params, exec, &stream, &in, payload, bound, &written, NULL), GW_OK);
    assert_int_equal(gw_encode_feedback(params, exec, &stream, &in, all.residual, all.after,
                                        payload, bound, &written, NULL),
                     GW_OK);
    assert_int_equal(gw_decode(params, exec, payload, written, GW_ADD, &out, NULL), GW_OK);
    const gw_payload payloads[PAYLOADS] = {{payload, written}, {payload, written}};
    assert_int_equal(gw_decode_sum(params, exec, payloads, PAYLOADS, 2, &out, &finite, NULL),
                     GW_OK);
}

/* What is coded goes into a frame and is found there again. */
static void frame_it(const gw_params *params, const gw_exec *exec, uint8_t *frame, size_t capacity)
{
    const gw_stream stream = {.seed = 5, .step = 1};
    const gw_tensor in = {all.in, N, GW_F32};
    const gw_frame_info info = {.flags = GW_FRAME_HASHED, .seed = 5, .step = 1};
    gw_segment segment = {.name = "w",
                          .name_bytes = 1,
                          .params = *params,
                          .dtype = GW_F32,
                          .count = N,
                          .n_dims = 1,
                          .dims = {N}};
    gw_segment read;
    gw_frame_info found;
    gw_frame_cursor cursor = {0};
    size_t at = 0, bytes = 0, written = 0;
    gw_why why = {""};
    assert_int_equal(gw_frame_begin(&segment, 1, &at, &why), GW_OK);
    assert_int_equal(
        gw_encode(params, exec, &stream, &in, frame + at, capacity - at, &written, NULL), GW_OK);
    segment.payload_at = at;
    segment.payload_bytes = written;
    CHECK(gw_frame_seal(frame, capacity, &info, &segment, 1, &bytes, &why) == GW_OK, "%s",
          why.text);
    CHECK(gw_frame_open(frame, bytes, &found, &why) == GW_OK, "%s", why.text);
    CHECK(gw_frame_segment(frame, bytes, &cursor, &read, &why) == GW_OK, "%s", why.text);
    assert_int_equal(read.payload_bytes, written);
}

static void on_threads(unsigned threads)
{
    gw_pool *pool = NULL;
    assert_int_equal(threads > 1 ? gw_pool_create(threads, &pool) : GW_OK, GW_OK);
    for (size_t i = 0; i < ALL_SPECS; i++) {
        const gw_params params = params_of(all_specs[i]);
        const size_t bound = bound_of(&params, N);
        uint8_t *payload = malloc(bound + 4096); /* or a frame */
        gw_exec exec = {.pool = pool};
        assert_int_equal(gw_codec_workspace(&params, GW_F32, N, 1, threads, &exec.workspace.size),
                         GW_OK);
        exec.workspace.data = malloc(exec.workspace.size + 1);
        assert_true(payload != NULL && exec.workspace.data != NULL);
        allocations_watch(1);
        code(&params, &exec, payload, bound);
        frame_it(&params, &exec, payload, bound + 4096);
        allocations_watch(0);
        CHECK(allocations_seen() == 0, "%s, %u threads: %llu allocations, the first: %s",
              all_specs[i], threads, (unsigned long long)allocations_seen(), allocations_where());
        free(payload);
        free(exec.workspace.data);
    }
    gw_pool_destroy(pool);
}

static void coding_allocates_nothing(void **state)
{
    (void)state;
    gen g = {11};
    gen_fill(&g, GEN_NORMAL, GW_F32, all.in, N);
    gen_fill(&g, GEN_NORMAL, GW_F32, all.residual, N);
    on_threads(1);
    on_threads(THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(coding_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
