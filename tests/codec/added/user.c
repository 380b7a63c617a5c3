/* Public headers only: finds the codec toy in the list, encodes with it and decodes. */
#include <gradwire/gradwire.h>

#include <stdio.h>
#include <string.h>

enum { N = 1000 };

static int is_listed(void)
{
    for (size_t i = 0; i < gw_codec_count(); i++) {
        const gw_codec *codec = gw_codec_at(i);
        if (strcmp(gw_codec_name(codec), "toy") == 0) {
            return gw_codec_id(codec) == 200 && gw_codec_by_id(200) == codec;
        }
    }
    return 0;
}

int main(void)
{
    gw_params params;
    gw_why why = {""};
    if (gw_params_parse(&params, "toy", &why) != GW_OK) {
        (void)printf("%s\n", why.text);
        return 1;
    }
    float numbers[N], decoded[N];
    unsigned char payload[2 * N];
    size_t bound = 0, written = 0;
    for (int i = 0; i < N; i++) {
        numbers[i] = (float)(i % 101 - 50) / 64; /* exact in the upper half */
    }
    const gw_tensor in = {numbers, N, GW_F32};
    gw_tensor out = {decoded, N, GW_F32};
    const gw_stream stream = {.seed = 1};
    if (gw_payload_bound(&params, N, &bound) != GW_OK || bound != sizeof payload ||
        gw_encode(&params, NULL, &stream, &in, payload, sizeof payload, &written, NULL) != GW_OK ||
        gw_decode(&params, NULL, payload, written, GW_SET, &out, &why) != GW_OK) {
        (void)printf("toy does not code: %s\n", why.text);
        return 1;
    }
    if (written != sizeof payload || memcmp(numbers, decoded, sizeof numbers) != 0) {
        (void)printf("toy: %zu bytes, or other numbers\n", written);
        return 1;
    }
    if (!is_listed()) {
        (void)printf("toy is not in the list, or has another id\n");
        return 1;
    }
    (void)printf("toy codes\n");
    return 0;
}
