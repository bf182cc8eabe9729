/* See cuda_tune.h. cuBLASLt's first guess is beaten by another one by up to 30 % (H200). */
#include "kernels/cuda/cuda_tune.h"

#include <string.h>

#include "kernels/cuda/cuda_algos.h"
#include "kernels/cuda/cuda_gemm.h"
#include "kernels/cuda/cuda_linear.h"

enum { RUNS = 4 };

/* Below so many operations a product takes less time than its launch. */
static const double LEAST_OPERATIONS = 2e9;

typedef struct test {
    dfx_cuda *cuda;
    const dfx_cuda_trial *trial;
    void *block; /* owned; all that follow lie in it */
    void *parts[DFX_CUDA_TRIAL_PARTS], *first, *other, *workspace;
    uint32_t *differs;
    cudaEvent_t begin, end; /* owned */
} test;

static void *take(char **next, size_t bytes) {
    void *part = bytes ? *next : NULL;
    *next += dfx_align_up(bytes, 256);
    return part;
}

static size_t lay_out(test *t, char *block) {
    char *next = block;
    for (int i = 0; i < DFX_CUDA_TRIAL_PARTS; i++)
        t->parts[i] = take(&next, t->trial->parts[i].bytes);
    t->first = take(&next, t->trial->y_bytes);
    t->other = take(&next, t->trial->y_bytes);
    t->differs = take(&next, sizeof(*t->differs));
    t->workspace = take(&next, dfx_cuda_blas_workspace_bytes(t->cuda));
    return (size_t)(next - block);
}

/* Noise that keeps exponents near one: without overflow, without NaN codes. A F32, two BF16 or four codes a word. */
static dfx_status fill(const test *t, int part) {
    void *ptr = t->parts[part];
    size_t n = t->trial->parts[part].bytes / sizeof(uint32_t);
    switch (t->trial->parts[part].dtype) {
    case DFX_DTYPE_I8:
        return dfx_cuda_fill(t->cuda, ptr, n, 0xffffffff, 0);
    case DFX_DTYPE_F8_E4M3:
        return dfx_cuda_fill(t->cuda, ptr, n, 0xbfbfbfbf, 0);
    case DFX_DTYPE_F32:
        return dfx_cuda_fill(t->cuda, ptr, n, 0x01ffffff, 0x3c000000);
    default:
        return dfx_cuda_fill(t->cuda, ptr, n, 0x81ff81ff, 0x3e003e00);
    }
}

static bool within_budget(const dfx_cuda *cuda, size_t bytes) {
    return cuda->budget_bytes == 0 ||
           bytes + dfx_cuda_context_bytes(&cuda->context) <= cuda->budget_bytes;
}

static bool init(test *t) {
    if (!within_budget(t->cuda, lay_out(t, NULL)) ||
        cudaMalloc(&t->block, lay_out(t, NULL)) != cudaSuccess ||
        cudaEventCreate(&t->begin) != cudaSuccess || cudaEventCreate(&t->end) != cudaSuccess)
        return false;
    lay_out(t, t->block);
    for (int i = 0; i < DFX_CUDA_TRIAL_PARTS; i++)
        if (fill(t, i) != DFX_OK)
            return false;
    return cudaMemsetAsync(t->first, 0, 2 * dfx_align_up(t->trial->y_bytes, 256),
                           t->cuda->compute) == cudaSuccess;
}

static void fini(test *t) {
    cudaStreamSynchronize(t->cuda->compute);
    if (t->begin)
        cudaEventDestroy(t->begin);
    if (t->end)
        cudaEventDestroy(t->end);
    cudaFree(t->block);
    cudaGetLastError(); /* a fault while trying is nobody else's */
}

static bool launch(const test *t, int candidate, void *y) {
    const dfx_cuda_trial *trial = t->trial;
    return trial->launch(t->cuda, trial->user, candidate, t->parts, y, t->workspace);
}

/* Runs it once, which also takes the cost of the first run. */
static bool gives_same_bits(const test *t, int candidate) {
    uint32_t differs = 1;
    cudaStream_t stream = t->cuda->compute;
    return launch(t, candidate, t->other) &&
           cudaMemsetAsync(t->differs, 0, sizeof(differs), stream) == cudaSuccess &&
           dfx_cuda_compare(t->cuda, t->first, t->other, t->trial->y_bytes / sizeof(uint32_t),
                            t->differs) == DFX_OK &&
           cudaMemcpyAsync(&differs, t->differs, sizeof(differs), cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess && differs == 0;
}

/* False: it cannot be told. */
static bool clock_runs(const test *t, int candidate, float *milliseconds) {
    cudaStream_t stream = t->cuda->compute;
    bool ok = cudaEventRecord(t->begin, stream) == cudaSuccess;
    for (int i = 0; i < RUNS && ok; i++)
        ok = launch(t, candidate, t->other);
    return ok && cudaEventRecord(t->end, stream) == cudaSuccess &&
           cudaEventSynchronize(t->end) == cudaSuccess &&
           cudaEventElapsedTime(milliseconds, t->begin, t->end) == cudaSuccess;
}

static bool is_usable(const dfx_cuda_trial *trial, int candidate) {
    static const unsigned char zeros[DFX_ALGO_BYTES];
    return memcmp(trial->candidates[candidate], zeros, sizeof(zeros)) != 0;
}

/* -1: the clock cannot tell. */
static int fastest(dfx_cuda *cuda, const dfx_cuda_trial *trial) {
    test t = {.cuda = cuda, .trial = trial};
    int best = -1;
    float least = 0, milliseconds;
    if (init(&t) && launch(&t, 0, t.first))
        for (int i = 0; i < trial->n_candidates; i++) {
            if (!is_usable(trial, i) || !gives_same_bits(&t, i) ||
                !clock_runs(&t, i, &milliseconds) || (best >= 0 && milliseconds >= least))
                continue;
            least = milliseconds;
            best = i;
        }
    fini(&t);
    return best;
}

int dfx_cuda_choose(dfx_cuda *cuda, const dfx_cuda_trial *trial) {
    dfx_cuda_algos *algos = dfx_cuda_blas_algos(cuda);
    int known = dfx_cuda_algos_find(algos, trial->key, trial->candidates, trial->n_candidates);
    if (known >= 0) {
        algos->n_found++;
        return known;
    }
    if (trial->n_candidates < 2 || trial->operations < LEAST_OPERATIONS)
        return 0;
    int best = fastest(cuda, trial);
    if (best < 0)
        return 0;
    dfx_cuda_algos_put(algos, trial->key, trial->candidates[best], cuda->base.sink);
    return best;
}
