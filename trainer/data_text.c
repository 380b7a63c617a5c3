#include "trainer/data_text.h"

#include "trainer/fail.h"

#include <stdlib.h>

typedef struct text {
    dataset base;
    size_t test_first; /* byte at which the test set begins */
    unsigned char *numbers;
} text;

/* Bytes become their numbers; the count of different ones. */
static size_t number(unsigned char *bytes, size_t size)
{
    unsigned char of[256] = {0};
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        of[bytes[i]] = 1;
    }
    for (size_t i = 0; i < 256; i++) {
        if (of[i]) {
            of[i] = (unsigned char)n++;
        }
    }
    for (size_t i = 0; i < size; i++) {
        bytes[i] = of[bytes[i]];
    }
    return n;
}

/* Row t of all windows, then row t + 1. */
static void fill(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels)
{
    const text *t = (const text *)data;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *window =
            t->numbers + (test ? t->test_first : 0) + (size_t)which[i] * data->rows;
        for (size_t row = 0; row < data->rows; row++) {
            x[row * n + i] = (float)window[row];
            labels[row * n + i] = window[row + 1];
        }
    }
}

static void destroy(dataset *data)
{
    text *t = (text *)data;
    free(t->numbers);
    free(t);
}

gw_status text_open(const char *path, size_t window, dataset **out, gw_why *why)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    gw_status status = data_read_file(
        path, "scripts/setup.sh makes a text of Debian's package bible-kjv", &bytes, &size, why);
    if (status != GW_OK) {
        return status;
    }
    const size_t test = size / 10, train = size - test;
    text *t = calloc(1, sizeof *t);
    if (t == NULL || window == 0 || test <= window) {
        status = t == NULL ? trainer_fail(why, GW_ERR_MEMORY, "%s: no memory", path)
                           : trainer_fail(why, GW_ERR_RANGE,
                                          "%s: %zu bytes are too few for windows of %zu", path,
                                          size, window);
        free(t);
        free(bytes);
        return status;
    }
    const size_t classes = number(bytes, size);
    *t = (text){.base = {.train = (train - 1) / window,
                         .test = (test - 1) / window,
                         .rows = window,
                         .width = 1,
                         .classes = classes,
                         .fill = fill,
                         .destroy = destroy},
                .test_first = train,
                .numbers = bytes};
    *out = &t->base;
    return GW_OK;
}
