/* Pieces of a tensor, as a program that runs asks for them. */
#include "route/cut.h"

gw_range gw_range_cut(gw_range whole, uint64_t grain, uint32_t pieces, uint32_t index)
{
    const uint64_t unit = grain != 0 ? grain : 1;
    const uint64_t blocks = whole.count / unit + (whole.count % unit != 0);
    const uint64_t each = blocks / pieces, longer = blocks % pieces;
    const uint64_t begin = index * each + (index < longer ? index : longer);
    const uint64_t end = begin + each + (index < longer);
    const uint64_t first = begin < blocks ? begin * unit : whole.count;
    const uint64_t last = end < blocks ? end * unit : whole.count;
    return (gw_range){whole.first + first, last - first};
}

gw_range gw_operand_piece(const gw_operand *bundle, uint64_t grain, uint32_t index)
{
    if (bundle == NULL) {
        return (gw_range){0};
    }
    const gw_range outer = gw_range_cut(bundle->range, grain, bundle->outer, index / bundle->inner);
    return gw_range_cut(outer, grain, bundle->inner, index % bundle->inner);
}

gw_stream gw_program_stream(const gw_program *program, const gw_move *encode_move, uint32_t piece,
                            gw_stream stream)
{
    if (program == NULL || encode_move == NULL) {
        return stream;
    }
    stream.rank = encode_move->owner;
    stream.point = encode_move->point;
    stream.first = 0;
    if (program->kind == GW_ROUTE_ADDITIVE) {
        stream.first = program->whole.first;
        return stream; /* in one piece */
    }
    if (program->piece_points) {
        stream.point += GW_ROUTE_MAX_POINTS * piece;
    } else {
        stream.first = gw_operand_piece(&encode_move->after, program->grain, piece).first;
    }
    return stream;
}
