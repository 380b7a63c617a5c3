/* cmocka with what every test here needs: its headers, and assertions that say where and with which
 * seed. A failing randomised test prints its seed; `test 123` runs it with that one. */
#ifndef GW_TESTS_CHECK_H
#define GW_TESTS_CHECK_H

/* cmocka.h wants these before itself, in this order */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

/* Fails with a sentence. */
#define CHECK(holds, ...)                                                                          \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

static inline gw_params params_of(const char *spec)
{
    gw_params params;
    gw_why why = {""};
    const gw_status status = gw_params_parse(&params, spec, &why);
    CHECK(status == GW_OK, "%s: %s", spec, why.text);
    return params;
}

static inline size_t bound_of(const gw_params *params, size_t n)
{
    size_t bytes = 0;
    assert_int_equal(gw_payload_bound(params, n, &bytes), GW_OK);
    return bytes;
}

#endif
