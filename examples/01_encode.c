/* A gradient to eight bits an element and back: the two verbs of the library.
 *     cc 01_encode.c -lgradwire -o encode && ./encode */
#include <gradwire/gradwire.h>

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    /* A codec and its settings come from one string, which names what is wrong with it. */
    gw_params params;
    gw_why why;
    if (gw_params_parse(&params, "natural:bits=8", &why) != GW_OK) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }

    enum { N = 10000 };
    static float gradient[N], sum[N];
    for (int i = 0; i < N; i++) {
        gradient[i] = (float)(i % 97 - 48) * 1e-4f;
    }

    /* Sizes are asked for, buffers are given: nothing is allocated inside. */
    size_t bytes = 0, written = 0;
    if (gw_payload_bound(&params, N, &bytes) != GW_OK) {
        return 1;
    }
    unsigned char *payload = malloc(bytes);
    if (payload == NULL) {
        return 1;
    }

    /* Random rounding is a pure function of all of this, so that runs can be repeated bit for bit.
     * Give every rank its own number: ranks that draw alike do not average their errors out. */
    const gw_stream stream = {.seed = 42, .step = 0, .tensor = 0, .rank = 0};
    const gw_tensor in = {gradient, N, GW_F32};
    gw_report report;
    gw_status status = gw_encode(&params, NULL, &stream, &in, payload, bytes, &written, &report);

    /* A receiver adds what it decodes; here the sum begins with zeros. */
    gw_tensor out = {sum, N, GW_F32};
    if (status == GW_OK) {
        status = gw_decode(&params, NULL, payload, written, GW_ADD, &out, &why);
    }
    if (status == GW_OK) {
        double error = 0, norm = 0;
        for (int i = 0; i < N; i++) {
            const double x = (double)gradient[i], d = (double)sum[i] - x;
            error += d * d;
            norm += x * x;
        }
        (void)printf("%d floats, %zu bytes instead of %zu, relative error %.3f, %llu non-finite\n",
                     N, written, N * sizeof(float), error / norm,
                     (unsigned long long)report.non_finite);
    } else {
        (void)fprintf(stderr, "%s\n", gw_status_string(status));
    }
    free(payload);
    return status == GW_OK ? 0 : 1;
}
