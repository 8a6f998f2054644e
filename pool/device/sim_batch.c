/* Several copies enqueued by one call, in both of CUDA's signatures for it.
 *
 * Each copy of a batch is enqueued like one of its own, in order; CUDA promises no order among them, which is for the
 * caller not to rely on.
 */
#include "pool/device/sim.h"

static bool is_host(const struct CUctx_st *sim, uint64_t address, size_t bytes)
{
    return spw__sim_is_host_locked(sim, (const void *)(uintptr_t)address, bytes);
}

static spw__cu_result copy_one_locked(struct CUctx_st *sim, uint64_t dst, uint64_t src, size_t bytes,
                                      spw__cu_stream stream)
{
    const bool dst_is_host = is_host(sim, dst, bytes), src_is_host = is_host(sim, src, bytes);
    if (dst_is_host && src_is_host)
        return SPW__CU_ERROR_NOT_SUPPORTED;
    const enum spw__sim_engine engine = src_is_host ? SPW__SIM_H2D : dst_is_host ? SPW__SIM_D2H : SPW__SIM_D2D;
    return spw__sim_copy_locked(
        sim, stream, engine, dst_is_host ? (void *)(uintptr_t)dst : spw__sim_translate_locked(sim, dst, bytes),
        src_is_host ? (const void *)(uintptr_t)src : spw__sim_translate_locked(sim, src, bytes), bytes);
}

/* Attributes k hold for the copies from first_of[k] to before first_of[k + 1]. */
static spw__cu_result check_attributes(const struct spw__cu_copy_attributes *attributes, const size_t *first_of,
                                       size_t n_attributes, size_t count)
{
    if (!attributes || !first_of || n_attributes == 0 || n_attributes > count || first_of[0] != 0)
        return SPW__CU_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_attributes; i++) {
        if (first_of[i] >= count || (i > 0 && first_of[i] <= first_of[i - 1]) || attributes[i].src_access_order == 0)
            return SPW__CU_ERROR_INVALID_VALUE;
        if (attributes[i].src_access_order != SPW__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
            return SPW__CU_ERROR_NOT_SUPPORTED;
    }
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_memcpy_batch_async(spw__cu_deviceptr *dsts, spw__cu_deviceptr *srcs, size_t *sizes,
                                           size_t count, struct CUmemcpyAttributes_st *attributes, size_t *first_of,
                                           size_t n_attributes, size_t *failed, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    size_t ignored;
    if (!failed)
        failed = &ignored;
    *failed = SIZE_MAX;
    if (count == 0 || !dsts || !srcs || !sizes || !stream)
        return SPW__CU_ERROR_INVALID_VALUE;
    spw__cu_result result =
        check_attributes((const struct spw__cu_copy_attributes *)attributes, first_of, n_attributes, count);
    if (result == SPW__CU_SUCCESS)
        result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    for (size_t i = 0; i < count && result == SPW__CU_SUCCESS; i++) {
        result = copy_one_locked(sim, dsts[i], srcs[i], sizes[i], stream);
        if (result != SPW__CU_SUCCESS)
            *failed = i;
    }
    spw__sim_called_locked(sim);
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_memcpy_batch_async_v2(spw__cu_deviceptr *dsts, spw__cu_deviceptr *srcs, size_t *sizes,
                                              size_t count, struct CUmemcpyAttributes_st *attributes, size_t *first_of,
                                              size_t n_attributes, spw__cu_stream stream)
{
    return spw__sim_memcpy_batch_async(dsts, srcs, sizes, count, attributes, first_of, n_attributes, NULL, stream);
}
