/* See cut.h. A cut gives at most three different sizes: longer pieces, shorter ones, and the last that is
 * not empty, whose last block may be short. */
#include "route/cut.h"

enum { MOST_PIECES = 1 << 16 };
/* Eight, so that a tensor's all-to-all and allgather overlap, but not so small that messages cost more than their bytes, nor so
 * large that the first and last pieces do. */
enum { USUAL_PIECES = 8, LEAST_PIECE = 256 * 1024, MOST_PIECE = 1024 * 1024 };

uint64_t gw_cut_even(uint64_t elements, uint64_t grain, uint64_t size)
{
    const uint64_t pieces = (elements + size - 1) / size;
    if (grain == 0 || pieces <= 1) {
        return elements;
    }
    const uint64_t n = pieces < MOST_PIECES ? pieces : MOST_PIECES;
    return ((elements + n - 1) / n + grain - 1) / grain * grain;
}

uint64_t gw_cut_usual(uint64_t elements, uint64_t grain)
{
    const uint64_t size = elements / USUAL_PIECES;
    return gw_cut_even(elements, grain,
                       size < LEAST_PIECE  ? LEAST_PIECE
                       : size > MOST_PIECE ? MOST_PIECE
                                           : size);
}

/* Of a piece that is not empty; an empty one has no payload and is not asked for. */
static uint64_t piece_bytes(const gw_sizes *sizes, uint64_t count)
{
    size_t bytes = 0;
    if (sizes->params == NULL) {
        return sizes->width * count;
    }
    return gw_payload_bound(sizes->params, (size_t)count, &bytes) == GW_OK ? bytes : 0;
}

/* How many of from … to - 1 lie in begin … end - 1. */
static uint64_t overlap(uint64_t from, uint64_t to, uint64_t begin, uint64_t end)
{
    const uint64_t low = from > begin ? from : begin, high = to < end ? to : end;
    return high > low ? high - low : 0;
}

static uint64_t nested(const gw_sizes *sizes, uint64_t count, uint32_t inner)
{
    return inner == 1 ? piece_bytes(sizes, count) : gw_cut_bytes(sizes, count, inner, 0, inner, 1);
}

/* At most two deep: the pieces of pieces are not cut again. */
/* NOLINTNEXTLINE(misc-no-recursion) */
uint64_t gw_cut_bytes(const gw_sizes *sizes, uint64_t count, uint32_t pieces, uint32_t from,
                      uint32_t to, uint32_t inner)
{
    const uint64_t blocks = count / sizes->grain + (count % sizes->grain != 0);
    const uint64_t each = blocks / pieces, longer = blocks % pieces;
    if (blocks == 0 || from >= to) {
        return 0;
    }
    const uint64_t last = each != 0 ? pieces - 1 : longer - 1;
    const uint64_t n_longer = overlap(from, to, 0, longer < last ? longer : last);
    const uint64_t n_shorter = overlap(from, to, longer, last);
    uint64_t bytes = 0;
    if (n_longer != 0) {
        bytes += n_longer * nested(sizes, (each + 1) * sizes->grain, inner);
    }
    if (n_shorter != 0) {
        bytes += n_shorter * nested(sizes, each * sizes->grain, inner);
    }
    if (from <= last && last < to) {
        const gw_range whole = {0, count};
        bytes +=
            nested(sizes, gw_range_cut(whole, sizes->grain, pieces, (uint32_t)last).count, inner);
    }
    return bytes;
}
