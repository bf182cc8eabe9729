#include "kernels/cuda/cuda_tensor_map.h"

#include "core/sink.h"

enum { DRIVER_API = 12000, BLOCK = 64 };

dfx_status dfx_cuda_find_encode(const dfx_cuda *cuda, const char *op, dfx_cuda_encode_fn *out) {
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    DFX_TRY(dfx_cuda_check(cuda,
                           cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                            DRIVER_API, cudaEnableDefault, &found),
                           op));
    if (found != cudaDriverEntryPointSuccess || !entry)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: %s: the driver has no cuTensorMapEncodeTiled; update the driver",
                        op);
    *out = (dfx_cuda_encode_fn)entry;
    return DFX_OK;
}

dfx_status dfx_cuda_map_heads(const dfx_cuda *cuda, const dfx_mat *m, int rows, int blocks,
                              CUtensorMap *out) {
    dfx_cuda_encode_fn encode = NULL;
    DFX_TRY(dfx_cuda_find_encode(cuda, "attention", &encode));
    const size_t value = sizeof(uint16_t);
    const cuuint64_t size[3] = {BLOCK, (cuuint64_t)m->rows, (cuuint64_t)m->cols / BLOCK};
    const cuuint64_t stride_bytes[2] = {(cuuint64_t)m->ld * value, BLOCK * value};
    const cuuint32_t box[3] = {BLOCK, (cuuint32_t)rows, (cuuint32_t)blocks}, step[3] = {1, 1, 1};
    CUresult result = encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, m->ptr, size, stride_bytes,
                             box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: attention: the driver takes no tensor of %lld rows, %lld apart, for TMA "
                    "(error %d)",
                    (long long)m->rows, (long long)m->ld, (int)result);
}
