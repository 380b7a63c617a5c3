/* Status codes, dtypes and versions as words. */
#include <gradwire/base.h>

#define GW_TEXT(x)  #x
#define GW_QUOTE(x) GW_TEXT(x)

uint32_t gw_version(void)
{
    return GW_VERSION_MAJOR << 16 | GW_VERSION_MINOR << 8 | GW_VERSION_PATCH;
}

const char *gw_version_string(void)
{
    return GW_QUOTE(GW_VERSION_MAJOR) "." GW_QUOTE(GW_VERSION_MINOR) "." GW_QUOTE(GW_VERSION_PATCH);
}

const char *gw_status_string(gw_status status)
{
    switch (status) {
    case GW_OK:
        return "done";
    case GW_ERR_ARG:
        return "wrong argument";
    case GW_ERR_UNSUPPORTED:
        return "not supported in this build or on this machine";
    case GW_ERR_RANGE:
        return "out of range";
    case GW_ERR_UNKNOWN:
        return "unknown name";
    case GW_ERR_STATE:
        return "wrong state";
    case GW_ERR_MEMORY:
        return "out of memory";
    case GW_ERR_WORKSPACE:
        return "workspace too small";
    case GW_ERR_CAPACITY:
        return "output buffer too small";
    case GW_ERR_CORRUPT:
        return "corrupt bytes";
    case GW_ERR_CHECKSUM:
        return "checksum does not match";
    case GW_ERR_VERSION:
        return "unknown wire version";
    case GW_ERR_TRUNCATED:
        return "truncated";
    case GW_ERR_TIMEOUT:
        return "a peer did not answer in time";
    case GW_ERR_PEER:
        return "a peer is gone";
    case GW_ERR_DISAGREE:
        return "ranks disagree";
    case GW_ERR_SYSTEM:
        return "the operating system refused";
    }
    return "unknown status";
}

size_t gw_dtype_size(gw_dtype dtype)
{
    switch (dtype) {
    case GW_F32:
        return 4;
    case GW_F16:
    case GW_BF16:
        return 2;
    }
    return 0;
}

const char *gw_dtype_name(gw_dtype dtype)
{
    switch (dtype) {
    case GW_F32:
        return "f32";
    case GW_F16:
        return "f16";
    case GW_BF16:
        return "bf16";
    }
    return "unknown";
}
