#include "models/init.h"

#include <math.h>
#include <string.h>

#include "core/checksum.h"
#include "core/pixels.h"
#include "models/model.h"
#include "models/values.h"

/* Tokens times channels, of one lane. */
static size_t n_values(const dfx_model *m) {
    return (size_t)(dfx_picture_tokens(&m->parts.configs, &m->session.shape) *
                    m->parts.configs.flux.in_channels);
}

int dfx_init_first_step(double strength, int n_steps) {
    return (int)fmax(n_steps - fmin(n_steps * strength, n_steps), 0);
}

void dfx_init_fini(dfx_init *init) {
    dfx_free(init->rgb);
    dfx_free(init->z);
    dfx_free(init->repaint);
    dfx_free(init->noise);
    *init = (dfx_init){0};
}

/* `values`: borrowed from the request. */
static dfx_status fit(dfx_model *m, const dfx_request *request, const uint8_t *values,
                      int n_channels, dfx_pixels *out) {
    const dfx_shape *shape = &m->session.shape;
    dfx_pixels from = {.values = (uint8_t *)values,
                       .width = (uint32_t)request->init_width,
                       .height = (uint32_t)request->init_height,
                       .n_channels = n_channels};
    return dfx_pixels_fit(&from, (uint32_t)shape->width, (uint32_t)shape->height, &m->sink, out);
}

static dfx_status set_picture(dfx_model *m, const dfx_request *request) {
    dfx_init *init = &m->session.init;
    dfx_pixels picture;
    DFX_TRY(fit(m, request, request->init_rgb, 3, &picture));
    if (init->rgb &&
        memcmp(init->rgb, picture.values, (size_t)picture.width * picture.height * 3) == 0) {
        dfx_pixels_free(&picture);
        return DFX_OK;
    }
    dfx_free(init->rgb);
    init->rgb = picture.values;
    init->is_encoded = false;
    return DFX_OK;
}

/* Latent (y, x) is pixel (8 y, 8 x); token and channel of it as in the packing of latents: 4 z + 2 (y mod 2) + x mod 2. */
static void pack_mask(const dfx_pixels *mask, size_t factor, uint8_t *tokens, size_t n_channels) {
    enum { PAINT_FROM = 128 };
    size_t w = mask->width / factor, h = mask->height / factor;
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            uint8_t *token = tokens + (y / 2 * (w / 2) + x / 2) * n_channels;
            bool paint = mask->values[(y * mask->width + x) * factor] >= PAINT_FROM;
            for (size_t c = 2 * (y % 2) + x % 2; c < n_channels; c += 4)
                token[c] = paint;
        }
}

static dfx_status set_mask(dfx_model *m, const dfx_request *request) {
    dfx_init *init = &m->session.init;
    dfx_pixels mask;
    dfx_free(init->repaint);
    dfx_free(init->noise);
    init->repaint = NULL;
    init->noise = NULL;
    if (!request->mask)
        return DFX_OK;
    DFX_TRY(dfx_new_array(&m->sink, n_values(m), "mask", &init->repaint));
    DFX_TRY(dfx_new_array(&m->sink, n_values(m) * (size_t)m->session.shape.n_lanes, "mask",
                          &init->noise));
    DFX_TRY(fit(m, request, request->mask, 1, &mask));
    pack_mask(&mask, (size_t)dfx_vae_factor(&m->parts.configs.vae), init->repaint,
              (size_t)m->parts.configs.flux.in_channels);
    dfx_pixels_free(&mask);
    return DFX_OK;
}

/* What of it is seen, and how large. */
static void tell_fit(const dfx_model *m, const dfx_request *request) {
    const dfx_shape *shape = &m->session.shape;
    double scale = fmin((double)request->init_width / (double)shape->width,
                        (double)request->init_height / (double)shape->height);
    if (request->init_width == shape->width && request->init_height == shape->height)
        return;
    dfx_info(&m->sink, "init picture: the middle %.0fx%.0f of its %dx%d pixels, as %lldx%lld",
             scale * (double)shape->width, scale * (double)shape->height, request->init_width,
             request->init_height, (long long)shape->width, (long long)shape->height);
}

dfx_status dfx_init_begin(dfx_model *m, const dfx_request *request) {
    if (!request->init_rgb)
        return DFX_OK;
    tell_fit(m, request);
    m->session.init.checksum =
        dfx_xxh3(request->init_rgb, (size_t)request->init_width * (size_t)request->init_height * 3);
    DFX_TRY(set_picture(m, request));
    return set_mask(m, request);
}

static dfx_status upload_picture(dfx_model *m) {
    const dfx_session *ses = &m->session;
    size_t n = (size_t)(ses->shape.width * ses->shape.height) * 3;
    float *values;
    DFX_TRY(dfx_new_array(&m->sink, n, "picture", &values));
    for (size_t i = 0; i < n; i++)
        values[i] = ses->init.rgb[i] / 255.0f * 2 - 1;
    dfx_status status = dfx_values_upload(m, ses->state.rgb, values, n);
    dfx_free(values);
    return status;
}

dfx_status dfx_init_encode(dfx_model *m) {
    dfx_session *ses = &m->session;
    dfx_state *s = &ses->state;
    DFX_TRY(upload_picture(m));
    if (!ses->init.z)
        DFX_TRY(dfx_new_array(&m->sink, n_values(m), "latents", &ses->init.z));
    DFX_TRY(dfx_session_run(m, DFX_PROGRAM_ENCODE, 0, (void *[]){s->rgb, s->moments, s->init_x}));
    DFX_TRY(dfx_session_wait(m, DFX_PROGRAM_ENCODE, 0));
    DFX_TRY(dfx_values_download(m, ses->init.z, s->init_x, n_values(m)));
    if (!dfx_values_are_finite(ses->init.z, n_values(m)))
        return dfx_fail(&m->sink, DFX_E_NUMERIC, "%s: the encoder made values that are not finite",
                        m->path);
    ses->init.is_encoded = true;
    return DFX_OK;
}

/* In f32, each product and the sum rounded by itself, as the reference does it. */
static float mixed(float sigma, float noise, float z) {
    return sigma * noise + (1 - sigma) * z;
}

void dfx_init_start(dfx_model *m, int lane, float sigma, float *tokens) {
    const dfx_init *init = &m->session.init;
    size_t n = n_values(m);
    if (init->noise)
        memcpy(init->noise + (size_t)lane * n, tokens, n * sizeof(*tokens));
    for (size_t i = 0; i < n; i++)
        tokens[i] = mixed(sigma, tokens[i], init->z[i]);
}

dfx_status dfx_init_blend(dfx_model *m, int lane, float sigma, float *tokens) {
    const dfx_init *init = &m->session.init;
    size_t n = n_values(m);
    const float *noise = init->noise + (size_t)lane * n;
    for (size_t i = 0; i < n; i++)
        if (!init->repaint[i])
            tokens[i] = mixed(sigma, noise[i], init->z[i]);
    return dfx_values_upload(m, m->session.state.x[lane], tokens, n);
}
