#include "tools/bench_machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/profile_choice.h"

/* More digits would say more than was measured. Through text, for the nearest double of the short number. */
static void shorten(double *value) {
    char text[32];
    snprintf(text, sizeof(text), "%.3e", *value);
    *value = strtod(text, NULL);
}

/* Pages are copied to the device, also where both share one memory. */
static void fill_profile(const dfx_bench_machine *m, dfx_profile *p) {
    *p = (dfx_profile){.sm = (uint32_t)m->facts.sm,
                       .disk_bytes_per_s = m->disk.rate.median,
                       .disk_latency_s = m->disk.latency.median,
                       .disk_queue_depth = m->disk.queue_depth,
                       .device_bytes = m->facts.device_bytes,
                       .context_bytes = m->facts.context_bytes,
                       .host_bytes =
                           (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
                       .method = DFX_PROFILE_METHOD};
    dfx_profile_slug(m->facts.name, p->name);
    memcpy(p->device, m->facts.name, sizeof(m->facts.name));
    memcpy(p->driver, m->facts.driver, sizeof(m->facts.driver));
    dfx_bench_device_fit(&m->device, p);
    double *const rates[] = {
        &p->disk_bytes_per_s,   &p->disk_latency_s,     &p->link_bytes_per_s, &p->link_latency_s,
        &p->link_slows_compute, &p->bf16_flops,         &p->int8_flops,       &p->fp8_flops,
        &p->attention_flops,    &p->memory_bytes_per_s, &p->launch_s};
    for (size_t i = 0; i < DFX_COUNT(rates); i++)
        shorten(rates[i]);
}

/* A profile that does not give its own measurements back was made on a machine that had other things to do. */
static void warn_busy(const dfx_bench_machine *m, const dfx_sink *sink) {
    static const double MOST = 0.05;
    for (int i = 0; i < m->device.n_formats; i++) {
        const dfx_bench_blocks *b = &m->device.large[i];
        double ratio =
            dfx_bench_foretold(&b->program, &m->profile, DFX_BENCH_PARTS) / b->whole.median;
        if (fabs(ratio - 1) > MOST)
            dfx_warn(sink,
                     "blocks in %s: the profile says %.2f of what was measured: other programs ran "
                     "at the same time; measure again when they do not",
                     dfx_q_name(b->format), ratio);
    }
}

dfx_status dfx_bench_machine_run(dfx_backend *be, const dfx_bench_machine_options *o,
                                 const dfx_sink *sink, dfx_bench_machine *out) {
    out->device = (dfx_bench_device){0};
    dfx_info(sink, "measuring the disk at %s", o->disk);
    DFX_TRY(dfx_bench_disk_run(o->disk, o->n_runs, o->cancelled, sink, &out->disk));
    DFX_TRY(dfx_bench_device_run(be, &out->facts, o->n_runs, o->cancelled, sink, &out->device));
    dfx_bench_clocks(be, &out->facts);
    fill_profile(out, &out->profile);
    warn_busy(out, sink);
    for (int i = 0; i < out->device.n_formats; i++)
        DFX_TRY(dfx_bench_flux_step(&out->profile, be->act_dtype, dfx_bench_formats[i], sink,
                                    &out->flux_step_s[i]));
    return DFX_OK;
}

void dfx_bench_machine_close(dfx_bench_machine *machine) {
    dfx_bench_device_close(&machine->device);
}
