#include "models/values.h"

#include <math.h>

dfx_status dfx_values_upload(dfx_model *m, void *dst, const float *values, size_t n) {
    dfx_backend *be = m->backend;
    if (be->act_dtype == DFX_DTYPE_F32)
        return be->vt->upload(be, dst, values, n * sizeof(float));
    void *narrow;
    size_t bytes = n * dfx_dtype_bytes(be->act_dtype);
    DFX_TRY(dfx_alloc(&m->sink, bytes, "upload", &narrow));
    dfx_from_f32(be->act_dtype, values, narrow, n);
    dfx_status status = be->vt->upload(be, dst, narrow, bytes);
    dfx_free(narrow);
    return status;
}

void dfx_values_widen(const dfx_model *m, float *dst, const void *src, size_t n) {
    dfx_to_f32(m->backend->act_dtype, src, dst, n);
}

dfx_status dfx_values_download(dfx_model *m, float *dst, const void *src, size_t n) {
    dfx_backend *be = m->backend;
    if (be->act_dtype == DFX_DTYPE_F32)
        return be->vt->download(be, dst, src, n * sizeof(float));
    void *narrow;
    size_t bytes = n * dfx_dtype_bytes(be->act_dtype);
    DFX_TRY(dfx_alloc(&m->sink, bytes, "download", &narrow));
    dfx_status status = be->vt->download(be, narrow, src, bytes);
    if (status == DFX_OK)
        dfx_values_widen(m, dst, narrow, n);
    dfx_free(narrow);
    return status;
}

bool dfx_values_are_finite(const float *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}
