/* Init picture: what image to image begins with, and where inpainting leaves it as it is. Private to models/.
 *
 *   z      the picture's latents: the mean of the encoder's posterior, scaled; nothing is drawn for it, so that the noise of a
 *          seed is that of text to image
 *   start  x = sigma noise + (1 - sigma) z, at the first sigma of the steps that strength leaves
 *   mask   after each step x = (1 - m) (sigma noise + (1 - sigma) z) + m x, at the sigma that the step ends at, with the noise
 *          of the start: where m is 0, the last step leaves z itself
 *
 * Of n steps with strength s the last n - k are made, k = trunc(n - n s) in double. Source: diffusers' FluxImg2ImgPipeline and
 * FluxInpaintPipeline. Facts that have bitten someone (guards in tests/test_init.c): steps are counted in double, so that 10 of
 * strength 0.6 are 6; the mask is cut at 128 of 255, and each latent takes that of the upper left one of its 8x8 pixels. */
#ifndef DFX_MODELS_INIT_H
#define DFX_MODELS_INIT_H

#include "models/picture.h"

typedef struct dfx_model dfx_model;
typedef struct dfx_request dfx_request;

/* Of a session; tokens are [I, channels]. */
typedef struct dfx_init {
    uint8_t *rgb;      /* owned; [H][W][3]: the picture, fitted to the size */
    uint64_t checksum; /* of the picture as it was given: XXH3 of its values */
    float *z;          /* owned; tokens */
    bool is_encoded;   /* z is that of rgb */
    uint8_t *repaint;  /* owned; tokens, each 0 or 1; NULL: no mask */
    float *noise;      /* owned; tokens of lane after lane, for the blend; NULL: no mask */
} dfx_init;

/* k: the first step that is made. */
int dfx_init_first_step(double strength, int n_steps);

/* The request's picture and mask become the session's, which serves it; z is kept if the picture is still the same. Without a
 * picture nothing is done. */
dfx_status dfx_init_begin(dfx_model *model, const dfx_request *request);
void dfx_init_fini(dfx_init *init); /* zeroed is fine */

/* z, by the encoder. A stage of the session's plan. */
dfx_status dfx_init_encode(dfx_model *model);

/* Tokens of noise become what the lane starts with, in place. */
void dfx_init_start(dfx_model *model, int lane, float sigma, float *tokens);

/* Tokens of the lane behind a step that ends at `sigma`, in place and on the device. With a mask only. */
dfx_status dfx_init_blend(dfx_model *model, int lane, float sigma, float *tokens);

#endif
