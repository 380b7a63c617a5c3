/* adacomp.cu's kernels for residuals that others than the next encoding want, inside of its namespace: what is due is taken off.
 * Seldom, and so as simple as can be. */

enum { MOST_DEBTS = 256 };

typedef struct debt_list {
    gw_ada s;
    uint32_t n;
    struct {
        float *residual;
        due *at;
        uint64_t words;
        uint32_t begin; /* its first block */
    } tensor[MOST_DEBTS];
} debt_list;

/* A thread has a word of the plane. */
__global__ void __launch_bounds__(THREADS) owing_kernel(const __grid_constant__ debt_list list)
{
    uint32_t part;
    const uint32_t which = gw_select_find(list, &part);
    const due owed = *list.tensor[which].at;
    const uint64_t number = (uint64_t)part * THREADS + threadIdx.x;
    if (number >= list.tensor[which].words || owed.end == 0) {
        return;
    }
    const uint32_t tile = (uint32_t)(number / list.s.words);
    const uint64_t from =
        (uint64_t)tile * list.s.tile + 32 * (number - (uint64_t)tile * list.s.words);
    float *r = list.tensor[which].residual + from;
    for (uint32_t word = cut_off(plane_of(list.tensor[which].at)[number], from, owed.end);
         word != 0; word &= word - 1) {
        const uint32_t e = gw_lowest(word);
        r[e] = less_sent(r[e], owed.scale);
    }
}

/* Behind it, when all of its blocks have read what was due. */
__global__ void __launch_bounds__(MOST_DEBTS) paid_kernel(const __grid_constant__ debt_list list)
{
    if (threadIdx.x < list.n) {
        list.tensor[threadIdx.x].at->end = 0;
    }
}
