/* A program in the memory of a device that the host does not see: its pages, activations and externs, converted from and to F32
 * on the way.
 *
 *     device_program d;
 *     device_program_open(&d, backend, &program, sink);
 *     device_program_put(&d, 0, x);
 *     device_program_run(&d, NULL, NULL, NULL);
 *     device_program_get(&d, 1, y);
 *     device_program_close(&d);
 *
 * Every page stays. All memory starts out as NaN, so that what no op writes shows. The calls fail the running test. */
#ifndef DFX_TESTS_DEVICE_PROGRAM_H
#define DFX_TESTS_DEVICE_PROGRAM_H

#include "offload/executor.h"

typedef struct device_program {
    dfx_backend *backend;       /* borrowed */
    const dfx_program *program; /* borrowed until close */
    const dfx_sink *sink;
    dfx_executor executor;
    dfx_mem activations, adapters, *pages, *externs; /* owned; [n_pages], [n_externs] */
    void **addresses;                                /* owned; of the externs */
} device_program;

/* Announces the program and takes the backend's workspace: one at a time is open on a backend. */
void device_program_open(device_program *d, dfx_backend *backend, const dfx_program *program,
                         const dfx_sink *sink);
void device_program_close(device_program *d);

/* The program's adapter block, as it is on the device; nothing where it has none. */
void device_program_put_adapters(device_program *d, const void *block);

/* All values of an extern, packed. */
void device_program_put(device_program *d, uint32_t extern_idx, const float *values);
void device_program_get(device_program *d, uint32_t extern_idx, float *values);
/* Does an op write it? */
bool device_program_writes(const dfx_program *program, uint32_t extern_idx);

void device_program_run(device_program *d, dfx_recorded *recorded, dfx_probe_fn probe, void *user);

/* A rectangle on the device as packed F32. */
void device_values(dfx_backend *backend, const dfx_mat *m, float *values);

#endif
