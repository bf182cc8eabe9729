#include "offload/recorded.h"

#include <string.h>

dfx_status dfx_recorded_begin(dfx_recorded *r, dfx_backend *backend, uint32_t n_regions,
                              void *const *externs, uint32_t n_externs) {
    if (r->n_program_regions == n_regions && r->n_externs == n_externs &&
        memcmp(r->externs, externs, n_externs * sizeof(*externs)) == 0)
        return DFX_OK;
    dfx_recorded_fini(r, backend);
    DFX_TRY(dfx_new_array(backend->sink, n_regions, "recorded", &r->first));
    DFX_TRY(dfx_new_array(backend->sink, n_externs, "recorded", &r->externs));
    memcpy(r->externs, externs, n_externs * sizeof(*externs));
    for (uint32_t i = 0; i < n_regions; i++)
        r->first[i] = UINT32_MAX;
    r->n_program_regions = n_regions;
    r->n_externs = n_externs;
    return DFX_OK;
}

dfx_recording *dfx_recorded_find(const dfx_recorded *r, uint32_t region, const void *base) {
    for (uint32_t i = r->first[region]; i != UINT32_MAX; i = r->regions[i].next)
        if (r->regions[i].base == base)
            return r->regions[i].recording;
    return NULL;
}

dfx_status dfx_recorded_add(dfx_recorded *r, dfx_backend *backend, uint32_t region,
                            const void *base, dfx_recording *recording) {
    dfx_status status = dfx_grow(backend->sink, (size_t)r->n + 1, sizeof(*r->regions), "recorded",
                                 &r->cap, (void **)&r->regions);
    if (status != DFX_OK) {
        backend->vt->recording_free(backend, recording);
        return status;
    }
    r->regions[r->n] = (dfx_recorded_region){region, base, recording, r->first[region]};
    r->first[region] = r->n++;
    return DFX_OK;
}

void dfx_recorded_fini(dfx_recorded *r, dfx_backend *backend) {
    for (uint32_t i = 0; i < r->n; i++)
        backend->vt->recording_free(backend, r->regions[i].recording);
    dfx_free(r->regions);
    dfx_free(r->first);
    dfx_free(r->externs);
    *r = (dfx_recorded){0};
}
