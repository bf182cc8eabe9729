/* What cuda_fused.cuh compiles for one kind of tile: where all lies in shared memory, which barriers there are, which tile is
 * whose. Halves of tiles end the work where whole ones would leave most multiprocessors without one. */
#ifndef DFX_KERNELS_CUDA_FUSED_SHAPE_CUH
#define DFX_KERNELS_CUDA_FUSED_SHAPE_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_wgmma.cuh"

enum {
    FUSED_GROUP = 128,    /* threads that multiply together */
    FUSED_ROWS = 64,      /* of one product */
    FUSED_K = 128,        /* of a stage: bytes of a row */
    FUSED_LOW_K = 64,     /* the same in values of t and u */
    FUSED_STRIP = 32,     /* columns that a warp ends at a time */
    FUSED_BOX = 1024,     /* bytes of 16 rows of them, as BF16 */
    FUSED_SHARED = 232448 /* bytes that a block can have */
};

/* What x and w are. */
enum fused_in { FUSED_I8, FUSED_F8, FUSED_BF16 };

/* What becomes of the sums with scales and b: gate and r on top, or GELU, or its codes. */
enum fused_then { FUSED_VALUES, FUSED_GELU, FUSED_GELU_CODES };

template <fused_in IN> struct fused_sum { typedef float type; };
template <> struct fused_sum<FUSED_I8> { typedef int32_t type; };

/* What one compiled kernel does. GROUPS multiply, each BLOCKS times 64 rows of N columns. TAKE_TURNS: each of two has a tile of
 * its own, and one multiplies while the other ends its tile; else they share a tile. */
template <fused_in IN_, int GROUPS_, int BLOCKS_, int N_, int STAGES_, int CLUSTER_,
          bool TAKE_TURNS_>
struct fused_shape {
    typedef typename fused_sum<IN_>::type Sum;
    static constexpr fused_in IN = IN_;
    static constexpr bool TAKE_TURNS = TAKE_TURNS_;
    static constexpr int K = IN == FUSED_BF16 ? FUSED_LOW_K : FUSED_K; /* values in a stage */
    static constexpr int GROUPS = GROUPS_, BLOCKS = BLOCKS_, N = N_, TILE_N = N_;
    static constexpr int STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr int M = FUSED_ROWS * BLOCKS * (TAKE_TURNS ? 1 : GROUPS);
    static constexpr int THREADS = (GROUPS + 1) * FUSED_GROUP, WARPS = GROUPS * 4;
    static constexpr int X_BYTES = M * FUSED_K, STAGE_BYTES = (M + N) * FUSED_K;
    static constexpr int STRIPS = N / FUSED_STRIP * BLOCKS;
    static constexpr bool HALVES = N % (2 * FUSED_STRIP) == 0;   /* fused_half */
    static constexpr int W_BOX = N / CLUSTER / (HALVES ? 2 : 1); /* columns fetched at once */
    /* Shared memory, from the start. */
    static constexpr int BOXES_AT = STAGES * STAGE_BYTES;
    static constexpr int GATES_AT = N * 2 * (int)sizeof(float), COLUMNS_BYTES = GATES_AT / 2 * 3;
    static constexpr int BARRIERS_BYTES = 640;
    static constexpr int FOR_BOXES = FUSED_SHARED - BOXES_AT - 2 * COLUMNS_BYTES - BARRIERS_BYTES;
    static constexpr int MOST_BOXES = FOR_BOXES / (WARPS * FUSED_BOX);
    static constexpr int BOXES = MOST_BOXES < 7 ? MOST_BOXES : 7; /* a warp */
    static constexpr int COLUMNS_AT = BOXES_AT + WARPS * BOXES * FUSED_BOX;
    static constexpr int BARRIERS_AT = COLUMNS_AT + 2 * COLUMNS_BYTES;
    static constexpr int SHARED_BYTES = BARRIERS_AT + BARRIERS_BYTES;
    /* Registers of a thread; together no more than there are at the start. */
    static constexpr int FEWER = GROUPS == 2 ? 24 : 32, MORE = GROUPS == 2 ? 240 : 160;
    static_assert(!TAKE_TURNS || GROUPS == 2, "turns");
    static_assert(BOXES >= 2, "r wants a second box while the first is in use");
    static_assert((2 * STAGES + 4 + WARPS * BOXES) * 8 <= BARRIERS_BYTES, "barriers");
    static_assert(N % FUSED_STRIP == 0 && W_BOX % 8 == 0, "strips, swizzle");
};

/* The left or the right half of a tile, in the same shared memory; TILE_N stays. */
template <class S> struct fused_half : S {
    static constexpr int N = S::N / 2, STRIPS = S::STRIPS / 2;
};

typedef struct fused_args {
    CUtensorMap x, w, t, u, r, y;
    const float *xs, *ws, *ys; /* of codes */
    dfx_cuda_weights b, gate; /* gate: 1 where there is none */
    int m, n;
    int n_stages, n_low,
        rank; /* a tile has so many stages; n_low of them, the last, are of t and u [.., rank] */
    int rows, cols, band; /* in tiles, rows in those of a cluster; `band` rows are done together */
    int n_whole, n_parts; /* of them, those done as they are; these and the halves of the others */
    bool has_r;
} fused_args;

typedef struct fused_tile {
    int row, col;
    bool half;
} fused_tile;

/* By columns within bands of rows, so that what blocks fetch at the same time is the same. */
template <class S> static __device__ inline fused_tile fused_tile_of(const fused_args &a, int i) {
    bool half = S::HALVES && i >= a.n_whole;
    int right = half ? (i - a.n_whole) % 2 : 0;
    if (half)
        i = a.n_whole + (i - a.n_whole) / 2;
    int in_band = a.band * a.cols, first = i / in_band * a.band, local = i % in_band;
    int rows = min(a.band, a.rows - first);
    int rank = S::CLUSTER > 1 ? (int)dfx_sm90_cluster_rank() : 0;
    return {((first + local % rows) * S::CLUSTER + rank) * S::M,
            local / rows * S::TILE_N + right * S::TILE_N / 2, half};
}

template <class S> struct fused_barriers {
    uint32_t at;
    __device__ uint32_t full(int stage) const { return at + 8 * stage; }
    __device__ uint32_t empty(int stage) const { return at + 8 * (S::STAGES + stage); }
    __device__ uint32_t columns_full(int i) const { return at + 8 * (2 * S::STAGES + i); }
    __device__ uint32_t columns_empty(int i) const { return at + 8 * (2 * S::STAGES + 2 + i); }
    __device__ uint32_t box(int warp, int i) const {
        return at + 8 * (2 * S::STAGES + 4 + warp * S::BOXES + i);
    }
};

/* A place in the ring. */
template <int STAGES> struct fused_place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void move(int n) {
        stage += n;
        parity ^= (stage / STAGES) & 1;
        stage %= STAGES;
    }
    __device__ void next(void) {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

#endif
