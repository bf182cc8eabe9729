/* See golden_vae.h. Goldens are [C, h, w], ours [h*w, C]. */
#include "tests/golden_vae.h"

#include <stdio.h>

#include "models/image.h"
#include "models/vae.h"

enum { Z = 16, RGB = 3, FACTOR = 8 };
static const double TOLERANCE = 1e-4;

typedef struct vae_case {
    const char *name;
    int64_t h, w, batch;
    bool encode,
        taps; /* the golden file has an encoder's case; the values between, with 32 groups */
} vae_case;

static const vae_case CASES[] = {
    {"sq", 8, 8, 1, true, false},
    {"ns", 4, 6, 1, true, true},
    {"b2", 6, 4, 2, false, false},
};

typedef struct vae_model {
    dfx_vae_config config;
    dfx_build_env env;
    int groups;
} vae_model;

static vae_model open_model(model_rig *r, int groups) {
    vae_model m = {.groups = groups};
    char folder[32];
    dfx_bundle bundle = folder_bundle(r->dir->path);
    snprintf(folder, sizeof(folder), "g%d/vae", groups);
    assert_int_equal(dfx_vae_config_load(&bundle, folder, &r->sink, &m.config), DFX_OK);
    assert_int_equal(m.config.n_groups, groups);
    m.env = mrig_env(r, mrig_open(r, folder, "diffusion_pytorch_model"));
    return m;
}

/* A named op's output with the golden ns.mid.<golden>, of C channels on h x w. */
typedef struct tap {
    const char *label, *golden;
    int64_t channels, h, w;
} tap;

static void check_taps(model_rig *r, const tap *taps, size_t n_taps) {
    for (size_t i = 0; i < n_taps; i++) {
        const tap *t = &taps[i];
        int64_t n = t->channels * t->h * t->w;
        const float *want = mrig_channels_last(r, mrig_golden(r, "vae", n, "ns.mid.%s", t->golden),
                                               t->channels, t->h * t->w);
        mrig_same_output(r, t->label, want, t->h * t->w, t->channels, TOLERANCE);
    }
}

static void check_decoder_taps(model_rig *r) {
    static const tap taps[] = {
        {"decoder.conv_in", "dec.conv_in", 64, 4, 6},
        {"decoder.mid_block.resnets.0.conv2", "dec.mid.res0", 64, 4, 6},
        {"decoder.mid_block.attentions.0.to_out.0", "dec.mid.attn", 64, 4, 6},
        {"decoder.mid_block.resnets.1.conv2", "dec.mid", 64, 4, 6},
        {"decoder.up_blocks.0.resnets.0.conv2", "dec.up0.res0", 64, 4, 6},
        {"decoder.up_blocks.0.upsamplers.0.conv", "dec.up0.upsample", 64, 8, 12},
        {"decoder.up_blocks.0.upsamplers.0.conv", "dec.up0", 64, 8, 12},
        {"decoder.up_blocks.1.upsamplers.0.conv", "dec.up1", 64, 16, 24},
        {"decoder.up_blocks.2.upsamplers.0.conv", "dec.up2", 64, 32, 48},
        {"decoder.up_blocks.3.resnets.1.conv2", "dec.up3", 32, 32, 48},
    };
    check_taps(r, taps, DFX_COUNT(taps));
}

static void check_encoder_taps(model_rig *r) {
    static const tap taps[] = {
        {"encoder.conv_in", "enc.conv_in", 32, 32, 48},
        {"encoder.down_blocks.0.downsamplers.0.conv", "enc.down0.downsample", 32, 16, 24},
        {"encoder.down_blocks.0.downsamplers.0.conv", "enc.down0", 32, 16, 24},
        {"encoder.down_blocks.1.downsamplers.0.conv", "enc.down1", 64, 8, 12},
        {"encoder.down_blocks.2.downsamplers.0.conv", "enc.down2", 64, 4, 6},
        {"encoder.down_blocks.3.resnets.0.conv2", "enc.down3", 64, 4, 6},
        {"encoder.mid_block.resnets.1.conv2", "enc.mid", 64, 4, 6},
    };
    check_taps(r, taps, DFX_COUNT(taps));
}

static void check_pixels(model_rig *r, const vae_model *m, const vae_case *c, int64_t row,
                         const float *rgb) {
    int64_t n = RGB * c->h * FACTOR * c->w * FACTOR;
    const float *want = mrig_golden(r, "vae", c->batch * n, "%s.g%d.decode_u8", c->name, m->groups);
    dfx_image image = {.width = (int)c->w * FACTOR, .height = (int)c->h * FACTOR};
    assert_int_equal(dfx_image_pixels(&image, rgb, &r->sink), DFX_OK);
    mrig_same_pixels(image.rgb, want + row * n, (size_t)n);
    dfx_image_free(&image);
}

static void check_decode(model_rig *r, const vae_model *m, const vae_case *c) {
    int64_t n = RGB * c->h * FACTOR * c->w * FACTOR, n_z = Z * c->h * c->w;
    dfx_program program;
    float *rgb = mrig_floats(r, n);
    const float *z = mrig_golden(r, "vae", c->batch * n_z, "%s.in.z", c->name);
    const float *want = mrig_golden(r, "vae", c->batch * n, "%s.g%d.decode", c->name, m->groups);
    assert_int_equal(dfx_vae_build_decoder(&m->config, &m->env, c->h, c->w, &program), DFX_OK);
    for (int64_t row = 0; row < c->batch; row++) {
        float *x = mrig_pack(r, z + row * n_z, Z, c->h, c->w, m->config.shift, m->config.scaling);
        mrig_run(r, &program, (void *[]){x, rgb});
        if (c->taps && m->groups == 32)
            check_decoder_taps(r);
        mrig_same(r, c->name, rgb, mrig_channels_last(r, want + row * n, RGB, n / RGB), n,
                  TOLERANCE);
        if (mrig_is_f32(r))
            check_pixels(r, m, c, row, rgb);
    }
    dfx_program_fini(&program);
}

void golden_vae_decode(model_rig *r, int n_groups) {
    vae_model m = open_model(r, n_groups);
    for (size_t i = 0; i < DFX_COUNT(CASES); i++)
        check_decode(r, &m, &CASES[i]);
}

static const float *encode_golden(model_rig *r, const vae_model *m, const vae_case *c,
                                  const char *what) {
    return mrig_golden(r, "vae", Z * c->h * c->w, "%s.g%d.%s", c->name, m->groups, what);
}

/* Columns [col, col + Z) of the moments. */
static const float *moments_part(model_rig *r, const float *moments, int64_t n_pixels,
                                 int64_t col) {
    float *out = mrig_floats(r, n_pixels * Z);
    for (int64_t i = 0; i < n_pixels * Z; i++)
        out[i] = moments[i / Z * 2 * Z + col + i % Z];
    return out;
}

static void check_encode(model_rig *r, const vae_model *m, const vae_case *c) {
    int64_t n_pixels = c->h * FACTOR * c->w * FACTOR, n_z = c->h * c->w;
    dfx_program program;
    float *moments = mrig_floats(r, n_z * 2 * Z), *x = mrig_floats(r, n_z * Z);
    const float *rgb = mrig_channels_last(
        r, mrig_golden(r, "vae", RGB * n_pixels, "%s.in.x", c->name), RGB, n_pixels);
    assert_int_equal(dfx_vae_build_encoder(&m->config, &m->env, c->h, c->w, &program), DFX_OK);
    mrig_run(r, &program, (void *[]){(void *)rgb, moments, x});
    dfx_program_fini(&program);
    if (c->taps && m->groups == 32)
        check_encoder_taps(r);
    mrig_same(r, "mean", moments_part(r, moments, n_z, 0),
              mrig_channels_last(r, encode_golden(r, m, c, "encode_mean"), Z, n_z), n_z * Z,
              TOLERANCE);
    mrig_same(r, "logvar", moments_part(r, moments, n_z, Z),
              mrig_channels_last(r, encode_golden(r, m, c, "encode_logvar"), Z, n_z), n_z * Z,
              TOLERANCE);
    const float *latents = encode_golden(r, m, c, "latent_mode_scaled");
    mrig_same(r, "x", x, mrig_pack(r, latents, Z, c->h, c->w, 0, 1), n_z * Z, TOLERANCE);
}

void golden_vae_encode(model_rig *r, int n_groups) {
    vae_model m = open_model(r, n_groups);
    for (size_t i = 0; i < DFX_COUNT(CASES); i++)
        if (CASES[i].encode)
            check_encode(r, &m, &CASES[i]);
}
