/* JSON; see json_out.h. */
#include "cli/json_out.h"

#include <math.h>
#include <stdio.h>

#include "cli/say.h"

json_t *gw_cli_json_number(double value)
{
    if (!isfinite(value)) {
        return json_null();
    }
    bool whole = value >= -9007199254740992.0 && value <= 9007199254740992.0 &&
                 value == (double)(json_int_t)value;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

json_t *gw_cli_json_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

bool gw_cli_json_print(json_t *value)
{
    if (!value) {
        gw_cli_out_of_memory();
        return false;
    }
    (void)json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    (void)putchar('\n');
    json_decref(value);
    return true;
}
