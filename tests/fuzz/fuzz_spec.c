/* gw_params_parse of any text. What is accepted must be in range, and must come back from
 * gw_params_print; what is refused must have a reason. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_buffer spec = fuzz_acquire(size + 1, 0);
    if (size != 0) {
        memcpy(spec.data, data, size);
    }
    spec.data[size] = '\0';
    gw_params params, again;
    gw_why why = {""};
    if (gw_params_parse(&params, (const char *)spec.data, &why) != GW_OK) {
        fuzz_require_reason(why.text, sizeof why.text);
        fuzz_release(&spec);
        return 0;
    }
    REQUIRE(why.text[0] == '\0');
    REQUIRE(gw_params_check(&params, NULL) == GW_OK);
    char text[256], second[256];
    REQUIRE(gw_params_print(&params, text, sizeof text) == GW_OK);
    REQUIRE(gw_params_parse(&again, text, &why) == GW_OK);
    REQUIRE(again.codec == params.codec);
    for (size_t i = 0; i < gw_codec_param_count(params.codec); i++) {
        REQUIRE(again.value[i] == params.value[i]);
    }
    REQUIRE(gw_params_print(&again, second, sizeof second) == GW_OK && strcmp(text, second) == 0);
    /* the exact size suffices, and no less is written to */
    fuzz_buffer exact = fuzz_acquire(strlen(text) + 1, 0);
    for (size_t room = 0; room <= exact.size; room++) {
        REQUIRE(gw_params_print(&params, (char *)exact.data, room) ==
                (room == exact.size ? GW_OK : GW_ERR_CAPACITY));
    }
    REQUIRE(strcmp((const char *)exact.data, text) == 0);
    fuzz_release(&exact);
    fuzz_release(&spec);
    return 0;
}
