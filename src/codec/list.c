/* The list of codecs, and what can be asked of one without running it. */
#include "codec/codec_impl.h"

#include <string.h>

#define GW_CODEC(id, name) extern const gw_codec gw_codec_##name;
#include "codec/list.def"
#undef GW_CODEC

static const struct entry {
    uint8_t id;
    const gw_codec *codec;
} all[] = {
#define GW_CODEC(id, name) {id, &gw_codec_##name},
#include "codec/list.def"
#undef GW_CODEC
};

size_t gw_codec_count(void)
{
    return sizeof all / sizeof all[0];
}

const gw_codec *gw_codec_at(size_t index)
{
    return index < gw_codec_count() ? all[index].codec : NULL;
}

const gw_codec *gw_codec_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < gw_codec_count(); i++) {
        if (strcmp(all[i].codec->name, name) == 0) {
            return all[i].codec;
        }
    }
    return NULL;
}

const gw_codec *gw_codec_by_id(uint8_t wire_id)
{
    for (size_t i = 0; i < gw_codec_count(); i++) {
        if (all[i].id == wire_id) {
            return all[i].codec;
        }
    }
    return NULL;
}

const char *gw_codec_name(const gw_codec *codec)
{
    if (codec == NULL) {
        return "";
    }
    return codec->name;
}

const char *gw_codec_doc(const gw_codec *codec)
{
    if (codec == NULL) {
        return "";
    }
    return codec->doc;
}

uint8_t gw_codec_id(const gw_codec *codec)
{
    size_t i = 0;
    while (i < gw_codec_count() && all[i].codec != codec) {
        i++;
    }
    return i < gw_codec_count() ? all[i].id : 0;
}

int gw_codec_has_isa(const gw_codec *codec, gw_isa isa)
{
    if (codec == NULL || isa == GW_ISA_AUTO) {
        return codec != NULL;
    }
    return isa > GW_ISA_AUTO && isa < GW_ISA_COUNT && codec->kernels[isa] != NULL;
}

size_t gw_codec_param_count(const gw_codec *codec)
{
    return codec != NULL ? codec->n_params : 0;
}

const gw_param_info *gw_codec_param(const gw_codec *codec, size_t index)
{
    return index < gw_codec_param_count(codec) ? &codec->params[index] : NULL;
}
