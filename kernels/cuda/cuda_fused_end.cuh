/* How cuda_fused.cuh ends a tile: from sums in registers to y, scales, bias, activation, gate and r between.
 *
 * A multiplying warp ends its rows by strips of 32 columns through its own boxes of shared memory: r comes in by TMA, y goes
 * out by TMA, nobody else is waited for. */
#ifndef DFX_KERNELS_CUDA_FUSED_END_CUH
#define DFX_KERNELS_CUDA_FUSED_END_CUH

#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_fused_shape.cuh"

/* A warp's rows of a tile: 16 of every block. */
template <class S> struct fused_end {
    const fused_args &a;
    fused_barriers<S> barriers;
    uint32_t boxes;     /* its own */
    int warp, row, col; /* row: its first one */
    float inverse[S::BLOCKS][2]; /* of the scales of codes */

    __device__ void fetch_r(int strip) const {
        int box = strip % S::BOXES, block = strip / (S::N / FUSED_STRIP);
        uint32_t barrier = barriers.box(warp, box);
        dfx_sm90_arrive_expect(barrier, FUSED_BOX);
        dfx_sm90_load(boxes + box * FUSED_BOX, &a.r, barrier,
                      col + strip % (S::N / FUSED_STRIP) * FUSED_STRIP, row + block * FUSED_ROWS);
    }

    __device__ void store_y(int strip) const {
        int block = strip / (S::N / FUSED_STRIP);
        int to_row = row + block * FUSED_ROWS,
            to_col = col + strip % (S::N / FUSED_STRIP) * FUSED_STRIP;
        if (to_row < a.m && to_col < a.n)
            dfx_sm90_store(&a.y, boxes + strip % S::BOXES * FUSED_BOX, to_col, to_row);
        dfx_sm90_store_commit();
    }
};

static __device__ inline float2 fused_widen(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

static __device__ inline float fused_scaled(float sum, float xs, float ws) {
    return __fmul_rn(__fmul_rn(sum, xs), ws);
}

/* Of a tile's columns: ws and b of a pair of columns that is a thread's. */
static __device__ inline float4 fused_ends(const char *columns, int col) {
    return ((const float4 *)columns)[col / 2 + (int)threadIdx.x % 4];
}

/* Sums of codes become the values in f32 that they stand for: their bits, in the same registers. */
template <class S>
static __device__ inline void scale_sums(typename S::Sum (&sums)[S::BLOCKS][S::N / 2],
                                         const float (&xs)[S::BLOCKS][2], const char *columns) {
#pragma unroll
    for (int chunk = 0; chunk < S::N / 8; chunk++) {
        float4 end = fused_ends(columns, chunk * 8);
#pragma unroll
        for (int i = 0; i < S::BLOCKS * 4; i++) {
            int block = i / 4, at = chunk * 4 + i % 4;
            float value =
                fused_scaled((float)sums[block][at], xs[block][i % 4 / 2], i % 2 ? end.z : end.x);
            memcpy(&sums[block][at], &value, sizeof(value));
        }
    }
}

/* A thread's codes of a strip, pairs of neighbours, to the box: 32 bytes a row, its halves swapped in rows 4 to 7 of 8 as TMA's
 * swizzle of 32 bytes has it. Of two chunks' pairs a thread takes the left chunk's or the right one's and its neighbour's to
 * them, so that it writes whole words, and a warp each bank once. pairs: by half of the rows, two chunks to a word. */
static __device__ inline void fused_store_codes(uint32_t box,
                                                const uint32_t (&pairs)[2][FUSED_STRIP / 16]) {
    int lane = threadIdx.x % DFX_WARP, odd = lane % 2;
    uint32_t order = odd ? 0x3276 : 0x5410;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < FUSED_STRIP / 16; i++) {
            uint32_t mine = pairs[half][i], other = __shfl_xor_sync(0xffffffffu, mine, 1);
            dfx_sm90_store_word(box + (lane / 4 + half * 8) * FUSED_STRIP + (i ^ (lane / 16)) * 16 +
                                    odd * 8 + lane % 4 / 2 * 4,
                                __byte_perm(mine, other, order));
        }
}

/* SCALED: sums are values, as scale_sums leaves them. Adding -0 changes no value, so it stands for r where there is none; nor does 1 as a
 * gate. */
template <class S, fused_then THEN, bool SCALED, typename Sum>
static __device__ inline void end_strip(const fused_end<S> &e, const Sum *sums, const float *xs,
                                        const char *columns, int strip, uint32_t &box_parities) {
    constexpr bool GELU = THEN != FUSED_VALUES, CODES = THEN == FUSED_GELU_CODES;
    const uint32_t minus_zeros = 0x80008000u;
    int lane = threadIdx.x % DFX_WARP, box = strip % S::BOXES;
    int local = lane % 8 + (lane / 8 % 2) * 8;
    uint32_t at =
        e.boxes + box * FUSED_BOX + local * 2 * FUSED_STRIP + ((lane / 16) ^ (local / 2 % 4)) * 16;
    uint32_t words[FUSED_STRIP / 16][4], pairs[2][FUSED_STRIP / 16] = {};
#pragma unroll
    for (int i = 0; i < FUSED_STRIP / 16 * 4; i++)
        words[i / 4][i % 4] = minus_zeros;
    if (!GELU && e.a.has_r) {
        dfx_sm90_wait_loop(e.barriers.box(e.warp, box), box_parities >> box & 1);
        box_parities ^= 1u << box;
#pragma unroll
        for (int i = 0; i < FUSED_STRIP / 16; i++)
            dfx_sm90_load_fragments(words[i], at ^ i * 32);
    }
    const float2 *gates = (const float2 *)(columns + S::GATES_AT);
#pragma unroll
    for (int chunk = 0; chunk < FUSED_STRIP / 8; chunk++) {
        int col = strip % (S::N / FUSED_STRIP) * FUSED_STRIP + chunk * 8;
        float4 end = fused_ends(columns, col);
        float2 gate = GELU ? make_float2(1.0f, 1.0f) : gates[col / 2 + lane % 4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Sum *pair_sums = sums + chunk * 4 + half * 2;
            float v0 = (float)pair_sums[0], v1 = (float)pair_sums[1];
            if (SCALED) {
                memcpy(&v0, &pair_sums[0], sizeof(v0));
                memcpy(&v1, &pair_sums[1], sizeof(v1));
            } else {
                v0 = fused_scaled(v0, xs[half], end.x);
                v1 = fused_scaled(v1, xs[half], end.z);
            }
            v0 = __fadd_rn(v0, end.y);
            v1 = __fadd_rn(v1, end.w);
            if (GELU)
                dfx_cuda_gelu_tanh2(v0, v1);
            if constexpr (CODES) {
                float v[] = {v0, v1};
                pairs[half][chunk / 2] |=
                    dfx_cuda_codes2_fp8(v, e.inverse[strip / (S::N / FUSED_STRIP)][half])
                    << chunk % 2 * 16;
                continue;
            }
            uint32_t &word = words[chunk / 2][chunk % 2 * 2 + half];
            if (!GELU) {
                float2 r = fused_widen(word);
                v0 = __fadd_rn(r.x, __fmul_rn(v0, gate.x));
                v1 = __fadd_rn(r.y, __fmul_rn(v1, gate.y));
            }
            __nv_bfloat162 rounded = __floats2bfloat162_rn(v0, v1);
            memcpy(&word, &rounded, sizeof(word));
        }
    }
    if (GELU || !e.a.has_r) { /* an earlier strip may still be leaving the box */
        if (lane == 0)
            dfx_sm90_store_wait<S::BOXES - 1>();
        __syncwarp();
    }
    if constexpr (CODES)
        fused_store_codes(e.boxes + box * FUSED_BOX, pairs);
    else
#pragma unroll
        for (int i = 0; i < FUSED_STRIP / 16; i++)
            dfx_sm90_store_fragments(at ^ i * 32, words[i]);
    dfx_sm90_publish();
    __syncwarp();
    if (lane == 0) {
        e.store_y(strip);
        int next = strip - 1 + S::BOXES; /* goes where the strip before this one is leaving */
        if (!GELU && e.a.has_r && strip > 0 && next < S::STRIPS) {
            dfx_sm90_store_wait<1>();
            e.fetch_r(next);
        }
    }
}

/* All strips of a warp's rows. */
template <class S, fused_then THEN, bool SCALED, typename Sum>
static __device__ inline void end_rows(const fused_end<S> &e,
                                       const Sum (&sums)[S::BLOCKS][S::N / 2],
                                       const float (&xs)[S::BLOCKS][2], const char *columns,
                                       uint32_t &box_parities) {
#pragma unroll
    for (int strip = 0; strip < S::STRIPS; strip++) {
        constexpr int a_block = S::N / FUSED_STRIP;
        end_strip<S, THEN, SCALED>(e, &sums[strip / a_block][strip % a_block * (FUSED_STRIP / 2)],
                                   xs[strip / a_block], columns, strip, box_parities);
    }
}

#endif
