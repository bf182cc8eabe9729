/* Goldens of the autoencoder, of diffusers: decoder and encoder, the values between, in F32 also 8-bit pictures. The group's
 * folder holds g32/vae and g8/vae of tests/tiny.h, with 32 and 8 norm groups. */
#ifndef DFX_TESTS_GOLDEN_VAE_H
#define DFX_TESTS_GOLDEN_VAE_H

#include "tests/model_rig.h"

void golden_vae_decode(model_rig *r, int n_groups);
void golden_vae_encode(model_rig *r, int n_groups);

#endif
