/* Which kernel makes a product with all that follows it: Hopper's own where there is code of it, and for codes the one of
 * mma.sync on devices whose tensor cores have nothing better. Those of Hopper and of data centre Blackwell (sm_100 to 119)
 * have: there cuBLASLt's sums with an epilogue behind them take less time than mma.sync (on an H200, [4608, 3072] of K 3072
 * in int8: 0.09 ms, and 0.13). */
#include "kernels/cuda/cuda_fused.h"

enum { MOST = 1 << 22, HOPPER = 90, GEFORCE_BLACKWELL = 120 };

static bool mma_is_best(const dfx_cuda *cuda) {
    return cuda->sm < HOPPER || cuda->sm >= GEFORCE_BLACKWELL;
}

static bool aligned(const void *ptr, int64_t ld_bytes) {
    return (uintptr_t)ptr % 16 == 0 && ld_bytes % 16 == 0;
}

static bool fits_values(const dfx_mat *m) {
    return m->dtype == DFX_DTYPE_BF16 && aligned(m->ptr, m->ld * 2);
}

static bool fits_y(const dfx_cuda_fused *p) {
    if (p->y.dtype != DFX_DTYPE_F8_E4M3)
        return fits_values(&p->y);
    return p->in == DFX_DTYPE_F8_E4M3 && aligned(p->y.ptr, p->y.ld) && !p->gate.rows &&
           !p->r.rows && !p->t.rows;
}

static bool fits_bias(const dfx_mat *b) {
    return !b->rows || b->dtype == DFX_DTYPE_F32 || b->dtype == DFX_DTYPE_BF16 ||
           b->dtype == DFX_DTYPE_F16;
}

static bool fits_low(const dfx_cuda_fused *p) {
    return (!p->t.rows && !p->u.rows) ||
           (fits_values(&p->t) && fits_values(&p->u) && p->t.cols % DFX_ADAPTER_GRAIN == 0);
}

bool dfx_cuda_fused_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p) {
    bool in = p->in == DFX_DTYPE_I8 || p->in == DFX_DTYPE_F8_E4M3 || p->in == DFX_DTYPE_BF16;
    bool extents = p->m >= 1 && p->n >= 8 && p->k >= 16 && p->n % 8 == 0 && p->k % 16 == 0 &&
                   p->m < MOST && p->n < MOST && p->k < MOST;
    return in && extents && aligned(p->x, p->ldx) && aligned(p->w, p->ldw) && fits_bias(&p->b) &&
           fits_low(p) && fits_y(p) && (!p->gate.rows || p->gate.dtype == DFX_DTYPE_BF16) &&
           (!p->r.rows || fits_values(&p->r)) &&
           (dfx_cuda_fused_sm90_fits(cuda, p) ||
            (mma_is_best(cuda) && dfx_cuda_fused_mma_fits(cuda, p)));
}

/* Hopper's own is chosen as measured, at the clocks that a card keeps when it computes for long; a short trial sees others. */
void dfx_cuda_fused_prepare(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    if (!dfx_cuda_fused_sm90_fits(cuda, p))
        dfx_cuda_fused_mma_choose(cuda, p);
}

dfx_status dfx_cuda_fused_run(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    size_t bytes = dfx_dtype_bytes(p->y.dtype);
    if (p->r.ptr != p->y.ptr)
        DFX_TRY(
            dfx_cuda_poison(cuda, p->y.ptr, p->m, (size_t)p->n * bytes, (size_t)p->y.ld * bytes));
    return dfx_cuda_fused_sm90_fits(cuda, p) ? dfx_cuda_fused_sm90_run(cuda, p)
                                             : dfx_cuda_fused_mma_run(cuda, p);
}
