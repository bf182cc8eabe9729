/* The autoencoder: its goldens on the CPU, activations at full size, rounding to 8 bits. */
#include "models/vae.h"

#include "models/architecture.h"
#include "models/image.h"
#include "tests/golden_vae.h"
#include "tests/tiny.h"

enum { FACTOR = 8 };

static void vae_decode_equals_diffusers(void **state) {
    golden_vae_decode(*state, 32);
    golden_vae_decode(*state, 8);
}

static void vae_encode_equals_diffusers(void **state) {
    golden_vae_encode(*state, 32);
    golden_vae_encode(*state, 8);
}

/* The widest pair is at full size: what the last upsampling made, 256 channels, and the first convolution's 128 beside it. The
 * rest is coefficients of a norm. At 1024 x 1024 that is 0.81 GB, at 2048 x 2048 3.22 GB. */
static void vae_decoder_of_flux_holds_two_maps(void **state) {
    model_rig *r = *state;
    static const int64_t sides[][2] = {{1024, 1024}, {2048, 2048}, {1024, 1536}, {256, 256}};
    const dfx_vae_config *c = &dfx_architecture_find("flux-dev")->configs.vae;
    dfx_build_env env = {.act_dtype = DFX_DTYPE_BF16, .sink = &r->sink};
    for (size_t i = 0; i < DFX_COUNT(sides); i++) {
        int64_t h = sides[i][0], w = sides[i][1];
        dfx_program program;
        assert_int_equal(dfx_vae_build_decoder(c, &env, h / FACTOR, w / FACTOR, &program), DFX_OK);
        size_t maps = (size_t)(h * w) * (256 + 128) * 2;
        assert_in_range(program.act_bytes, maps, maps + 16384);
        dfx_program_fini(&program);
    }
}

/* Half to even, clamped: 127.5 is 128, 126.5 is 126. */
static void image_pixels_round_as_diffusers_does(void **state) {
    model_rig *r = *state;
    static const float values[] = {-1, 1, 0, -2, 2, 2 * 126.5f / 255 - 1};
    static const uint8_t want[] = {0, 255, 128, 0, 255, 126};
    dfx_image image = {.width = 2, .height = 1};
    assert_int_equal(dfx_image_pixels(&image, values, &r->sink), DFX_OK);
    assert_memory_equal(image.rgb, want, sizeof(want));
    dfx_image_free(&image);
}

static void vae_factor_is_two_for_each_level_above_the_first(void **state) {
    (void)state;
    assert_int_equal(dfx_vae_factor(&(dfx_vae_config){.n_levels = 4}), 8);
    assert_int_equal(dfx_vae_factor(&(dfx_vae_config){.n_levels = 1}), 1);
}

static int write_models(void **state) {
    if (tmpdir_setup(state) != 0)
        return -1;
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    tmpdir_mkdir(dir, "g32");
    tmpdir_mkdir(dir, "g8");
    bool ok = tiny_write_vae(tmpdir_join(dir, "g32", path), 32) == DFX_OK;
    ok = tiny_write_vae(tmpdir_join(dir, "g8", path), 8) == DFX_OK && ok;
    return ok ? 0 : -1;
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(vae_decode_equals_diffusers),
        WITH_MRIG(vae_encode_equals_diffusers),
        WITH_MRIG(vae_decoder_of_flux_holds_two_maps),
        WITH_MRIG(image_pixels_round_as_diffusers_does),
        cmocka_unit_test(vae_factor_is_two_for_each_level_above_the_first),
    };
    return cmocka_run_group_tests(tests, write_models, tmpdir_teardown);
}
