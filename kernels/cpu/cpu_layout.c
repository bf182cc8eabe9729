/* Between latents [h*w, C] and tokens [(h/2)*(w/2), 4C]: a token holds a square of 2 x 2 pixels,
 * value 4z + 2i + j being channel z of the pixel in row i, column j of the square. */
#include "kernels/cpu/cpu_internal.h"

/* Where pixel (row i, column j) of the square of token (r, c) lies. */
static float *pixel_at(const dfx_op_call *call, const dfx_mat *pixels, int64_t r, int64_t c, int i,
                       int j) {
    return dfx_cpu_f32(pixels, (2 * r + i) * call->p.w + 2 * c + j);
}

static void unpack_token_row(void *ctx, int64_t r, int worker) {
    const dfx_op_call *call = ctx;
    const dfx_mat *y = &call->m[0], *x = &call->m[1];
    for (int64_t c = 0; c < call->p.w / 2; c++) {
        const float *token = dfx_cpu_f32(x, r * (call->p.w / 2) + c);
        for (int k = 0; k < 4; k++) {
            float *pixel = pixel_at(call, y, r, c, k / 2, k % 2);
            for (int64_t z = 0; z < y->cols; z++)
                pixel[z] = token[4 * z + k] * call->p.mul + call->p.add;
        }
    }
}

dfx_status dfx_cpu_unpack(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, call->p.h / 2, unpack_token_row, (void *)call);
}

static void pack_token_row(void *ctx, int64_t r, int worker) {
    const dfx_op_call *call = ctx;
    const dfx_mat *y = &call->m[0], *x = &call->m[1];
    for (int64_t c = 0; c < call->p.w / 2; c++) {
        float *token = dfx_cpu_f32(y, r * (call->p.w / 2) + c);
        for (int k = 0; k < 4; k++) {
            const float *pixel = pixel_at(call, x, r, c, k / 2, k % 2);
            for (int64_t z = 0; z < y->cols / 4; z++)
                token[4 * z + k] = (pixel[z] - call->p.add) * call->p.mul;
        }
    }
}

dfx_status dfx_cpu_pack(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, call->p.h / 2, pack_token_row, (void *)call);
}
