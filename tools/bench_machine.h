/* This machine as a profile that plans are made for: its processor as the device, its memory, its disk. */
#ifndef DFX_TOOLS_BENCH_MACHINE_H
#define DFX_TOOLS_BENCH_MACHINE_H

#include "offload/profile.h"
#include "tools/bench_device.h"
#include "tools/bench_disk.h"

typedef struct dfx_bench_machine_options {
    const char *disk; /* a file or a folder: bench_disk.h */
    int n_threads;    /* 0: one for each usable core */
    uint32_t n_runs;
    bool (*cancelled)(void *user);
} dfx_bench_machine_options;

typedef struct dfx_bench_machine {
    dfx_profile profile; /* rates are the medians, to three digits */
    dfx_bench_device device;
    dfx_bench_disk disk;
} dfx_bench_machine;

/* Errors: those of both. */
dfx_status dfx_bench_machine_run(const dfx_bench_machine_options *options, const dfx_sink *sink,
                                 dfx_bench_machine *out);

#endif
