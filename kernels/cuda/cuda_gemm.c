/* See cuda_gemm.h. Plans are made once for each shape and kept until close: descriptors, layouts and an algorithm under a
 * fixed cap of workspace, the same whatever a session holds. */
#include "kernels/cuda/cuda_gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

#include "kernels/cuda/cuda_algos.h"
#include "kernels/cuda/cuda_tune.h"
#include "kernels/product_workspace.h"

#define LT_CALLS(X)                         \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusString)              \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

#define LT_POINTER(name) __typeof__(&name) name;
typedef struct lt_calls {
    LT_CALLS(LT_POINTER)
} lt_calls;
#undef LT_POINTER

/* What tells products apart: all but values and addresses. Compared by bytes, so made from zeros. */
typedef struct product_shape {
    int64_t m, n, k, ldx, ldw, ldy, ldr;
    int32_t in, out, w_transposed, act, has_b, has_r;
    int32_t align_x, align_w, align_y, align_r; /* bytes, at most 16 */
} product_shape;

/* How cuBLASLt does products of one shape. It counts by columns: its A is w, its B x, its C r or y, its D y. */
typedef struct product_plan {
    product_shape shape;
    cublasLtMatmulDesc_t desc; /* owned, as the layouts */
    cublasLtMatrixLayout_t w, x, y, r;
    cublasLtMatmulAlgo_t algo;
    bool tuned;
} product_plan;

enum { CANDIDATES = 8 };

_Static_assert(sizeof(product_shape) == DFX_ALGO_KEY_BYTES, "another DFX_ALGOS_VERSION");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == DFX_ALGO_BYTES, "another DFX_ALGOS_VERSION");

struct dfx_cuda_blas {
    void *library; /* stays loaded for the process: it registers itself with the driver */
    lt_calls lt;
    cublasLtHandle_t handle;
    product_plan *plans; /* [n_plans], owned */
    size_t n_plans, cap_plans;
    dfx_cuda_algos algos;
};

static dfx_status check(const dfx_cuda *cuda, cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE, "cuda: %s: cuBLASLt says: %s", what,
                    cuda->blas->lt.cublasLtGetStatusString(status));
}

#define LIBRARY "libcublasLt.so."

/* The loader's own places first, then where the toolkit is installed. Calls and structures that we use are the same in both
 * versions. */
static void *load_library(void) {
    static const char *const names[] = {LIBRARY "13", "/usr/local/cuda/lib64/" LIBRARY "13",
                                        LIBRARY "12", "/usr/local/cuda/lib64/" LIBRARY "12"};
    void *library = NULL;
    for (size_t i = 0; !library && i < DFX_COUNT(names); i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

static dfx_status find_calls(const dfx_cuda *cuda, dfx_cuda_blas *blas) {
#define FIND(name)                                                                        \
    if (!(blas->lt.name = (__typeof__(&name))dlsym(blas->library, #name)))                \
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,                                    \
                        "cuda: " LIBRARY "13 or 12 has no %s; install cuBLAS of CUDA 12 " \
                        "or 13",                                                          \
                        #name);
    LT_CALLS(FIND)
#undef FIND
    return DFX_OK;
}

dfx_status dfx_cuda_blas_open(dfx_cuda *cuda) {
    dfx_cuda_blas *blas;
    DFX_TRY(dfx_new(cuda->base.sink, "cuda blas", &blas));
    cuda->blas = blas;
    blas->library = load_library();
    if (!blas->library)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: cuBLASLt (" LIBRARY "13 or 12) could not be loaded: %s; install "
                        "cuBLAS of CUDA 13, or put its folder into LD_LIBRARY_PATH",
                        dlerror());
    DFX_TRY(find_calls(cuda, blas));
    DFX_TRY(check(cuda, blas->lt.cublasLtCreate(&blas->handle), "opening cuBLASLt"));
    dfx_cuda_algos_open(&blas->algos, cuda, cuda->cache_folder, blas->lt.cublasLtGetVersion());
    return DFX_OK;
}

static void fini_plan(const lt_calls *lt, product_plan *plan) {
    cublasLtMatrixLayout_t layouts[] = {plan->w, plan->x, plan->y, plan->r};
    for (size_t i = 0; i < DFX_COUNT(layouts); i++)
        if (layouts[i])
            lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (plan->desc)
        lt->cublasLtMatmulDescDestroy(plan->desc);
}

void dfx_cuda_blas_close(dfx_cuda *cuda) {
    dfx_cuda_blas *blas = cuda->blas;
    if (!blas)
        return;
    dfx_cuda_algos_store(&blas->algos, cuda->base.sink);
    dfx_cuda_algos_fini(&blas->algos);
    for (size_t i = 0; i < blas->n_plans; i++)
        fini_plan(&blas->lt, &blas->plans[i]);
    if (blas->handle)
        blas->lt.cublasLtDestroy(blas->handle);
    dfx_free(blas->plans);
    dfx_free(blas);
    cuda->blas = NULL;
}

size_t dfx_cuda_blas_workspace_bytes(const dfx_cuda *cuda) {
    return dfx_product_workspace_bytes(cuda->sm);
}

/* The greatest power of two, at most 16, at whose multiples every row begins. */
static int32_t align_of(const void *ptr, int64_t ld, dfx_dtype dtype) {
    uint64_t bits = (uint64_t)(uintptr_t)ptr | (uint64_t)ld * dfx_dtype_bytes(dtype) | 16;
    return (int32_t)(bits & -bits);
}

static product_shape shape_of(const dfx_cuda_product *p) {
    product_shape shape;
    memset(&shape, 0, sizeof(shape));
    shape.m = p->m, shape.n = p->n, shape.k = p->k;
    shape.ldx = p->ldx, shape.ldw = p->ldw, shape.ldy = p->ldy;
    shape.in = p->in, shape.out = p->out, shape.act = p->act;
    shape.w_transposed = p->w_transposed;
    shape.has_b = p->has_b, shape.has_r = p->has_r;
    shape.ldr = p->has_r ? p->ldr : p->ldy;
    shape.align_x = align_of(p->x, p->ldx, p->in);
    shape.align_w = align_of(p->w, p->ldw, p->in);
    shape.align_y = align_of(p->y, p->ldy, p->out);
    shape.align_r = p->has_r ? align_of(p->r, p->ldr, p->out) : shape.align_y;
    return shape;
}

static cudaDataType_t type_of(int32_t dtype) {
    switch (dtype) {
    case DFX_DTYPE_BF16:
        return CUDA_R_16BF;
    case DFX_DTYPE_F8_E4M3:
        return CUDA_R_8F_E4M3;
    case DFX_DTYPE_I8:
        return CUDA_R_8I;
    case DFX_DTYPE_I32:
        return CUDA_R_32I;
    default:
        return CUDA_R_32F;
    }
}

/* cuBLASLt wants to know of a bias before there is one. */
static const void *const SOME_ADDRESS = (const void *)256;

static dfx_status describe(const dfx_cuda *cuda, product_plan *plan) {
    const lt_calls *lt = &cuda->blas->lt;
    const product_shape *s = &plan->shape;
    bool exact = s->in == DFX_DTYPE_I8;
    cudaDataType_t in = type_of(s->in), out = type_of(s->out);
    cublasOperation_t w_op = s->w_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t end = s->has_b ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (s->act == DFX_ACT_GELU_TANH)
        end = s->has_b ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    static const char what[] = "describing a product";
#define TRY(expr) DFX_TRY(check(cuda, expr, what))
    TRY(lt->cublasLtMatmulDescCreate(&plan->desc, exact ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                     exact ? CUDA_R_32I : CUDA_R_32F));
    TRY(lt->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &w_op,
                                           sizeof(w_op)));
    TRY(lt->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &end,
                                           sizeof(end)));
    if (s->has_b)
        TRY(lt->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &SOME_ADDRESS, sizeof(SOME_ADDRESS)));
    TRY(lt->cublasLtMatrixLayoutCreate(&plan->w, in, s->w_transposed ? k : n,
                                       s->w_transposed ? n : k, s->ldw));
    TRY(lt->cublasLtMatrixLayoutCreate(&plan->x, in, k, m, s->ldx));
    TRY(lt->cublasLtMatrixLayoutCreate(&plan->y, out, n, m, s->ldy));
    TRY(lt->cublasLtMatrixLayoutCreate(&plan->r, out, n, m, s->ldr));
#undef TRY
    return DFX_OK;
}

/* Sums in parts only where the parts are kept and joined in a fixed order. */
static cublasStatus_t prefer(const dfx_cuda *cuda, const product_shape *s,
                             cublasLtMatmulPreference_t preference) {
    const lt_calls *lt = &cuda->blas->lt;
    size_t workspace_bytes = dfx_cuda_blas_workspace_bytes(cuda);
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof(reduction)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &s->align_w, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &s->align_x, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s->align_r, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s->align_y, sizeof(uint32_t)},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < DFX_COUNT(wishes) && status == CUBLAS_STATUS_SUCCESS; i++)
        status = lt->cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].name,
                                                          wishes[i].value, wishes[i].bytes);
    return status;
}

/* The best that cuBLASLt guesses, best first; at least one. */
static dfx_status find_candidates(const dfx_cuda *cuda, const product_plan *plan,
                                  cublasLtMatmulHeuristicResult_t *candidates, int *n) {
    const lt_calls *lt = &cuda->blas->lt;
    const product_shape *s = &plan->shape;
    cublasLtMatmulPreference_t preference;
    DFX_TRY(check(cuda, lt->cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm"));
    cublasStatus_t status = prefer(cuda, s, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulAlgoGetHeuristic(cuda->blas->handle, plan->desc, plan->w,
                                                    plan->x, plan->r, plan->y, preference,
                                                    CANDIDATES, candidates, n);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && *n > 0 && candidates[0].state == CUBLAS_STATUS_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: cuBLASLt has no algorithm for a product of %s, %lld x %lld x %lld, on "
                    "sm_%d: %s",
                    dfx_dtype_name((dfx_dtype)s->in), (long long)s->m, (long long)s->n,
                    (long long)s->k, cuda->sm, lt->cublasLtGetStatusString(status));
}

static dfx_status add_plan(dfx_cuda *cuda, const product_shape *shape, product_plan **out) {
    dfx_cuda_blas *blas = cuda->blas;
    DFX_TRY(dfx_grow(cuda->base.sink, blas->n_plans + 1, sizeof(*blas->plans), "cuda plans",
                     &blas->cap_plans, (void **)&blas->plans));
    product_plan *plan = &blas->plans[blas->n_plans];
    *plan = (product_plan){.shape = *shape};
    dfx_status status = describe(cuda, plan);
    if (status != DFX_OK) {
        fini_plan(&blas->lt, plan);
        return status;
    }
    *out = plan;
    return DFX_OK;
}

static cublasStatus_t launch_plan(dfx_cuda *cuda, product_plan *plan, const dfx_cuda_product *p,
                                  const cublasLtMatmulAlgo_t *algo, void *workspace) {
    const lt_calls *lt = &cuda->blas->lt;
    bool exact = p->in == DFX_DTYPE_I8;
    int32_t alpha_exact = 1, beta_exact = 0;
    float beta = p->has_r ? 1.0f : 0.0f;
    if (p->has_b) {
        cublasStatus_t status = lt->cublasLtMatmulDescSetAttribute(
            plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->b, sizeof(p->b));
        if (status != CUBLAS_STATUS_SUCCESS)
            return status;
    }
    return lt->cublasLtMatmul(cuda->blas->handle, plan->desc,
                              exact ? (const void *)&alpha_exact : &p->alpha, p->w, plan->w, p->x,
                              plan->x, exact ? (const void *)&beta_exact : &beta,
                              p->has_r ? p->r : p->y, plan->r, p->y, plan->y, algo, workspace,
                              dfx_cuda_blas_workspace_bytes(cuda), cuda->compute);
}

/* What cuda_tune.c tries. */
typedef struct tried {
    product_plan *plan;
    const cublasLtMatmulHeuristicResult_t *candidates;
} tried;

enum { PART_X, PART_W, PART_B, PART_R };

static bool launch_candidate(dfx_cuda *cuda, void *user, int i, void *const *parts, void *y,
                             void *workspace) {
    const tried *t = user;
    const product_shape *s = &t->plan->shape;
    const dfx_cuda_product product = {.in = (dfx_dtype)s->in,
                                      .alpha = 1.0f,
                                      .x = parts[PART_X],
                                      .w = parts[PART_W],
                                      .b = parts[PART_B],
                                      .r = parts[PART_R],
                                      .y = y,
                                      .has_b = s->has_b,
                                      .has_r = s->has_r};
    return launch_plan(cuda, t->plan, &product, &t->candidates[i].algo, workspace) ==
           CUBLAS_STATUS_SUCCESS;
}

static struct dfx_cuda_trial_part part_of(int64_t rows, int64_t ld, int32_t dtype) {
    const struct dfx_cuda_trial_part part = {
        (size_t)(rows * ld) * dfx_dtype_bytes((dfx_dtype)dtype), (dfx_dtype)dtype};
    return part;
}

static void choose(dfx_cuda *cuda, product_plan *plan,
                   const cublasLtMatmulHeuristicResult_t *candidates, int n) {
    const product_shape *s = &plan->shape;
    unsigned char kept[CANDIDATES][DFX_ALGO_BYTES] = {{0}};
    for (int i = 0; i < n; i++)
        if (candidates[i].state == CUBLAS_STATUS_SUCCESS)
            memcpy(kept[i], &candidates[i].algo, sizeof(kept[i]));
    tried t = {plan, candidates};
    dfx_cuda_trial trial = {.key = s,
                            .candidates = kept,
                            .n_candidates = n,
                            .operations = 2.0 * (double)s->m * (double)s->n * (double)s->k,
                            .y_bytes = part_of(s->m, s->ldy, s->out).bytes,
                            .launch = launch_candidate,
                            .user = &t};
    trial.parts[PART_X] = part_of(s->m, s->ldx, s->in);
    trial.parts[PART_W] = part_of(s->w_transposed ? s->n : s->k, s->ldw, s->in);
    if (s->has_b)
        trial.parts[PART_B] = part_of(1, s->n, s->out);
    if (s->has_r)
        trial.parts[PART_R] = part_of(s->m, s->ldr, s->out);
    plan->algo = candidates[dfx_cuda_choose(cuda, &trial)].algo;
}

/* `tune`: by the clock, if that has not been done. */
static dfx_status plan_of(dfx_cuda *cuda, const dfx_cuda_product *product, bool tune,
                          product_plan **out) {
    dfx_cuda_blas *blas = cuda->blas;
    product_shape shape = shape_of(product);
    product_plan *plan = NULL;
    for (size_t i = 0; i < blas->n_plans && !plan; i++)
        if (memcmp(&blas->plans[i].shape, &shape, sizeof(shape)) == 0)
            plan = &blas->plans[i];
    bool is_new = !plan;
    if (is_new)
        DFX_TRY(add_plan(cuda, &shape, &plan));
    if (is_new || (tune && !plan->tuned)) {
        cublasLtMatmulHeuristicResult_t candidates[CANDIDATES];
        memset(candidates, 0, sizeof(candidates)); /* algorithms are compared by their bytes */
        int n;
        dfx_status status = find_candidates(cuda, plan, candidates, &n);
        if (status != DFX_OK) {
            if (is_new)
                fini_plan(&blas->lt, plan);
            return status;
        }
        plan->algo = candidates[0].algo;
        if (tune)
            choose(cuda, plan, candidates, n);
        plan->tuned = tune;
        blas->n_plans += is_new;
    }
    *out = plan;
    return DFX_OK;
}

dfx_status dfx_cuda_product_prepare(dfx_cuda *cuda, const dfx_cuda_product *product) {
    product_plan *plan;
    return plan_of(cuda, product, true, &plan);
}

dfx_cuda_algos *dfx_cuda_blas_algos(dfx_cuda *cuda) {
    return &cuda->blas->algos;
}

void dfx_cuda_products_keep(dfx_cuda *cuda) {
    dfx_cuda_algos *algos = &cuda->blas->algos;
    dfx_debug(cuda->base.sink,
              "cuda: algorithms of products: %zu as chosen before (%s), %zu chosen "
              "by the clock",
              algos->n_found, algos->path[0] ? algos->path : "no cache", algos->n_chosen);
    dfx_cuda_algos_store(algos, cuda->base.sink);
}

dfx_status dfx_cuda_product_run(dfx_cuda *cuda, const dfx_cuda_product *product) {
    product_plan *plan;
    DFX_TRY(plan_of(cuda, product, false, &plan));
    dfx_cuda_note(cuda, "cuBLASLt");
    void *workspace = (char *)cuda->workspace + cuda->workspace_bytes;
    size_t bytes = dfx_dtype_bytes(product->out);
    if (product->r != product->y)
        DFX_TRY(dfx_cuda_poison(cuda, product->y, product->m, (size_t)product->n * bytes,
                                (size_t)product->ldy * bytes));
    return check(cuda, launch_plan(cuda, plan, product, &plan->algo, workspace),
                 "a matrix product");
}

dfx_status dfx_cuda_gemm(dfx_cuda *cuda, bool w_transposed, int64_t m, int64_t n, int64_t k,
                         float alpha, const void *x, int64_t ldx, const void *w, int64_t ldw,
                         void *y, int64_t ldy, bool y_f32) {
    dfx_cuda_product product = {.in = DFX_DTYPE_BF16,
                                .out = y_f32 ? DFX_DTYPE_F32 : DFX_DTYPE_BF16,
                                .w_transposed = w_transposed,
                                .alpha = alpha,
                                .m = m,
                                .n = n,
                                .k = k,
                                .x = x,
                                .w = w,
                                .ldx = ldx,
                                .ldw = ldw,
                                .y = y,
                                .ldy = ldy};
    return dfx_cuda_product_run(cuda, &product);
}
