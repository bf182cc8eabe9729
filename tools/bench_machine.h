/* This machine as a profile that plans are made for: its GPU or its processor as the device, its memory, its disk. */
#ifndef DFX_TOOLS_BENCH_MACHINE_H
#define DFX_TOOLS_BENCH_MACHINE_H

#include "tools/bench_device.h"
#include "tools/bench_disk.h"

typedef struct dfx_bench_machine_options {
    const char *disk; /* a file or a folder: bench_disk.h */
    uint32_t n_runs;
    bool (*cancelled)(void *user);
} dfx_bench_machine_options;

typedef struct dfx_bench_machine {
    dfx_profile profile; /* rates are made from the medians, to four digits */
    dfx_device_facts facts;
    dfx_bench_device device;
    dfx_bench_disk disk;
    double flux_step_s[DFX_BENCH_FORMATS]; /* what the profile says of FLUX.1-dev's steps */
} dfx_bench_machine;

/* Wants out->facts, as `be` describes itself. Close it, whatever this returns. Errors: those of disk and device. */
dfx_status dfx_bench_machine_run(dfx_backend *be, const dfx_bench_machine_options *options,
                                 const dfx_sink *sink, dfx_bench_machine *out);
void dfx_bench_machine_close(dfx_bench_machine *machine);

#endif
