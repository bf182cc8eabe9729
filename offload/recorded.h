/* Recorded: what the backend has kept of a program's regions, to be launched as one. A region is recorded once for each place
 * that its page is found in. Recordings hold addresses: they are of one block of activations and one set of externs.
 * Without a backend that records, all calls are fine and nothing is ever found. */
#ifndef DFX_OFFLOAD_RECORDED_H
#define DFX_OFFLOAD_RECORDED_H

#include "kernels/backend.h"

typedef struct dfx_recorded_region {
    uint32_t region;
    const void *base;
    dfx_recording *recording; /* owned */
    uint32_t next;            /* in `regions`, of the same region; UINT32_MAX: none */
} dfx_recorded_region;

/* Zeroed: empty. */
typedef struct dfx_recorded {
    dfx_recorded_region *regions; /* owned, as the others */
    uint32_t *first;              /* [n_program_regions]: in `regions`, or UINT32_MAX */
    void **externs;               /* [n_externs] */
    size_t cap;
    uint32_t n, n_program_regions, n_externs;
} dfx_recorded;

/* The addresses that a run will use: forgets everything when they are others than before. */
dfx_status dfx_recorded_begin(dfx_recorded *recorded, dfx_backend *backend, uint32_t n_regions,
                              void *const *externs, uint32_t n_externs);
dfx_recording *dfx_recorded_find(const dfx_recorded *recorded, uint32_t region, const void *base);
/* Keep it; on failure it is freed. */
dfx_status dfx_recorded_add(dfx_recorded *recorded, dfx_backend *backend, uint32_t region,
                            const void *base, dfx_recording *recording);
/* Forget everything. The device must have ended what was launched. */
void dfx_recorded_fini(dfx_recorded *recorded, dfx_backend *backend);

#endif
