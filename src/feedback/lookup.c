/* Tensors of the store, by the numbers that callers have. */
#include "feedback/store.h"

gw_joined *gw_store_joined(const gw_feedback *store, uint32_t tensor)
{
    const size_t index = tensor & ~GW_STORE_JOINED;
    return (tensor & GW_STORE_JOINED) != 0 && index < store->n_joined ? store->joined[index] : NULL;
}

gw_status gw_store_check_range(const gw_store_tensor *tensor, uint64_t first, uint64_t count,
                               gw_why *why)
{
    if (first > tensor->elements || count > tensor->elements - first) {
        return GW_FAIL(why, GW_ERR_RANGE, "tensor '%s' has %llu elements, not %llu from %llu on",
                       gw_name_show(tensor->name, tensor->name_bytes).text,
                       (unsigned long long)tensor->elements, (unsigned long long)count,
                       (unsigned long long)first);
    }
    return GW_OK;
}

gw_status gw_store_tensor_at(const gw_feedback *store, uint32_t tensor, gw_store_tensor **out,
                             gw_why *why)
{
    gw_joined *joined = store != NULL ? gw_store_joined(store, tensor) : NULL;
    if (store == NULL || (joined == NULL && tensor >= store->n_tensors)) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, or tensor number %u is not in it", tensor);
    }
    *out = joined != NULL ? &joined->whole : &store->tensors[tensor];
    return GW_OK;
}
