#include "kernels/cuda/cuda_tensor_map.h"

#include "core/sink.h"

enum { DRIVER_API = 12000 };

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
