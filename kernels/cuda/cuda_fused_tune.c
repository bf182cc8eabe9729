/* Which tile of cuda_fused_mma.cu is the fastest on this device? Its prices are reckoned for devices that we do not have, so each
 * device is asked, once (cuda_tune.h). All tiles of a product have the same sums in the same order. */
#include <string.h>

#include "kernels/cuda/cuda_algos.h"
#include "kernels/cuda/cuda_fused.h"
#include "kernels/cuda/cuda_tune.h"

/* What tells products apart. Its `fused`, 0, lies where keys of cuBLASLt's products have an alignment. */
typedef struct tile_key {
    int64_t m, n, k, ldx, ldw, ldy, ldr;
    int32_t in, act, b, gate, r, rank, fused, zeros[3];
} tile_key;

_Static_assert(sizeof(tile_key) == DFX_ALGO_KEY_BYTES, "another DFX_ALGOS_VERSION");
_Static_assert(sizeof(dfx_cuda_fused_tile) <= DFX_ALGO_BYTES, "another DFX_ALGOS_VERSION");

enum { PART_X, PART_W, PART_XS, PART_WS, PART_B, PART_GATE, PART_R, PART_T, PART_U };

typedef struct candidates {
    unsigned char kept[DFX_CUDA_FUSED_TILES][DFX_ALGO_BYTES];
    int order
        [DFX_CUDA_FUSED_TILES]; /* the kernel's own numbers; what is reckoned to be best first */
    int n;
} candidates;

static tile_key key_of(const dfx_cuda_fused *p) {
    tile_key key;
    memset(&key, 0, sizeof(key));
    key.m = p->m, key.n = p->n, key.k = p->k;
    key.ldx = p->ldx, key.ldw = p->ldw, key.ldy = p->y.ld, key.ldr = p->r.ld;
    key.in = p->in, key.act = p->act, key.b = p->b.dtype;
    key.gate = p->gate.rows != 0, key.r = p->r.rows != 0, key.rank = (int32_t)p->t.cols;
    return key;
}

static candidates candidates_of(const dfx_cuda *cuda, const dfx_cuda_fused *p) {
    candidates c = {.n = dfx_cuda_fused_mma_n_tiles(p)};
    int first = dfx_cuda_fused_mma_guess(cuda, p);
    for (int i = 0; i < c.n; i++) {
        c.order[i] = i == 0 ? first : i <= first ? i - 1 : i;
        dfx_cuda_fused_tile tile = dfx_cuda_fused_mma_tile(p, c.order[i]);
        memcpy(c.kept[i], &tile, sizeof(tile));
    }
    return c;
}

typedef struct tried {
    const dfx_cuda_fused *product;
    const candidates *candidates;
} tried;

static void put(dfx_mat *m, void *part, int64_t ld) {
    m->ptr = part;
    m->ld = ld;
}

static bool launch_candidate(dfx_cuda *cuda, void *user, int i, void *const *parts, void *y,
                             void *workspace) {
    const tried *t = user;
    dfx_cuda_fused p = *t->product;
    (void)workspace;
    p.x = parts[PART_X], p.w = parts[PART_W], p.xs = parts[PART_XS], p.ws = parts[PART_WS];
    put(&p.b, parts[PART_B], p.b.ld);
    put(&p.gate, parts[PART_GATE], p.gate.ld);
    put(&p.r, parts[PART_R], p.r.ld);
    put(&p.t, parts[PART_T], p.t.ld);
    put(&p.u, parts[PART_U], p.u.ld);
    put(&p.y, y, p.y.ld);
    return dfx_cuda_fused_mma_run_tile(cuda, &p, t->candidates->order[i]) == DFX_OK;
}

static struct dfx_cuda_trial_part part_of(const dfx_mat *m) {
    const struct dfx_cuda_trial_part part = {(size_t)(m->rows * m->ld) * dfx_dtype_bytes(m->dtype),
                                             m->dtype};
    return part;
}

static struct dfx_cuda_trial_part bytes_of(int64_t bytes, dfx_dtype dtype) {
    const struct dfx_cuda_trial_part part = {(size_t)bytes, dtype};
    return part;
}

void dfx_cuda_fused_mma_choose(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    const tile_key key = key_of(p);
    const candidates c = candidates_of(cuda, p);
    tried t = {p, &c};
    dfx_cuda_trial trial = {.key = &key,
                            .candidates = c.kept,
                            .n_candidates = c.n,
                            .operations = 2.0 * (double)p->m * (double)p->n * (double)p->k,
                            .y_bytes = part_of(&p->y).bytes,
                            .launch = launch_candidate,
                            .user = &t};
    trial.parts[PART_X] = bytes_of(p->m * p->ldx, p->in);
    trial.parts[PART_W] = bytes_of(p->n * p->ldw, p->in);
    trial.parts[PART_XS] = bytes_of(p->m * (int64_t)sizeof(float), DFX_DTYPE_F32);
    trial.parts[PART_WS] = bytes_of(p->n * (int64_t)sizeof(float), DFX_DTYPE_F32);
    trial.parts[PART_B] = part_of(&p->b);
    trial.parts[PART_GATE] = part_of(&p->gate);
    trial.parts[PART_R] = part_of(&p->r);
    trial.parts[PART_T] = part_of(&p->t);
    trial.parts[PART_U] = part_of(&p->u);
    dfx_cuda_choose(cuda, &trial);
}

dfx_status dfx_cuda_fused_mma_run(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    const tile_key key = key_of(p);
    const candidates c = candidates_of(cuda, p);
    int chosen = dfx_cuda_algos_find(dfx_cuda_blas_algos(cuda), &key, c.kept, c.n);
    return dfx_cuda_fused_mma_run_tile(cuda, p, c.order[chosen < 0 ? 0 : chosen]);
}
