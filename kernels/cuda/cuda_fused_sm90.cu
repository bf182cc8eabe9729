/* Launching cuda_fused.cuh: which tile for which shape, and the maps of its matrices. */
#include <math.h>

#include "kernels/cuda/cuda_fused.cuh"
#include "kernels/cuda/cuda_fused.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_tensor_map.h"

enum {
    HOPPER = 90,
    TMA_BYTES = 16 /* it writes so many, also where a row of y ends among them */
};

static const char what[] = "linear, fused product";

/* A matrix whose rows are `ld_bytes` apart, taken by boxes of [box_rows, box_cols]. */
typedef struct map_of {
    const void *ptr;
    CUtensorMapDataType type;
    int64_t rows, cols, ld_bytes;
    int box_rows, box_cols;
    CUtensorMapSwizzle swizzle;
} map_of;

static dfx_status make_map(const dfx_cuda *cuda, dfx_cuda_encode_fn encode, const map_of *m,
                           CUtensorMap *out) {
    cuuint64_t extents[] = {(cuuint64_t)m->cols, (cuuint64_t)m->rows};
    cuuint64_t strides[] = {(cuuint64_t)m->ld_bytes};
    cuuint32_t box[] = {(cuuint32_t)m->box_cols, (cuuint32_t)m->box_rows}, steps[] = {1, 1};
    CUresult result = encode(out, m->type, 2, (void *)m->ptr, extents, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, m->swizzle,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: %s: a matrix of %lld x %lld with rows %lld bytes apart has no map "
                    "(error %d of the driver)",
                    what, (long long)m->rows, (long long)m->cols, (long long)m->ld_bytes,
                    (int)result);
}

/* Stages of codes or of BF16: boxes of 128 bytes of K. */
static map_of stage_map(bool codes, const void *ptr, int64_t rows, int64_t cols, int64_t ld_bytes,
                        int box_rows) {
    const map_of map = {ptr,
                        codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                        rows,
                        cols,
                        ld_bytes,
                        box_rows,
                        codes ? FUSED_K : FUSED_LOW_K,
                        CU_TENSOR_MAP_SWIZZLE_128B};
    return map;
}

static bool makes_codes(const dfx_cuda_fused *p) {
    return p->y.dtype == DFX_DTYPE_F8_E4M3;
}

static dfx_status make_maps(const dfx_cuda *cuda, const dfx_cuda_fused *p, int tile_rows,
                            int w_rows, fused_args *a) {
    dfx_cuda_encode_fn encode;
    bool codes = p->in != DFX_DTYPE_BF16;
    DFX_TRY(dfx_cuda_find_encode(cuda, what, &encode));
    const map_of x = stage_map(codes, p->x, p->m, p->k, p->ldx, tile_rows);
    const map_of w = stage_map(codes, p->w, p->n, p->k, p->ldw, w_rows);
    map_of y = {p->y.ptr,    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, p->m, p->n, p->y.ld * 2, 16,
                FUSED_STRIP, CU_TENSOR_MAP_SWIZZLE_64B};
    if (makes_codes(p)) {
        y.type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
        y.ld_bytes = p->y.ld;
        y.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
    }
    DFX_TRY(make_map(cuda, encode, &x, &a->x));
    DFX_TRY(make_map(cuda, encode, &w, &a->w));
    DFX_TRY(make_map(cuda, encode, &y, &a->y));
    if (p->t.rows) {
        const map_of t = stage_map(false, p->t.ptr, p->m, p->t.cols, p->t.ld * 2, tile_rows);
        const map_of u = stage_map(false, p->u.ptr, p->n, p->u.cols, p->u.ld * 2, w_rows);
        DFX_TRY(make_map(cuda, encode, &t, &a->t));
        DFX_TRY(make_map(cuda, encode, &u, &a->u));
    }
    a->has_r = p->r.ptr != NULL;
    if (!a->has_r)
        return DFX_OK;
    y.ptr = p->r.ptr;
    y.ld_bytes = p->r.ld * 2;
    return make_map(cuda, encode, &y, &a->r);
}

/* Rows of tiles that are done together, so that as little as can be comes from memory. A band's rows of x stay in the second
 * level cache from wave to wave if they are few enough, and then w comes once for each band; else each wave brings its rows and
 * its columns. */
template <class S> static int band_of(int clusters, int rows, int cols, double k_bytes) {
    const double lasting_bytes = 16 << 20;
    const int most_bands = 8;
    int best = rows;
    double least = 0;
    for (int bands = 1; bands <= most_bands && bands <= rows; bands++) {
        int band = (rows + bands - 1) / bands;
        double x = band * (double)(S::M * S::CLUSTER) * k_bytes, w = cols * (double)S::N * k_bytes;
        double waves = fmax(1, (double)rows * cols / clusters);
        double at_once = (double)clusters / band / cols; /* bands, or a part of a band's columns */
        double bytes =
            x <= lasting_bytes || at_once > 1 ? bands * (x + w) : waves * (x + at_once * w);
        if (bands > 1 && bytes >= least)
            continue;
        least = bytes;
        best = band;
    }
    return best;
}

/* Of n tiles for so many clusters: those that fill whole waves, where the others are few enough to be done as halves by one
 * more; else all. A half has the sums that the tile would have, bit for bit. */
static int n_whole_of(int n, int clusters, bool halves) {
    int left = n % clusters;
    return halves && 2 * left <= clusters ? n - left : n;
}

/* The fewest clusters that take as many waves: these are alike then, so tiles of one more often have rows and columns in common. */
static int as_many_waves(int n, int clusters) {
    int waves = (n + clusters - 1) / clusters;
    return (n + waves - 1) / waves;
}

template <class S, fused_then THEN, bool LOW>
static dfx_status launch(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    fused_args a = {};
    DFX_TRY(make_maps(cuda, p, S::M, S::W_BOX, &a));
    a.xs = p->xs;
    a.ws = p->ws;
    a.ys = p->ys;
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &p->b, 0.0f, &a.b));
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &p->gate, 0.0f, &a.gate));
    a.m = (int)p->m;
    a.n = (int)p->n;
    a.rank = (int)p->t.cols;
    a.n_low = (int)dfx_cuda_ceil_div(a.rank, FUSED_LOW_K);
    a.n_stages = (int)dfx_cuda_ceil_div(p->k, S::K) + a.n_low;
    a.rows = (int)dfx_cuda_ceil_div(p->m, S::M * S::CLUSTER);
    a.cols = (int)dfx_cuda_ceil_div(p->n, S::N);
    int n = a.rows * a.cols, clusters = cuda->n_multiprocessors / S::CLUSTER;
    a.n_whole = n_whole_of(n, clusters, S::HALVES);
    a.n_parts = a.n_whole + 2 * (n - a.n_whole);
    if (a.n_whole == n)
        clusters = as_many_waves(n, clusters);
    else if (clusters > a.n_parts)
        clusters = a.n_parts;
    a.band = band_of<S>(clusters, a.rows, a.cols, (double)p->k * (double)dfx_dtype_bytes(p->in));
    dfx_cuda_note(cuda, "wgmma %dx%d%s%s", S::M, S::N, S::TAKE_TURNS ? " by turns" : "",
                  S::CLUSTER == 2 ? ", clusters of 2" : "");
    cudaError_t error = dfx_cuda_launch_clusters(
        cuda, fused_product<S, THEN, LOW>, {clusters, S::CLUSTER, S::THREADS, S::SHARED_BYTES}, a);
    return dfx_cuda_check(cuda, error, what);
}

/* ---- tiles ---- */

/* A kind of tile. What one costs, as measured: its area times (k + end) / rate, k in bytes, where `end` is the time of its
 * end, if nothing else is multiplied meanwhile, in terms of k. */
typedef struct fused_choice {
    int rows, cols, blocks; /* of y, and blocks that do them: a cluster's */
    bool take_turns, halves;
    double rate; /* of products alone, beside the others */
    dfx_status (*run[2][2])(dfx_cuda *, const dfx_cuda_fused *); /* [with t and u][GELU] */
    dfx_status (*codes)(dfx_cuda *, const dfx_cuda_fused *);     /* of GELU; NULL: not in fp8 */
} fused_choice;

template <class S> static constexpr auto codes_of(void) {
    if constexpr (S::IN == FUSED_F8)
        return launch<S, FUSED_GELU_CODES, false>;
    else
        return (dfx_status(*)(dfx_cuda *, const dfx_cuda_fused *))NULL;
}

/* In BF16 t and u cost nothing unless they are there. */
template <class S> static constexpr fused_choice choice_of(double rate) {
    constexpr bool plain = S::IN == FUSED_BF16;
    return {S::M * S::CLUSTER,
            S::N,
            S::CLUSTER,
            S::TAKE_TURNS,
            S::HALVES,
            rate,
            {{launch<S, FUSED_VALUES, plain>, launch<S, FUSED_GELU, plain>},
             {launch<S, FUSED_VALUES, true>, launch<S, FUSED_GELU, true>}},
            codes_of<S>()};
}

static const fused_choice int8_choices[] = {
    choice_of<fused_shape<FUSED_I8, 3, 1, 192, 4, 2, false>>(1.00), /* 192 x 192, two blocks */
    choice_of<fused_shape<FUSED_I8, 2, 2, 192, 4, 2, true>>(1.00),  /* 128 x 192, by turns, two */
    choice_of<fused_shape<FUSED_I8, 2, 1, 192, 5, 1, false>>(0.98), /* 128 x 192 */
    choice_of<fused_shape<FUSED_I8, 2, 1, 96, 6, 1, false>>(0.80),  /* 128 x 96 */
};

static const fused_choice fp8_choices[] = {
    choice_of<fused_shape<FUSED_F8, 3, 1, 192, 4, 2, false>>(1.00), /* 192 x 192, two blocks */
    choice_of<fused_shape<FUSED_F8, 2, 2, 192, 3, 2, false>>(1.03), /* 256 x 192, two blocks */
    choice_of<fused_shape<FUSED_F8, 2, 2, 192, 4, 2, true>>(1.00),  /* 128 x 192, by turns, two */
    choice_of<fused_shape<FUSED_F8, 2, 1, 192, 5, 1, false>>(0.98), /* 128 x 192 */
    choice_of<fused_shape<FUSED_F8, 2, 1, 96, 6, 1, false>>(0.80),  /* 128 x 96 */
};

static const fused_choice bf16_choices[] = {
    choice_of<fused_shape<FUSED_BF16, 3, 1, 192, 4, 2, false>>(1.00), /* 192 x 192, two blocks */
    choice_of<fused_shape<FUSED_BF16, 2, 2, 192, 3, 2, false>>(1.05), /* 256 x 192, two blocks */
    choice_of<fused_shape<FUSED_BF16, 2, 2, 192, 5, 2, true>>(1.00),  /* 128 x 192, by turns, two */
    choice_of<fused_shape<FUSED_BF16, 2, 1, 192, 5, 1, false>>(0.97), /* 128 x 192 */
    choice_of<fused_shape<FUSED_BF16, 2, 1, 96, 6, 2, false>>(0.84),  /* 128 x 96, two blocks */
};

typedef struct fused_choices {
    const fused_choice *of;
    size_t n;
} fused_choices;

static fused_choices choices_of(const dfx_cuda_fused *p) {
    if (p->in == DFX_DTYPE_I8)
        return {int8_choices, DFX_COUNT(int8_choices)};
    if (p->in == DFX_DTYPE_F8_E4M3)
        return {fp8_choices, DFX_COUNT(fp8_choices)};
    return {bf16_choices, DFX_COUNT(bf16_choices)};
}

enum { BEGIN = 300 }; /* of a launch, until its first product, as part of k */

/* Of m rows. Tiles are done in waves of the whole device, of which the last may be part of one, or halves. By turns, only the
 * last end shows. */
static double price(const dfx_cuda *cuda, const dfx_cuda_fused *p, int64_t m,
                    const fused_choice *c) {
    const double half_wave = 0.7;
    double k = (double)p->k * (double)dfx_dtype_bytes(p->in);
    double end = p->act == DFX_ACT_NONE ? 400 : 600, hidden_end = 60;
    int n = (int)(dfx_cuda_ceil_div(m, c->rows) * dfx_cuda_ceil_div(p->n, c->cols));
    int clusters = cuda->n_multiprocessors / c->blocks,
        n_whole = n_whole_of(n, clusters, c->halves);
    double waves = (double)dfx_cuda_ceil_div(n_whole, clusters) + (n_whole < n ? half_wave : 0);
    double area = (double)c->rows * c->cols / (c->blocks * c->rate);
    return area * (c->take_turns ? waves * (k + hidden_end) + end + BEGIN : waves * (k + end));
}

/* Rows of y by one kind of tile, and what it is reckoned to cost. */
typedef struct fused_part {
    const fused_choice *choice;
    int64_t rows;
    double price;
} fused_part;

static fused_part cheapest(const dfx_cuda *cuda, const dfx_cuda_fused *p, int64_t m) {
    const fused_choices choices = choices_of(p);
    fused_part best = {NULL, m, INFINITY};
    for (size_t i = 0; i < choices.n; i++) {
        double costs = price(cuda, p, m, &choices.of[i]);
        if (costs < best.price)
            best = {&choices.of[i], m, costs};
    }
    return best;
}

/* Where large tiles would leave most of the device without work in their last wave, the rows of their whole waves are theirs,
 * and the others are done by what is best for so few, if a percent is saved. A value does not depend on its tile. */
static void split(const dfx_cuda *cuda, const dfx_cuda_fused *p, fused_part parts[2]) {
    const fused_choices choices = choices_of(p);
    parts[0] = cheapest(cuda, p, p->m);
    parts[1] = {};
    double least = 0.99 * parts[0].price;
    for (size_t i = 0; i < choices.n; i++) {
        const fused_choice *c = &choices.of[i];
        int64_t cols = dfx_cuda_ceil_div(p->n, c->cols),
                clusters = cuda->n_multiprocessors / c->blocks,
                waves = p->m / c->rows * cols / clusters, rows = waves * clusters / cols * c->rows;
        if (rows == 0 || rows == p->m)
            continue;
        fused_part rest = cheapest(cuda, p, p->m - rows);
        double alone = price(cuda, p, rows, c),
               begin = (double)c->rows * c->cols / c->blocks * BEGIN;
        if (alone + rest.price + begin >= least)
            continue;
        least = alone + rest.price + begin;
        parts[0] = {c, rows, alone};
        parts[1] = rest;
    }
}

/* ---- what fits ---- */

/* A kernel without a body, as code for other targets has it, needs hardly a register. */
static bool has_code(void) {
    cudaFuncAttributes attributes;
    auto kernel = fused_product<fused_shape<FUSED_I8, 2, 1, 96, 6, 1, false>, FUSED_VALUES, false>;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.numRegs > 64;
}

extern "C" bool dfx_cuda_fused_sm90_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p) {
    bool act =
        p->act == DFX_ACT_NONE || (p->act == DFX_ACT_GELU_TANH && !p->gate.rows && !p->r.rows);
    bool then = !makes_codes(p) || (p->act == DFX_ACT_GELU_TANH && p->n % TMA_BYTES == 0);
    return cuda->sm == HOPPER && act && then && has_code();
}

/* ---- rows of one product ---- */

static void skip_rows(dfx_mat *m, int64_t rows) {
    if (m->ptr)
        m->ptr = (char *)m->ptr + (size_t)(rows * m->ld) * dfx_dtype_bytes(m->dtype);
}

/* The product of `n` rows from `first` on. */
static dfx_cuda_fused rows_of(const dfx_cuda_fused *p, int64_t first, int64_t n) {
    dfx_cuda_fused rows = *p;
    rows.m = n;
    rows.x = (const char *)p->x + first * p->ldx;
    rows.xs = p->xs ? p->xs + first : NULL;
    rows.ys = p->ys ? p->ys + first : NULL;
    skip_rows(&rows.t, first);
    skip_rows(&rows.r, first);
    skip_rows(&rows.y, first);
    return rows;
}

extern "C" dfx_status dfx_cuda_fused_sm90_run(dfx_cuda *cuda, const dfx_cuda_fused *p) {
    fused_part parts[2];
    int64_t first = 0;
    split(cuda, p, parts);
    for (const fused_part &part : parts) {
        if (part.rows == 0)
            continue;
        const dfx_cuda_fused rows = rows_of(p, first, part.rows);
        const fused_choice *c = part.choice;
        DFX_TRY(makes_codes(p) ? c->codes(cuda, &rows)
                               : c->run[p->t.rows != 0][p->act == DFX_ACT_GELU_TANH](cuda, &rows));
        first += part.rows;
    }
    return DFX_OK;
}
