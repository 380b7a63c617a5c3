/* Any run.json and, behind the first NUL, any history.jsonl. What is accepted keeps the order and the bounds that a report relies on; what is refused
 * must have a reason. */
#include "fuzz.h"

#include <files/run_read.h>

static void require_text(const char *text)
{
    REQUIRE(text != NULL);
}

static void require_real(double value, int or_nan)
{
    REQUIRE((value >= 0 && !isinf(value)) || (or_nan && isnan(value)));
}

static void require_rows(const gw_run_file *run)
{
    for (size_t i = 0; i < run->n_layers; i++) {
        require_text(run->layers[i].name);
        require_text(run->layers[i].kind);
        require_text(run->layers[i].spec);
        require_text(run->layers[i].route);
        REQUIRE(i == 0 || strcmp(run->layers[i].name, run->layers[i - 1].name) != 0);
    }
    for (size_t i = 0; i < run->n_steps; i++) {
        REQUIRE(run->steps[i].step > (i ? run->steps[i - 1].step : 0));
        require_real(run->steps[i].loss, 1);
        require_real(run->steps[i].seconds, 0);
        require_real(run->steps[i].wait_seconds, 0);
    }
    for (size_t i = 0; i < run->n_tests; i++) {
        REQUIRE(i == 0 || run->tests[i].step > run->tests[i - 1].step);
        require_real(run->tests[i].seconds, 0);
        require_real(run->tests[i].accuracy, 1);
        REQUIRE(!(run->tests[i].accuracy > 1));
    }
    for (size_t i = 0; i < run->n_samples; i++) {
        REQUIRE(run->samples[i].step > (i ? run->samples[i - 1].step : 0));
        for (size_t l = 0; l < run->n_layers; l++) {
            require_real(run->samples[i].layers[l].arrived, 0);
            require_real(run->samples[i].layers[l].rel_error, 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t rooms[] = {256, 24, 1};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        const uint8_t *end = size > 0 ? memchr(data, '\0', size) : NULL;
        const size_t head = end ? (size_t)(end - data) : size;
        const size_t rest = end ? size - head - 1 : 0;
        fuzz_buffer file = fuzz_copy(data, head, 0), why = fuzz_acquire(rooms[i], 0);
        fuzz_buffer history = fuzz_copy(end ? end + 1 : data, rest, 0);
        gw_run_file run;
        memset(&run, 0x77, sizeof run);
        const gw_run_file before = run;
        if (gw_run_file_parse(file.data, head, end ? history.data : NULL, rest, &run,
                              (char *)why.data, why.size)) {
            require_text(run.gradwire);
            require_text(run.started);
            require_text(run.config.spec);
            REQUIRE((run.error != NULL) == (strcmp(run.state, "failed") == 0));
            REQUIRE(run.config.ranks > 0);
            require_rows(&run);
            gw_run_file_free(&run);
        } else {
            REQUIRE(memcmp((const uint8_t *)&run, (const uint8_t *)&before, sizeof run) == 0);
            REQUIRE(memchr(why.data, '\0', why.size) != NULL);
            REQUIRE(rooms[i] == 1 || why.data[0] != '\0');
        }
        fuzz_release(&file);
        fuzz_release(&history);
        fuzz_release(&why);
    }
    return 0;
}
