/* Which of cuBLASLt's guesses is the fastest here? Its first is beaten by another one by up to 30 % (H200).
 *
 * A candidate must give the first one's bits on noise of the real shape: sums in another order would make pictures depend on
 * a clock. Each is then run a few times in a row on test data of its own; nothing of a session is touched, and what is
 * allocated here is given back before the session takes its memory. A fault here leaves the first candidate, as does a budget
 * too small for the test data; if the device itself is at fault, the next call says so. */
#include "kernels/cuda/cuda_gemm.h"
#include "kernels/cuda/cuda_linear.h"

enum { RUNS = 4 };

/* Below so many operations a product takes less time than its launch. */
static const double LEAST_OPERATIONS = 2e9;

typedef struct trial {
    dfx_cuda *cuda;
    dfx_cuda_plan *plan;
    dfx_cuda_product product;
    void *block; /* owned; all that follow lie in it */
    void *x, *w, *b, *r, *first, *other, *workspace;
    uint32_t *differs;
    size_t x_bytes, w_bytes, b_bytes, y_bytes, r_bytes;
    cudaEvent_t begin, end; /* owned */
} trial;

static size_t bytes_of(int64_t rows, int64_t ld, int32_t dtype) {
    return (size_t)(rows * ld) * dfx_dtype_bytes((dfx_dtype)dtype);
}

static void *take(char **next, size_t bytes) {
    void *part = *next;
    *next += dfx_align_up(bytes, 256);
    return part;
}

static size_t lay_out(trial *t, char *block) {
    char *next = block;
    t->x = take(&next, t->x_bytes);
    t->w = take(&next, t->w_bytes);
    t->b = take(&next, t->b_bytes);
    t->r = take(&next, t->r_bytes);
    t->first = take(&next, t->y_bytes);
    t->other = take(&next, t->y_bytes);
    t->differs = take(&next, sizeof(*t->differs));
    t->workspace = take(&next, dfx_cuda_blas_workspace_bytes(t->cuda));
    return (size_t)(next - block);
}

/* Noise that keeps exponents near one: without overflow, without NaN codes. Two BF16 values or four codes a word. */
static dfx_status fill(const trial *t, void *ptr, size_t bytes, int32_t dtype) {
    size_t n = bytes / sizeof(uint32_t);
    switch (dtype) {
    case DFX_DTYPE_I8:
        return dfx_cuda_fill(t->cuda, ptr, n, 0xffffffff, 0);
    case DFX_DTYPE_F8_E4M3:
        return dfx_cuda_fill(t->cuda, ptr, n, 0xbfbfbfbf, 0);
    default:
        return dfx_cuda_fill(t->cuda, ptr, n, 0x81ff81ff, 0x3e003e00);
    }
}

static bool within_budget(const dfx_cuda *cuda, size_t bytes) {
    return cuda->budget_bytes == 0 ||
           bytes + dfx_cuda_context_bytes(&cuda->context) <= cuda->budget_bytes;
}

static bool init(trial *t) {
    const dfx_cuda_shape *s = &t->plan->shape;
    t->x_bytes = bytes_of(s->m, s->ldx, s->in);
    t->w_bytes = bytes_of(s->w_transposed ? s->n : s->k, s->ldw, s->in);
    t->b_bytes = s->has_b ? bytes_of(1, s->n, s->out) : 0;
    t->r_bytes = s->has_r ? bytes_of(s->m, s->ldr, s->out) : 0;
    t->y_bytes = bytes_of(s->m, s->ldy, s->out);
    if (!within_budget(t->cuda, lay_out(t, NULL)) ||
        cudaMalloc(&t->block, lay_out(t, NULL)) != cudaSuccess ||
        cudaEventCreate(&t->begin) != cudaSuccess || cudaEventCreate(&t->end) != cudaSuccess)
        return false;
    lay_out(t, t->block);
    t->product = (dfx_cuda_product){.in = (dfx_dtype)s->in,
                                    .alpha = 1.0f,
                                    .x = t->x,
                                    .w = t->w,
                                    .b = t->b,
                                    .r = t->r,
                                    .has_b = s->has_b,
                                    .has_r = s->has_r};
    return cudaMemsetAsync(t->first, 0, 2 * dfx_align_up(t->y_bytes, 256), t->cuda->compute) ==
               cudaSuccess &&
           fill(t, t->x, t->x_bytes, s->in) == DFX_OK &&
           fill(t, t->w, t->w_bytes, s->in) == DFX_OK &&
           fill(t, t->b, t->b_bytes, s->out) == DFX_OK &&
           fill(t, t->r, t->r_bytes, s->out) == DFX_OK;
}

static void fini(trial *t) {
    cudaStreamSynchronize(t->cuda->compute);
    if (t->begin)
        cudaEventDestroy(t->begin);
    if (t->end)
        cudaEventDestroy(t->end);
    cudaFree(t->block);
    cudaGetLastError(); /* a fault while trying is nobody else's */
}

static bool launch(trial *t, const cublasLtMatmulAlgo_t *algo, void *y) {
    t->product.y = y;
    return dfx_cuda_plan_launch(t->cuda, t->plan, &t->product, algo, t->workspace) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Runs it once, which also takes the cost of the first run. */
static bool gives_same_bits(trial *t, const cublasLtMatmulAlgo_t *algo) {
    uint32_t differs = 1;
    cudaStream_t stream = t->cuda->compute;
    return launch(t, algo, t->other) &&
           cudaMemsetAsync(t->differs, 0, sizeof(differs), stream) == cudaSuccess &&
           dfx_cuda_compare(t->cuda, t->first, t->other, t->y_bytes / sizeof(uint32_t),
                            t->differs) == DFX_OK &&
           cudaMemcpyAsync(&differs, t->differs, sizeof(differs), cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess && differs == 0;
}

/* False: it cannot be told. */
static bool clock_runs(trial *t, const cublasLtMatmulAlgo_t *algo, float *milliseconds) {
    cudaStream_t stream = t->cuda->compute;
    bool ok = cudaEventRecord(t->begin, stream) == cudaSuccess;
    for (int i = 0; i < RUNS && ok; i++)
        ok = launch(t, algo, t->other);
    return ok && cudaEventRecord(t->end, stream) == cudaSuccess &&
           cudaEventSynchronize(t->end) == cudaSuccess &&
           cudaEventElapsedTime(milliseconds, t->begin, t->end) == cudaSuccess;
}

bool dfx_cuda_tune(dfx_cuda *cuda, dfx_cuda_plan *plan,
                   const cublasLtMatmulHeuristicResult_t *candidates, int n_candidates) {
    const dfx_cuda_shape *s = &plan->shape;
    double operations = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    if (n_candidates < 2 || operations < LEAST_OPERATIONS)
        return false;
    trial t = {.cuda = cuda, .plan = plan};
    float best = 0, milliseconds;
    if (init(&t) && launch(&t, &candidates[0].algo, t.first))
        for (int i = 0; i < n_candidates; i++) {
            const cublasLtMatmulAlgo_t *algo = &candidates[i].algo;
            if (candidates[i].state != CUBLAS_STATUS_SUCCESS || !gives_same_bits(&t, algo) ||
                !clock_runs(&t, algo, &milliseconds) || (best > 0 && milliseconds >= best))
                continue;
            best = milliseconds;
            plan->algo = *algo;
        }
    fini(&t);
    return best > 0;
}
