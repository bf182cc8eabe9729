/* What the processor is. The threads that are used are part of its name: half of them are another machine. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu_internal.h"

/* The value of the first line `model name : value` of /proc/cpuinfo; false where the system does not say. */
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

/* Without white space at both ends. */
static const char *trimmed(char *text) {
    static const char white[] = " \t\r\n";
    size_t len = strlen(text);
    while (len > 0 && strchr(white, text[len - 1]))
        text[--len] = 0;
    return text + strspn(text, white);
}

/* The device is an arena in the same RAM: half of it, as in offload/profiles/cpu.profile. fp8 is the CPU's own way of
 * computing with such weights; plans shall count it at its own rate, which need not be higher than that of bf16. */
void dfx_cpu_describe(const dfx_backend *be, dfx_device_facts *out) {
    enum { NAME_MOST = DFX_DEVICE_TEXT - 32 };
    const dfx_cpu *cpu = (const dfx_cpu *)be;
    char model[256];
    int n_threads = dfx_pool_n_threads(cpu->pool);
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    *out = (dfx_device_facts){.has_fp8 = true};
    snprintf(out->name, sizeof(out->name), "%.*s, %d thread%s", NAME_MOST,
             cpu_model(model, sizeof(model)) ? trimmed(model) : "cpu", n_threads,
             n_threads == 1 ? "" : "s");
    out->device_bytes = (uint64_t)pages * (uint64_t)page_bytes / 2;
}
