#include "kernels/cpu/cpu_blas.h"

#include <dlfcn.h>
#include <stdlib.h>

static const char *const LIBRARY = "libopenblas.so.0";

/* OpenBLAS's name for kernels that this processor surely runs; NULL: let it choose. */
static const char *best_core_type(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

/* Set while the library loads, then as before: other programs that this process starts see nothing of it. */
static void *load_with(const char *name, const char *value) {
    if (!value || getenv(name))
        return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    setenv(name, value, 1);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    unsetenv(name);
    return library;
}

dfx_status dfx_cpu_blas_open(const dfx_sink *sink, dfx_cpu_blas *out) {
    void *library = load_with("OPENBLAS_CORETYPE", best_core_type());
    if (!library)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cpu: OpenBLAS (%s) could not be loaded: %s; install libopenblas0", LIBRARY,
                        dlerror());
    void *sgemm = dlsym(library, "cblas_sgemm"),
         *set_threads = dlsym(library, "openblas_set_num_threads");
    if (!sgemm || !set_threads)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cpu: %s has no cblas_sgemm; install libopenblas0-pthread", LIBRARY);
    ((void (*)(int))set_threads)(1); /* the pool's workers are the threads */
    out->cblas_sgemm = sgemm;
    return DFX_OK;
}
