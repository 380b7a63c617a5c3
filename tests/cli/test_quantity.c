/* Rates and times as people write them, in and out. */
#include "cli/quantity.h"

#include "support/check.h"

#include <stdio.h>

static void rates(void **state)
{
    (void)state;
    static const struct {
        double gbit;
        const char *words, *option;
    } all[] = {{1010, "1.01 Tbit/s", "1010gbit"},  {1000, "1 Tbit/s", "1000gbit"},
               {899.9, "900 Gbit/s", "899.9gbit"}, {469.2, "469 Gbit/s", "469.2gbit"},
               {0.95, "0.95 Gbit/s", "950mbit"},   {1, "1 Gbit/s", "1gbit"},
               {2.5, "2.5 Gbit/s", "2.5gbit"},     {0.19, "190 Mbit/s", "190mbit"},
               {0.2, "200 Mbit/s", "200mbit"},     {64e-6, "64 kbit/s", "64kbit"},
               {1e-7, "100 bit/s", "100bit"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[32];
        double back = 0;
        gw_cli_rate_words(all[i].gbit * 125e6, text, sizeof text);
        assert_string_equal(text, all[i].words);
        gw_cli_rate_option(all[i].gbit * 125e6, text, sizeof text);
        assert_string_equal(text, all[i].option);
        CHECK(gw_cli_rate_parse(text, &back), "%s", text);
        CHECK(back > all[i].gbit * 124.999e6 && back < all[i].gbit * 125.001e6, "%s", text);
    }
}

static void times(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *words;
    } all[] = {{19.8159, "19.8 s"},  {0.9996, "1 s"},   {0.9994, "999 ms"}, {0.0921, "92.1 ms"},
               {90.2e-6, "90.2 us"}, {0, "0 us"},       {119, "119 s"},     {150, "2.5 min"},
               {7200, "2 h"},        {3.6e6, "1000 h"}, {60570, "16.8 h"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[32];
        gw_cli_time_words(all[i].seconds, text, sizeof text);
        assert_string_equal(text, all[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates), cmocka_unit_test(times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
