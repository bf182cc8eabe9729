/* Sigmas of flow matching: n steps from 1 to 0, shifted as scheduler_config.json says.
 * Formulas: s_i = 1 - i/n; dynamic: e^mu / (e^mu + 1/s - 1) with mu linear in the number of image tokens; static:
 * shift s / (1 + (shift - 1) s). Source: diffusers' FlowMatchEulerDiscreteScheduler.
 * Fact that bites: `shift` is not used when use_dynamic_shifting is on (guard: tests/test_sigmas.c). */
#ifndef DFX_MODELS_SIGMAS_H
#define DFX_MODELS_SIGMAS_H

#include "core/bundle.h"

typedef struct dfx_sigma_config {
    bool dynamic;
    double shift;                 /* static */
    double base_shift, max_shift; /* dynamic */
    int64_t base_tokens, max_tokens;
} dfx_sigma_config;

/* folder/scheduler_config.json of the bundle. Errors: DFX_E_FORMAT for another class or an option that we do not follow. */
dfx_status dfx_sigma_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                 dfx_sigma_config *out);

/* sigmas[n_steps + 1], the last 0. n_image: tokens of the picture. */
void dfx_sigmas_make(const dfx_sigma_config *config, int64_t n_image, int n_steps, float *sigmas);

#endif
