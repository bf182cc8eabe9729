/* Checks of a device as a whole, beyond its ops one by one: the goldens of the models in BF16, recordings, copies beside ops,
 * memory. `make check` runs them on tests/bf16_device.h, cuda_check on CUDA.
 *
 *     device_checks c = {.backend = be, .sink = &sink, .dir = dir, .wanted = ..., .verdict = ..., .note = ...};
 *     device_write_models(dir);
 *     device_goldens(&c);
 *     device_streams(&c); */
#ifndef DFX_TESTS_DEVICE_CHECKS_H
#define DFX_TESTS_DEVICE_CHECKS_H

#include "kernels/backend.h"
#include "tests/tmpdir.h"

typedef struct device_checks {
    dfx_backend *backend; /* borrowed; nothing prepared, nothing held */
    const dfx_sink *sink;
    tmpdir *dir; /* borrowed; of device_write_models */
    int64_t
        copy_rows; /* of 4096 values: so many that a copy takes longer than launching a few ops */
    uint64_t (*held_bytes)(dfx_backend *be); /* of the device, by all */
    uint64_t (*n_allocs)(dfx_backend *be);   /* so far */
    bool (*wanted)(void *user, const char *name);
    void (*verdict)(void *user, const char *name, bool ok, const char *why); /* one for each case */
    void (*note)(void *user, const char *name,
                 const char *text); /* what is off, before the verdict */
    void *user;
    const char *name; /* the case in hand */
} device_checks;

/* The weights that the goldens are of, from tests/tiny.h. False: it has been said why not. */
bool device_write_models(tmpdir *dir);

/* "GOLDEN ..." */
void device_goldens(device_checks *c);
/* "DEVICE ..." */
void device_streams(device_checks *c);

#endif
