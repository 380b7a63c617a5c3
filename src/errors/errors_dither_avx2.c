/* Errors of the dithers, AVX2: the compiler's vectors. */
#include "codec/dither/dither_core.h"
#include "codec/ndither/ndither_core.h"
#include "errors/errors.h"

#include "errors/errors_dither_loops.h"

const gw_errors_kernels gw_errors_avx2 = {dither, dither_nearest, ndither};
