/* What a cast loses: docs/numerics.md section 5. The conversions are base/numeric.h's. */
#ifndef GW_CAST_CORE_H
#define GW_CAST_CORE_H

#include "base/numeric.h"

#include <gradwire/base.h>

/* |bits| from which a finite number becomes infinite: on the wire, or for fp16 tensors sent as bf16 when it
 * is fp16 again, since 65408 and more round to 65536. */
GW_HD static inline uint32_t gw_cast_overflow_from(gw_dtype to, gw_dtype tensor)
{
    if (to == GW_BF16) {
        return tensor == GW_F16 ? 0x477F8000u : 0x7F7F8000u;
    }
    return to == GW_F16 ? 0x477FF000u : GW_INF_BITS;
}

#endif
