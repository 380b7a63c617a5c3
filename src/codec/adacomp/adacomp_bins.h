/* AdaComp's walk over the bins of a block, written once for every vector width. The including file defines, before:
 *   uint32_t sums(const gw_adacomp_block *b, size_t i, size_t n): n numbers of the block from i on: writes G and keys,
 *       returns the largest |bits| of G
 *   uint64_t marks(const uint32_t *keys, uint32_t limit): of 64 keys, bit j ⇔ |key j| ≥ limit */

/* Entries of the elements marked in `word`; `first` is the index in the bin of bit 0's. */
static inline uint8_t *list_word(uint8_t *out, uint64_t word, const uint32_t *keys, size_t first,
                                 uint32_t sign_at)
{
    for (; word != 0; word &= word - 1) {
        const uint32_t j = (uint32_t)__builtin_ctzll(word);
        const uint32_t entry = ((uint32_t)first + j) | keys[j] >> 31 << sign_at;
        *out++ = (uint8_t)entry;
        if (sign_at > 8) {
            *out++ = (uint8_t)(entry >> 8);
        }
    }
    return out;
}

static size_t bins(const gw_adacomp_block *b, uint64_t *empty)
{
    uint8_t *out = b->entries;
    size_t number = 0;
    for (size_t i = 0; i < b->n; i += b->bin) {
        const size_t n = b->n - i < b->bin ? b->n - i : b->bin;
        const uint8_t *before = out;
        const uint32_t top = sums(b, i, n), limit = gw_adacomp_limit(top);
        b->tops[number++] = top;
        if (i == 0 || n < b->bin) {
            gw_adacomp_pad(b->keys, n);
        }
        for (size_t j = 0; j < n; j += 64) {
            const uint64_t word = marks(b->keys + j, limit);
            gw_adacomp_put(b->sent, b->at + i + j, word);
            out = list_word(out, word, b->keys + j, j, b->sign_at);
        }
        *empty += out == before;
        out = gw_adacomp_close(out, b->sign_at, (size_t)(out - before));
    }
    return (size_t)(out - b->entries);
}
