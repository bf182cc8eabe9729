/* Configuration files of a FLUX pipeline out of our configurations: the way back of configs.h. Each returns a new JSON object
 * (json_decref by the caller), or NULL when memory did not do. */
#ifndef DFX_MODELS_CONFIG_WRITE_H
#define DFX_MODELS_CONFIG_WRITE_H

#include <jansson.h>

#include "models/configs.h"

json_t *dfx_config_write_index(void); /* model_index.json */
json_t *dfx_config_write_scheduler(const dfx_sigma_config *config);
json_t *dfx_config_write_flux(const dfx_flux_config *config);
/* n_pieces: of the tokenizer, whose last two are the beginning and the end of a text. */
json_t *dfx_config_write_clip(const dfx_clip_config *config, int64_t n_pieces);
json_t *dfx_config_write_t5(const dfx_t5_config *config);
json_t *dfx_config_write_vae(const dfx_vae_config *config,
                             int64_t side); /* side: of usual pictures */

#endif
