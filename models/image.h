/* Pictures: from the decoder's values to pixels, and the words that travel with them. Private to models/. */
#ifndef DFX_MODELS_IMAGE_H
#define DFX_MODELS_IMAGE_H

#include "models/dfx.h"

/* image->rgb = round(clamp(x / 2 + 0.5, 0, 1) * 255), half to even, as diffusers does in f32. rgb: [h][w][3], finite. */
dfx_status dfx_image_pixels(dfx_image *image, const float *rgb, const dfx_sink *sink);

/* image->parameters and image->json, from the request that it is of. Bad UTF-8 in the prompt becomes U+FFFD. */
dfx_status dfx_image_describe(dfx_image *image, const dfx_request *request, const char *model,
                              const dfx_sink *sink);

#endif
