#include "tools/bench_machine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value of the first line `key : value` of /proc/cpuinfo; false where the system does not say. */
static bool cpu_model(char *text, int text_bytes) {
    static const char key[] = "model name";
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !found && fgets(text, text_bytes, file)) {
        char *value = strchr(text, ':');
        found = value && strncmp(text, key, sizeof(key) - 1) == 0;
        if (found)
            memmove(text, value + 1, strlen(value));
    }
    if (file)
        fclose(file);
    return found;
}

/* "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz" becomes "intel-core-i7-9750h-cpu-2.60ghz": what a profile's name may be. */
static void name_machine(char name[DFX_PROFILE_NAME]) {
    char model[256];
    size_t used = 0;
    if (!cpu_model(model, sizeof(model)))
        snprintf(model, sizeof(model), "cpu");
    for (const char *c = model; *c && used < DFX_PROFILE_NAME - 1; c++) {
        const char *end = *c == '(' ? strchr(c, ')') : NULL;
        if (end) /* a trade mark's sign */
            c = end;
        else if (isalnum((unsigned char)*c) || (*c == '.' && used > 0))
            name[used++] = (char)tolower((unsigned char)*c);
        else if (used > 0 && name[used - 1] != '-')
            name[used++] = '-';
    }
    while (used > 0 && name[used - 1] == '-')
        used--;
    name[used] = 0;
    if (used == 0)
        snprintf(name, DFX_PROFILE_NAME, "cpu");
}

/* More digits would say more than was measured. Through text, for the nearest double of the short number. */
static double three_digits(double value) {
    char text[32];
    snprintf(text, sizeof(text), "%.2e", value);
    return strtod(text, NULL);
}

/* The device is an arena in the same RAM: half of it, as in offload/profiles/cpu.profile. Its "fp8" is the CPU's own way of
 * computing with such weights, so that a plan's seconds are right; it need not be faster than bf16. */
static void fill_profile(const dfx_bench_machine *m, dfx_profile *p) {
    const dfx_bench_device *d = &m->device;
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *p = (dfx_profile){.has_fp8 = true,
                       .link_bytes_per_s = three_digits(d->link.sample.median),
                       .link_latency_s = three_digits(d->link_latency.sample.median),
                       .disk_bytes_per_s = three_digits(m->disk.rate.median),
                       .disk_latency_s = three_digits(m->disk.latency.median),
                       .disk_queue_depth = m->disk.queue_depth,
                       .bf16_flops = three_digits(d->bf16_product.sample.median),
                       .int8_flops = three_digits(d->int8_product.sample.median),
                       .fp8_flops = three_digits(d->fp8_product.sample.median),
                       .attention_flops = three_digits(d->attention.sample.median),
                       .memory_bytes_per_s = three_digits(d->memory.sample.median),
                       .launch_s = three_digits(d->launch.sample.median),
                       .device_bytes = ram / 2,
                       .host_bytes = ram};
    name_machine(p->name);
}

dfx_status dfx_bench_machine_run(const dfx_bench_machine_options *o, const dfx_sink *sink,
                                 dfx_bench_machine *out) {
    dfx_backend *be;
    *out = (dfx_bench_machine){0};
    DFX_TRY(dfx_bench_disk_run(o->disk, o->n_runs, o->cancelled, sink, &out->disk));
    DFX_TRY(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = o->n_threads}, sink, &be));
    dfx_status status = dfx_bench_device_run(be, o->n_runs, o->cancelled, sink, &out->device);
    be->vt->close(be);
    if (status == DFX_OK)
        fill_profile(out, &out->profile);
    return status;
}
