/* topk.cu's last kernel, inside of its namespace: values, indices, and r′ of the chosen. */

/* Low bits of a thread's entries: eight of them are `bits` bytes. */
GW_DEVICE void put_low(const uint32_t index[GW_VALUES_OWN], uint32_t n, uint32_t bits, uint8_t *to)
{
    uint64_t held = 0;
    uint32_t n_held = 0;
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if ((uint32_t)i < n) {
            held |= (index[i] & (((uint64_t)1 << bits) - 1)) << n_held;
            n_held += bits;
            for (; n_held >= 8; n_held -= 8, held >>= 8) {
                *to++ = (uint8_t)held;
            }
        }
    }
    if (n_held > 0) {
        *to = (uint8_t)held;
    }
}

/* High bits: the block writes the bytes from the one of its first entry's on to that of the next block's first. */
GW_DEVICE void put_high(const places &p, const gw_index_list &list, uint64_t first,
                        const uint32_t index[GW_VALUES_OWN], uint32_t n, uint8_t *high)
{
    enum { WORDS = 2048 };
    __shared__ uint32_t words[WORDS];
    const uint64_t next = first + GW_VALUES_RUN, mine = first + GW_VALUES_OWN * threadIdx.x;
    const uint64_t begin = first == 0 ? 0 : ((p.index[first] >> list.low_bits) + first) / 8;
    const uint64_t end =
        next >= list.kept ? list.high_bytes : ((p.index[next] >> list.low_bits) + next) / 8;
    for (uint64_t at = begin; at < end; at += 4 * WORDS) {
        const uint64_t stop = at + 4 * WORDS < end ? at + 4 * WORDS : end;
        for (uint32_t i = threadIdx.x; i < WORDS; i += GW_VALUES_THREADS) {
            words[i] = 0;
        }
        __syncthreads();
        for (uint32_t i = 0; i < n + (threadIdx.x < 7 && threadIdx.x < first); i++) {
            const int earlier = i == n; /* of the block before, in the first byte */
            const uint64_t j = earlier ? first - 1 - threadIdx.x : mine + i;
            const uint64_t bit = (p.index[j] >> list.low_bits) + j;
            if (bit / 8 >= at && bit / 8 < stop) {
                const uint32_t b = (uint32_t)(bit - 8 * at);
                atomicOr(&words[b / 32], 1u << b % 32);
            }
        }
        __syncthreads();
        for (uint64_t i = at + threadIdx.x; i < stop; i += GW_VALUES_THREADS) {
            high[i] = (uint8_t)(words[(i - at) / 4] >> (i - at) % 4 * 8);
        }
        __syncthreads();
    }
    (void)index;
}

template <int N>
__global__ void __launch_bounds__(GW_VALUES_THREADS)
    write_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch)
{
    uint32_t number;
    const gw_topk &s = batch.s;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const gw_index_list list = gw_topk_list(s, t.count);
    const uint64_t first = (uint64_t)number * GW_VALUES_RUN,
                   mine = first + GW_VALUES_OWN * threadIdx.x;
    const uint64_t left = mine < p.kept ? p.kept - mine : 0;
    const uint32_t n = left < GW_VALUES_OWN ? (uint32_t)left : (uint32_t)GW_VALUES_OWN;
    uint32_t index[GW_VALUES_OWN];
    float v[GW_VALUES_OWN], G[GW_VALUES_OWN];
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        index[i] = (uint32_t)i < n ? p.index[mine + i] : 0;
        G[i] = v[i] = (uint32_t)i < n ? p.value[mine + i] : 0.0f;
    }
    const gw_values_job job = {t.payload, number, t.key, t.result,
                               gw_natural_top(batch.dtype == GW_F16)};
    gw_values_put(v, index, n, s.natural, job);
    if (n != 0) {
        put_low(index, n, list.low_bits,
                t.payload + list.values_bytes + mine / GW_VALUES_OWN * list.low_bits);
    }
    if (first < p.kept) {
        put_high(p, list, first, index, n, t.payload + list.values_bytes + list.low_bytes);
    }
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if (t.after != NULL && (uint32_t)i < n) {
            t.after[index[i]] = G[i] - v[i];
        }
    }
}
