/* Launching cuda_fused_mma.cuh: its tiles, and which is reckoned to be the best; cuda_fused_tune.c asks the clock. */
#include "kernels/cuda/cuda_fused_mma.cuh"

#include <math.h>

#include "kernels/cuda/cuda_fused.h"

enum { FP8_SM = 89 };

static const char what[] = "linear, fused product of mma.sync";

/* Tiles done at the same time shall make a square of y, which needs the fewest codes; all bands alike. */
template <class S> static int band_of(int n_multiprocessors, int rows) {
    double side = sqrt((double)n_multiprocessors * S::BLOCKS * S::M * S::N);
    int wanted = (int)(side / S::M + 0.5), bands = (rows + wanted - 1) / wanted;
    return (rows + bands - 1) / bands;
}

/* Also that all of what the first level cache could be is shared memory, so that BLOCKS have room. */
static dfx_status allow_shared(const dfx_cuda *cuda, void (*kernel)(mma_args), int n_bytes) {
    DFX_TRY(dfx_cuda_check(
        cuda, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
        what));
    return dfx_cuda_check(cuda,
                          cudaFuncSetAttribute(kernel,
                                               cudaFuncAttributePreferredSharedMemoryCarveout,
                                               cudaSharedmemCarveoutMaxShared),
                          what);
}

static mma_pair pair_of(const void *x, const void *w, int64_t ldx_bytes, int64_t ldw_bytes,
                        int64_t k_bytes) {
    const mma_pair pair = {(const char *)x, (const char *)w, (uint32_t)ldx_bytes,
                           (uint32_t)ldw_bytes, (int)k_bytes};
    return pair;
}

template <class S, bool LOW> static dfx_status launch(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    mma_args a = {};
    dfx_mat ws = {};
    ws.ptr = (void *)p->ws;
    ws.rows = 1;
    ws.cols = ws.ld = p->n;
    ws.dtype = DFX_DTYPE_F32;
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &ws, 0.0f, &a.ws));
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &p->b, 0.0f, &a.b));
    a.pairs[0] = pair_of(p->x, p->w, p->ldx, p->ldw, p->k);
    a.pairs[1] = pair_of(p->t.ptr, p->u.ptr, p->t.ld * 2, p->u.ld * 2, p->t.cols * 2);
    a.xs = p->xs;
    a.gate = dfx_cuda_view_of(&p->gate);
    a.r = (const __nv_bfloat16 *)p->r.ptr;
    a.ys = p->ys;
    a.y = p->y.ptr;
    a.ldr = p->r.ld;
    a.ldy = p->y.ld;
    a.act = p->act;
    a.m = (int)p->m;
    a.n = (int)p->n;
    a.rows = (int)dfx_cuda_ceil_div(p->m, S::M);
    a.cols = (int)dfx_cuda_ceil_div(p->n, S::N);
    a.band = band_of<S>(cuda->n_multiprocessors, a.rows);
    DFX_TRY(allow_shared(cuda, mma_product<S, LOW>, S::SHARED_BYTES));
    mma_product<S, LOW><<<a.rows * a.cols, S::THREADS, S::SHARED_BYTES, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), what);
}

/* ---- tiles ---- */

/* A kind of tile. What one costs: its area times (k + end) / rate, where `rate` is of its products beside other kinds, where
 * all multiprocessors have some, and `end` the time of its end in terms of k, if nothing else is multiplied meanwhile. Both
 * are estimates for 1024 products of I8 a clock and multiprocessor and 16 bytes from the second level cache, from what was
 * measured with 2300 and more than 30 (kernels/PERF.md). */
typedef struct mma_choice {
    int rows, cols;
    double rate, end;
    dfx_status (*run[2])(dfx_cuda *, const dfx_cuda_fused *); /* without and with t and u */
    const void *kernel;
} mma_choice;

template <class S> static constexpr mma_choice choice_of(double rate, double end) {
    return {S::M,
            S::N,
            rate,
            end,
            {launch<S, false>, launch<S, true>},
            (const void *)mma_product<S, false>};
}

static const mma_choice int8_choices[] = {
    choice_of<mma_shape<int32_t, 4, 2, 64, 64, 4, 1>>(1.00, 280), /* 256 x 128 */
    choice_of<mma_shape<int32_t, 2, 4, 64, 64, 4, 1>>(1.00, 280), /* 128 x 256 */
    choice_of<mma_shape<int32_t, 2, 4, 64, 32, 3, 2>>(0.90, 100), /* 128 x 128 */
    choice_of<mma_shape<int32_t, 2, 2, 64, 32, 4, 2>>(0.70, 100), /* 128 x 64 */
    choice_of<mma_shape<int32_t, 2, 2, 32, 32, 4, 3>>(0.55, 100), /* 64 x 64 */
};

static const mma_choice fp8_choices[] = {
    choice_of<mma_shape<float, 2, 4, 64, 32, 4, 1>>(1.00, 140), /* 128 x 128 */
    choice_of<mma_shape<float, 2, 2, 64, 32, 4, 2>>(0.97, 60),  /* 128 x 64 */
    choice_of<mma_shape<float, 2, 2, 32, 32, 4, 2>>(0.85, 60),  /* 64 x 64 */
};

/* Tiles are done in waves of the whole device, of which the last may be part of one. */
static double price(const dfx_cuda *cuda, const dfx_cuda_fused *p, const mma_choice *c) {
    int64_t n_tiles = dfx_cuda_ceil_div(p->m, c->rows) * dfx_cuda_ceil_div(p->n, c->cols);
    double waves = (double)dfx_cuda_ceil_div(n_tiles, cuda->n_multiprocessors);
    return waves * c->rows * c->cols * ((double)p->k + c->end) / c->rate;
}

static const mma_choice *choices_of(const dfx_cuda_fused *p) {
    return p->in == DFX_DTYPE_I8 ? int8_choices : fp8_choices;
}

static_assert(DFX_COUNT(int8_choices) <= DFX_CUDA_FUSED_TILES &&
                  DFX_COUNT(fp8_choices) <= DFX_CUDA_FUSED_TILES,
              "tiles");

extern "C" int dfx_cuda_fused_mma_n_tiles(const dfx_cuda_fused *p) {
    return (int)(p->in == DFX_DTYPE_I8 ? DFX_COUNT(int8_choices) : DFX_COUNT(fp8_choices));
}

extern "C" dfx_cuda_fused_tile dfx_cuda_fused_mma_tile(const dfx_cuda_fused *p, int tile) {
    const mma_choice *c = &choices_of(p)[tile];
    return {c->rows, c->cols};
}

extern "C" int dfx_cuda_fused_mma_guess(const dfx_cuda *cuda, const dfx_cuda_fused *p) {
    const mma_choice *choices = choices_of(p);
    int best = 0;
    for (int i = 1; i < dfx_cuda_fused_mma_n_tiles(p); i++)
        if (price(cuda, p, &choices[i]) < price(cuda, p, &choices[best]))
            best = i;
    return best;
}

extern "C" bool dfx_cuda_fused_mma_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p) {
    cudaFuncAttributes attributes;
    if (cuda->sm < 80 || p->m * p->ldx > UINT32_MAX || p->n * p->ldw > UINT32_MAX ||
        p->m * p->t.ld * 2 > UINT32_MAX || p->n * p->u.ld * 2 > UINT32_MAX)
        return false;
    if (p->in == DFX_DTYPE_I8)
        return true;
    /* Code that was compiled for an older device, and runs on this one, lacks the products. */
    return p->in == DFX_DTYPE_F8_E4M3 &&
           cudaFuncGetAttributes(&attributes, fp8_choices[0].kernel) == cudaSuccess &&
           attributes.ptxVersion >= FP8_SM;
}

extern "C" dfx_status dfx_cuda_fused_mma_run_tile(dfx_cuda *cuda, const dfx_cuda_fused *p,
                                                  int tile) {
    const dfx_cuda_fused_tile of = dfx_cuda_fused_mma_tile(p, tile);
    dfx_cuda_note(cuda, "mma.sync %dx%d", of.rows, of.cols);
    return choices_of(p)[tile].run[p->t.rows != 0](cuda, p);
}
