/* Low rank's loop, by the compiler's own vectors. */
#include "codec/lowrank_loops.h"

const gw_lowrank_kernels gw_lowrank_avx2 = {row};
