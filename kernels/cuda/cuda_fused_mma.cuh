/* One kernel from codes to BF16 (cuda_fused.h) out of mma.sync, for every device from sm_80 on that has it as its best: I8
 * everywhere, F8_E4M3 from sm_89 on. cuda_fused_mma.cu chooses tiles and launches.
 *
 * A block makes one tile of y. Codes pass through a ring of stages in shared memory, each 64 of K of the tile's rows and
 * columns, fetched by cp.async while earlier ones are multiplied. A warp has a rectangle of the tile, and loads what 32 of
 * K want while it multiplies the 32 before. At the end the ring's memory turns its sums, 16 rows at a time, from the order of
 * tensor cores into rows, of which a thread ends eight adjacent columns: r comes and y goes 16 bytes at a time.
 *   Bound: arithmetic. What shared memory gives a clock, 128 bytes, wants rectangles of 64 x 64 where m16n8k32 takes 8
 *   clocks of a quarter multiprocessor (sm_80, 87) and has a half to spare where it takes 16 (sm_86, 89, 120). From the
 *   second level cache, 128 x 128 at 16 clocks want 16 bytes a clock and multiprocessor, 128 x 256 want 12.
 *   Tiles: at most 99 KiB a multiprocessor, which the smallest of these devices have, and all of its registers: one block of
 *   eight warps, or more that are smaller, of which one multiplies while another ends its tile.
 *
 * t and u are the last stages, 32 of their columns each. Sums get their scales in the registers where they are, and the
 * product of t and u is added.
 *
 * FP8: Ada's tensor cores, like Hopper's, add e4m3 products with some 14 bits (measured by Zhang et al., "SageAttention2"), so
 * after every 128 of K their sums are added to others in f32 (numbers in cuda_fused.cuh). With 64 x 32 a warp there are
 * registers for both. */
#ifndef DFX_KERNELS_CUDA_FUSED_MMA_CUH
#define DFX_KERNELS_CUDA_FUSED_MMA_CUH

#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_mma.cuh"

enum {
    STAGE_K = 64, /* bytes of a row in a stage */
    STEP_K = 32,  /* of one product */
    CHUNK_BYTES = 16,
    ROW_CHUNKS = STAGE_K / CHUNK_BYTES,
    FRAGMENT = 16, /* rows of one product; columns of two */
};

/* What one compiled kernel does: WARPS_M x WARPS_N warps, each with WM x WN of the tile. BLOCKS share a multiprocessor. */
template <typename Sum_, int WARPS_M_, int WARPS_N_, int WM_, int WN_, int STAGES_, int BLOCKS_>
struct mma_shape {
    typedef Sum_ Sum; /* int32_t of I8, float of F8_E4M3 */
    static constexpr bool EXACT = (Sum)0.5f == 0;
    static constexpr int WARPS_M = WARPS_M_, WM = WM_, WN = WN_;
    static constexpr int STAGES = STAGES_, BLOCKS = BLOCKS_;
    static constexpr int M = WARPS_M_ * WM, N = WARPS_N_ * WN;
    static constexpr int THREADS = WARPS_M_ * WARPS_N_ * DFX_WARP;
    static constexpr int X_BYTES = M * STAGE_K, STAGE_BYTES = (M + N) * STAGE_K;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES;
    static constexpr int FETCHED = THREADS / ROW_CHUNKS; /* rows fetched at once */
    static constexpr int STRIP_LD = WN + 8;              /* of the sums of 16 rows */
    static_assert(M % FETCHED == 0 && N % FETCHED == 0 && FETCHED % 8 == 0, "rows, swizzle");
    static_assert(BLOCKS * (SHARED_BYTES + 1024) <= 100 * 1024, "shared memory of sm_86");
    static_assert(THREADS / DFX_WARP * FRAGMENT * STRIP_LD * 4 <= SHARED_BYTES, "strips");
};

/* Rows of bytes that are multiplied with each other: x and w, or t and u. */
typedef struct mma_pair {
    const char *x, *w;
    uint32_t ldx, ldw;
    int k; /* bytes of a row */
} mma_pair;

typedef struct mma_args {
    mma_pair pairs[2]; /* x and w, t and u */
    const float *xs, *ys; /* ys: of y that is codes, or NULL */
    dfx_cuda_weights ws, b;
    dfx_cuda_view gate;     /* without ptr where there is none */
    const __nv_bfloat16 *r; /* or NULL */
    void *y; /* BF16, or codes */
    int64_t ldr, ldy;
    dfx_act act;
    int m, n;
    int rows, cols, band; /* in tiles; `band` rows are done together */
} mma_args;

/* ---- instructions ---- */

/* c [16,8] += a [16,32] b [32,8]. Lane i holds of c what it holds of BF16 products. */
static __device__ inline void multiply_add(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#if __CUDA_ARCH__ >= 890
static __device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

/* ---- fetching ---- */

/* Byte offset of a chunk of a row: the same chunk of 8 adjacent rows lies in 8 places of the 128 bytes that the banks span. */
static __device__ inline uint32_t place_of(int row, int chunk) {
    return (uint32_t)(row * STAGE_K + (chunk ^ (row / 2 % 4)) * CHUNK_BYTES);
}

/* A thread fetches one chunk of every FETCHED-th row. */
template <class S> struct mma_fetch {
    int which;     /* of a.pairs */
    uint32_t x, w; /* bytes from the matrices to the thread's first rows, for the next stage */
    int x_left, w_left, k_left; /* from there to the end of the matrices */
    uint32_t place;             /* of the first row in the first stage */

    __device__ mma_fetch(const mma_args &a, uint32_t shared, int tile_row, int tile_col) {
        int row = (int)threadIdx.x / ROW_CHUNKS, chunk = (int)threadIdx.x % ROW_CHUNKS;
        x_left = a.m - tile_row - row;
        w_left = a.n - tile_col - row;
        place = shared + place_of(row, chunk);
        begin(a, 0);
        asm volatile(""
                     : "+r"(x_left), "+r"(w_left)); /* first_row() shall not be kept beside them */
    }

    /* Of the tile. */
    __device__ int first_row(const mma_args &a) const {
        return a.m - x_left - (int)threadIdx.x / ROW_CHUNKS;
    }

    __device__ int first_col(const mma_args &a) const {
        return a.n - w_left - (int)threadIdx.x / ROW_CHUNKS;
    }

    __device__ void begin(const mma_args &a, int pair) {
        int chunk_bytes = (int)threadIdx.x % ROW_CHUNKS * CHUNK_BYTES;
        which = pair;
        x = (uint32_t)(a.m - x_left) * a.pairs[which].ldx + chunk_bytes;
        w = (uint32_t)(a.n - w_left) * a.pairs[which].ldw + chunk_bytes;
        k_left = a.pairs[which].k - chunk_bytes;
    }

    /* The next stage goes `at` bytes behind the first. Rows and K that are not there are zeros. */
    __device__ void next(const mma_args &a, uint32_t at) {
        bool inside = k_left > 0;
#pragma unroll
        for (int i = 0; i < S::M; i += S::FETCHED)
            dfx_cuda_copy_async(place + at + i * STAGE_K,
                                a.pairs[which].x + (x + i * a.pairs[which].ldx),
                                inside && i < x_left);
#pragma unroll
        for (int i = 0; i < S::N; i += S::FETCHED)
            dfx_cuda_copy_async(place + at + S::X_BYTES + i * STAGE_K,
                                a.pairs[which].w + (w + i * a.pairs[which].ldw),
                                inside && i < w_left);
        x += STAGE_K;
        w += STAGE_K;
        k_left -= STAGE_K;
    }
};

/* ---- multiplying ---- */

/* What a lane holds of 32 of K of its warp's rows and columns. */
template <class S> struct mma_operands {
    uint32_t x[S::WM / FRAGMENT][4];
    uint32_t w[S::WN / FRAGMENT][4]; /* columns 0-7: K 0-15 and 16-31; columns 8-15: the same */

    /* x_at, w_at: the lane's chunk of the first step. */
    __device__ void load(uint32_t x_at, uint32_t w_at, int step) {
        uint32_t right = (uint32_t)(step * STEP_K); /* two chunks: a bit of the place */
#pragma unroll
        for (int i = 0; i < S::WM / FRAGMENT; i++)
            dfx_cuda_load_matrices(x[i], (x_at ^ right) + i * FRAGMENT * STAGE_K);
#pragma unroll
        for (int i = 0; i < S::WN / FRAGMENT; i++)
            dfx_cuda_load_matrices(w[i], (w_at ^ right) + i * FRAGMENT * STAGE_K);
    }
};

/* What a lane holds of its warp's sums. */
template <class S> struct mma_sums {
    typename S::Sum of[S::WM / FRAGMENT][S::WN / 8][4];

    __device__ void clear() { add_to(nullptr); }

    /* The bits of values in f32 instead of sums of codes. */
    __device__ void scale(const mma_args &a, int first_row, int first_col) {
        int lane = (int)threadIdx.x % DFX_WARP;
        first_row += lane / 4;
        first_col += lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < S::WN / 8; j++) {
            float ws[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int col = first_col + j * 8 + i;
                ws[i] = col < a.n ? dfx_cuda_weight(a.ws, 0, col) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < S::WM / 8; i++) {
                int row = first_row + i * 8;
                float xs = row < a.m ? a.xs[row] : 0.0f;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    typename S::Sum &sum = of[i / 2][j][i % 2 * 2 + l];
                    float value = __fmul_rn(__fmul_rn((float)sum, xs), ws[l]);
                    memcpy(&sum, &value, sizeof(value));
                }
            }
        }
    }

    /* Products of BF16 onto such values. */
    __device__ void add_low(const mma_operands<S> &o) {
#pragma unroll
        for (int i = 0; i < S::WM / FRAGMENT; i++)
#pragma unroll
            for (int j = 0; j < S::WN / 8; j++) {
                float values[4];
                memcpy(values, of[i][j], sizeof(values));
                dfx_cuda_multiply_add(values, o.x[i], o.w[j / 2][j % 2 * 2],
                                      o.w[j / 2][j % 2 * 2 + 1]);
                memcpy(of[i][j], values, sizeof(values));
            }
    }

    __device__ void add(const mma_operands<S> &o) {
#pragma unroll
        for (int i = 0; i < S::WM / FRAGMENT; i++)
#pragma unroll
            for (int j = 0; j < S::WN / 8; j++)
                multiply_add(of[i][j], o.x[i], o.w[j / 2][j % 2 * 2], o.w[j / 2][j % 2 * 2 + 1]);
    }

    /* Moves them there. */
    __device__ void add_to(mma_sums *total) {
#pragma unroll
        for (int i = 0; i < S::WM / FRAGMENT; i++)
#pragma unroll
            for (int j = 0; j < S::WN / 8; j++)
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    if (total)
                        total->of[i][j][l] += of[i][j][l];
                    of[i][j][l] = 0;
                }
    }
};

/* The ring as a thread sees it. */
template <class S> struct mma_ring {
    uint32_t x_at, w_at; /* the lane's chunks of the first stage */
    uint32_t at;         /* from there to the stage in hand */
    mma_operands<S> now, next;

    /* Multiply the stage in hand. Before, all threads have read the one before it, whose place `fetch` fills. */
    template <class Fetch, class Add> __device__ void stage(Fetch fetch, Add add) {
        constexpr uint32_t last = (S::STAGES - 1) * S::STAGE_BYTES;
        next.load(x_at + at, w_at + at, 1);
        fetch(at == 0 ? last : at - S::STAGE_BYTES);
        dfx_cuda_end_group();
        add(now);
        at = at == last ? 0 : at + S::STAGE_BYTES;
        dfx_cuda_wait_groups<S::STAGES - 2>();
        __syncthreads();
        now.load(x_at + at, w_at + at, 0);
        add(next);
    }
};

static __device__ inline int stages_of(const mma_pair &pair) {
    return (pair.k + STAGE_K - 1) / STAGE_K;
}

/* Sums become values in f32 where there are t and u (LOW). */
template <class S, bool LOW>
static __device__ inline void multiply(const mma_args &a, mma_sums<S> &sums, uint32_t shared,
                                       int &tile_row, int &tile_col) {
    int warp = (int)threadIdx.x / DFX_WARP, lane = (int)threadIdx.x % DFX_WARP;
    int row = warp % S::WARPS_M * S::WM, col = warp / S::WARPS_M * S::WN;
    int n_stages = stages_of(a.pairs[0]);
    mma_fetch<S> fetch(a, shared, tile_row, tile_col);
    auto fetch_stage = [&](int stage, uint32_t at) {
        if (LOW && stage == n_stages)
            fetch.begin(a, 1);
        fetch.next(a, at);
    };
    for (int i = 0; i < S::STAGES - 1; i++) {
        fetch_stage(i, i * S::STAGE_BYTES);
        dfx_cuda_end_group();
    }
    mma_sums<S> part, &to = S::EXACT ? sums : part;
    mma_ring<S> ring;
    ring.x_at = shared + place_of(row + lane % FRAGMENT, lane / FRAGMENT);
    ring.w_at = shared + S::X_BYTES + place_of(col + lane / FRAGMENT * 8 + lane % 8, lane / 8 % 2);
    ring.at = 0;
    sums.clear();
    part.clear();
    dfx_cuda_wait_groups<S::STAGES - 2>();
    __syncthreads();
    ring.now.load(ring.x_at, ring.w_at, 0);
#pragma unroll 1 /* registers */
    for (int k = 0; k < n_stages; k++) {
        ring.stage([&](uint32_t at) { fetch_stage(k + S::STAGES - 1, at); },
                   [&](const mma_operands<S> &o) { to.add(o); });
        if (!S::EXACT && (k % 2 == 1 || k + 1 == n_stages))
            part.add_to(&sums);
    }
    if (LOW) {
        sums.scale(a, fetch.first_row(a) + row, fetch.first_col(a) + col);
#pragma unroll 1
        for (int k = 0; k < stages_of(a.pairs[1]); k++)
            ring.stage([&](uint32_t at) { fetch.next(a, at); },
                       [&](const mma_operands<S> &o) { sums.add_low(o); });
    }
    tile_row = fetch.first_row(a);
    tile_col = fetch.first_col(a);
    dfx_cuda_wait_groups<
        0>(); /* zeros of stages that there are not shall not come into the strips */
    __syncthreads();
}

/* ---- ending ---- */

/* Word of a sum in a strip, such that neither writing pairs nor reading halves of eight meets a bank twice. */
template <class S> static __device__ inline int word_of(int row, int col) {
    return row * S::STRIP_LD + (col ^ ((col / 32 + row) % 2 * 4));
}

/* Rows of a strip: 16 of the tile's, the warp's columns. */
template <class S>
static __device__ inline void write_strip(typename S::Sum *strip,
                                          const typename S::Sum (&sums)[S::WN / 8][4]) {
    int lane = (int)threadIdx.x % DFX_WARP;
#pragma unroll
    for (int j = 0; j < S::WN / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int2 pair;
            memcpy(&pair, &sums[j][half * 2], sizeof(pair));
            int at = word_of<S>(lane / 4 + half * 8, j * 8 + lane % 4 * 2);
            *(int2 *)&strip[at] = pair;
        }
}

/* LOW: they are bits of values. */
template <class S, bool LOW>
static __device__ inline void read_strip(float v[DFX_CHUNK], const typename S::Sum *strip, int row,
                                         int col) {
    typename S::Sum sums[DFX_CHUNK];
    int4 words[2] = {*(const int4 *)&strip[word_of<S>(row, col)],
                     *(const int4 *)&strip[word_of<S>(row, col + 4)]};
    memcpy(sums, words, sizeof(sums));
    if (LOW)
        memcpy(v, words, sizeof(sums));
    else
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] = (float)sums[i];
}

/* What a thread wants of its rows of a strip. */
template <class S> struct mma_rows {
    static constexpr int LANES = DFX_WARP / (S::WN / DFX_CHUNK);
    static constexpr int TURNS = FRAGMENT / LANES; /* rows of a thread, LANES apart */
    static constexpr bool CODES = !S::EXACT; /* y may be */
    uint4 r[TURNS];
    float xs[TURNS], ys[TURNS];

    __device__ void load(const mma_args &a, int turn, int row, int col) {
        xs[turn] = a.xs[row];
        if (CODES && a.ys)
            ys[turn] = a.ys[row];
        if (a.r)
            r[turn] = dfx_cuda_fetch8(a.r + row * a.ldr + col, DFX_CHUNK, true);
    }
};

/* ws, b and gate of a thread's columns. */
struct mma_columns {
    float ws[DFX_CHUNK], b[DFX_CHUNK], gate[DFX_CHUNK];

    __device__ void load(const mma_args &a, int col) {
        dfx_cuda_load8(ws, a.ws, 0, col, DFX_CHUNK);
        dfx_cuda_load8(b, a.b, 0, col, DFX_CHUNK);
        if (a.gate.ptr)
            dfx_cuda_load8(gate, a.gate, 0, col, DFX_CHUNK);
    }

    template <bool LOW>
    __device__ void end(const mma_args &a, float v[DFX_CHUNK], float xs, uint4 r) const {
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] = __fadd_rn(LOW ? v[i] : __fmul_rn(__fmul_rn(v[i], xs), ws[i]), b[i]);
        dfx_cuda_act8(a.act, v);
        if (a.gate.ptr)
#pragma unroll
            for (int i = 0; i < DFX_CHUNK; i++)
                v[i] = __fmul_rn(v[i], gate[i]);
        if (!a.r)
            return;
        float old[DFX_CHUNK];
        dfx_cuda_unpack8(old, r);
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] = __fadd_rn(old[i], v[i]);
    }
};

/* What a row of a strip wants of memory is asked for when the same one of the strip before is done with its. */
template <class S, bool LOW>
static __device__ inline void end_tile(const mma_args &a, const mma_sums<S> &sums, char *shared,
                                       int tile_row, int tile_col) {
    constexpr int CHUNKS = S::WN / DFX_CHUNK, LANES = mma_rows<S>::LANES;
    int warp = (int)threadIdx.x / DFX_WARP, lane = (int)threadIdx.x % DFX_WARP;
    typename S::Sum *strip = (typename S::Sum *)shared + warp * FRAGMENT * S::STRIP_LD;
    int strip_row = lane / CHUNKS, strip_col = lane % CHUNKS * DFX_CHUNK;
    int first = tile_row + warp % S::WARPS_M * S::WM + strip_row;
    int col = tile_col + warp / S::WARPS_M * S::WN + strip_col;
    int m = col < a.n ? a.m : 0;
    mma_columns columns;
    mma_rows<S> rows;
#pragma unroll
    for (int turn = 0; turn < mma_rows<S>::TURNS; turn++)
        if (first + turn * LANES < m)
            rows.load(a, turn, first + turn * LANES, col);
    if (m)
        columns.load(a, col);
#pragma unroll
    for (int i = 0; i < S::WM / FRAGMENT; i++) {
        __syncwarp();
        write_strip<S>(strip, sums.of[i]);
        __syncwarp();
#pragma unroll
        for (int turn = 0; turn < mma_rows<S>::TURNS; turn++) {
            int row = first + i * FRAGMENT + turn * LANES;
            if (row >= m)
                continue;
            float v[DFX_CHUNK];
            read_strip<S, LOW>(v, strip, strip_row + turn * LANES, strip_col);
            columns.end<LOW>(a, v, rows.xs[turn], rows.r[turn]);
            float ys = rows.ys[turn];
            if (i + 1 < S::WM / FRAGMENT && row + FRAGMENT < m)
                rows.load(a, turn, row + FRAGMENT, col);
            if (mma_rows<S>::CODES && a.ys)
                dfx_cuda_store_codes<true>((uint8_t *)a.y + row * a.ldy + col, DFX_CHUNK, v,
                                           dfx_cuda_codes_by(ys));
            else
                *(uint4 *)((__nv_bfloat16 *)a.y + row * a.ldy + col) = dfx_cuda_pack8(v);
        }
    }
}

/* ---- the kernel ---- */

/* Tiles by columns within bands of rows, so that what blocks fetch at the same time is the same. */
template <class S, bool LOW>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    mma_product(const __grid_constant__ mma_args a) {
#if __CUDA_ARCH__ >= 890
    constexpr bool can = true;
#else
    constexpr bool can = S::EXACT;
#endif
    if constexpr (can) {
        extern __shared__ __align__(128) char shared[];
        int in_band = a.band * a.cols, first = (int)blockIdx.x / in_band * a.band;
        int local = (int)blockIdx.x % in_band, rows = min(a.band, a.rows - first);
        int tile_row = (first + local % rows) * S::M, tile_col = local / rows * S::N;
        mma_sums<S> sums;
        multiply<S, LOW>(a, sums, dfx_cuda_shared_address(shared), tile_row, tile_col);
        end_tile<S, LOW>(a, sums, shared, tile_row, tile_col);
    }
}

#endif
