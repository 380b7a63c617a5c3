/* Reading and writing the wire's little-endian numbers at any alignment. */
#ifndef GW_BASE_LITTLE_ENDIAN_H
#define GW_BASE_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

/* Numbers are also moved as they lie in memory: vectors, packed fields, the planes of `natural`. */
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "gradwire runs on little-endian machines only"
#endif

static inline uint16_t gw_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t gw_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gw_get_u64(const uint8_t *p)
{
    return (uint64_t)gw_get_u32(p) | (uint64_t)gw_get_u32(p + 4) << 32;
}

static inline void gw_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void gw_put_u32(uint8_t *p, uint32_t v)
{
    gw_put_u16(p, (uint16_t)v);
    gw_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void gw_put_u64(uint8_t *p, uint64_t v)
{
    gw_put_u32(p, (uint32_t)v);
    gw_put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline double gw_get_f64(const uint8_t *p)
{
    const uint64_t bits = gw_get_u64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void gw_put_f64(uint8_t *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    gw_put_u64(p, bits);
}

#endif
