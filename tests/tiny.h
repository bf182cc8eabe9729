/* The tiny models: complete FLUX.1 pipelines of 28 MB whose weights come from a rule instead of
 * files.
 *
 *     static void flux_step_equals_diffusers(void **state) {
 *         tmpdir *dir = *state;
 *         assert_int_equal(tiny_write_model(dir->path, TINY_DEV), DFX_OK);
 *         ... dir->path is now a diffusers folder, golden/flux.safetensors what it computes ...
 *     }
 *
 * Rule (golden/weights.json, for every tensor its shape, exponent e and base):
 *     h = FNV-1a-64 of "<component>/<tensor name>"
 *     z = the splitmix64 finalizer of h + (i + 1) * 0x9E3779B97F4A7C15, i the flat row-major index
 *     value = base + ((z >> 32) mod 15 - 7) * 2^-e
 * Every value is exact in bf16. Components: transformer, vae, text_encoder (CLIP), text_encoder_2
 * (T5), and the two encoders with a vocabulary of 128, clip_small_vocab and t5_small_vocab, which
 * are stored in golden/ as well.
 *
 * Both variants share all weights; schnell has no time_text_embed.guidance_embedder. The VAE's
 * weights serve 32 and 8 norm groups alike (cases "g32" and "g8" of golden/vae.safetensors); only
 * its config differs.
 *
 * Files are read below tests/golden, so the working directory is the root of the repository.
 * Nothing here allocates through core/mem.h. A failure is told through cmocka's print_error and
 * returned. */
#ifndef DFX_TESTS_TINY_H
#define DFX_TESTS_TINY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef enum tiny_variant { TINY_DEV, TINY_SCHNELL } tiny_variant;

/* dst[i] = value i of the tensor, all n of them.
 * Errors: DFX_E_USAGE: no such tensor, or n is not its number of values. */
dfx_status tiny_fill(const char *component, const char *tensor, float *dst, size_t n);

/* The whole pipeline into `dir`, which exists: model_index.json, scheduler/, transformer/, vae/ (32
 * groups), text_encoder/, text_encoder_2/. Weights in bf16, byte for byte the files of diffusers.
 * No tokenizer folders. */
dfx_status tiny_write_model(const char *dir, tiny_variant variant);

/* One folder of it, dir/<component>/config.json and the weights: a quarter of the time where a test
 * needs no more. */
dfx_status tiny_write_component(const char *dir, tiny_variant variant, const char *component);

/* dir/vae/ with n_groups norm groups in its config (32 or 8 have goldens); written over one that is
 * there. */
dfx_status tiny_write_vae(const char *dir, int n_groups);

/* Links dir/tokenizer and dir/tokenizer_2 to the real vocabularies in $DFX_TOKENIZERS (clip-l,
 * t5-xxl). False when the variable is not set or the folders are not there: the test skips. */
bool tiny_link_tokenizers(const char *dir);

#endif
