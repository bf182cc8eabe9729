/* Packing of latents into tokens and back: diffusers' numbers, which are only moved, and scale and
 * shift. */
#include "tests/cpu_rig.h"

/* Picture `idx` of [B, C, h, w] as [h*w, C]. */
static dfx_mat latents(rig *r, const float *x, int idx, int64_t n_channels, int64_t n_pixels,
                       int64_t ld) {
    dfx_mat m = rig_poison(r, n_pixels, n_channels, ld);
    for (int64_t p = 0; p < n_pixels; p++)
        for (int64_t c = 0; c < n_channels; c++)
            ((float *)m.ptr)[p * ld + c] = x[(idx * n_channels + c) * n_pixels + p];
    return m;
}

static void check_pack(rig *r, const char *in, const char *out, int64_t h, int64_t w) {
    int64_t n_tokens = h * w / 4;
    const float *x = rig_golden(r, "misc", in, (size_t)(2 * 16 * h * w));
    const float *tokens = rig_golden(r, "misc", out, (size_t)(2 * n_tokens * 64));
    for (int idx = 0; idx < 2; idx++) {
        dfx_op_call pack = {.kind = DFX_OP_PACK, .p = {.h = h, .w = w, .mul = 1}};
        pack.m[1] = latents(r, x, idx, 16, h * w, 20);
        pack.m[0] = rig_poison(r, n_tokens, 64, 68);
        rig_run(r, &pack);
        rig_same(&pack.m[0], tokens + idx * n_tokens * 64, 0);

        dfx_op_call unpack = {.kind = DFX_OP_UNPACK, .p = pack.p};
        unpack.m[1] = rig_values(r, n_tokens, 64, 64, tokens + idx * n_tokens * 64);
        unpack.m[0] = rig_poison(r, h * w, 16, 24);
        rig_run(r, &unpack);
        dfx_mat want = latents(r, x, idx, 16, h * w, 16);
        rig_same(&unpack.m[0], want.ptr, 0);
    }
}

static void pack_and_unpack_equal_diffusers(void **state) {
    check_pack(*state, "pack.sq.in", "pack.sq.out", 8, 8);
    check_pack(*state, "pack.ns.in", "pack.ns.out", 6, 10);
}

/* A picture of 2 x 4 with one channel and one more that stays behind: token 0 takes columns 0
 * and 1. */
static void pack_subtracts_then_multiplies_first_channels(void **state) {
    rig *r = *state;
    static const float pixels[] = {1, 90, 2, 90, 3, 90, 4, 90, 5, 90, 6, 90, 7, 90, 8, 90};
    static const float want[] = {0, 0.5f, 2, 2.5f, 1, 1.5f, 3, 3.5f};
    dfx_op_call call = {.kind = DFX_OP_PACK, .p = {.h = 2, .w = 4, .mul = 0.5f, .add = 1}};
    call.m[1] = rig_values(r, 8, 2, 4, pixels);
    call.m[0] = rig_poison(r, 2, 4, 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

static void unpack_multiplies_then_adds(void **state) {
    rig *r = *state;
    static const float tokens[] = {0, 0.5f, 2, 2.5f, 1, 1.5f, 3, 3.5f};
    static const float want[] = {1, 2, 3, 4, 5, 6, 7, 8};
    dfx_op_call call = {.kind = DFX_OP_UNPACK, .p = {.h = 2, .w = 4, .mul = 2, .add = 1}};
    call.m[1] = rig_values(r, 2, 4, 4, tokens);
    call.m[0] = rig_poison(r, 8, 1, 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(pack_and_unpack_equal_diffusers),
        WITH_RIG(pack_subtracts_then_multiplies_first_channels),
        WITH_RIG(unpack_multiplies_then_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
