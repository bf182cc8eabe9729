/* Weights that a seed makes: which tensors an architecture has, and the bytes of any part of any of them.
 *
 * Rule, so that another program can make the same: a table of 65536 numbers, the first torch.randn(65536) of seed 0 (core/rng.h)
 * in bf16. For a tensor, h = XXH3 of "<component>.<name>"; value i takes bits 16 (i mod 4) and up of the splitmix64 finalizer
 * of h + (seed + 1) * 0xD1B54A32D192ED03 + (i / 4 + 1) * 0x9E3779B97F4A7C15 as its place in the table, divided by
 * 2^k. Of a matrix k is log2 of sqrt(inputs of one output), rounded to the nearest; of a bias 6. Weights of norms are 1.
 * Values depend on nothing but seed, name and place: any order and any number of threads gives the same. */
#ifndef DFX_TOOLS_RANDOM_WEIGHTS_H
#define DFX_TOOLS_RANDOM_WEIGHTS_H

#include "models/architecture.h"
#include "models/pack.h"

typedef struct dfx_random_weights {
    uint64_t seed;
    uint16_t *table;                       /* owned; [65536], bf16 */
    dfx_program shapes[DFX_PACK_PROGRAMS]; /* from the architecture alone; own the names */
    dfx_tensors *sets[DFX_N_COMPONENTS];   /* owned; tensors in no file, all BF16 */
} dfx_random_weights;

dfx_status dfx_random_weights_init(dfx_random_weights *weights, const dfx_architecture *arch,
                                   uint64_t seed, const dfx_sink *sink);
void dfx_random_weights_fini(dfx_random_weights *weights); /* zeroed is fine */

/* Bytes [off, off + n_bytes) of a tensor, both even: the `read` of a dfx_pack_source, with the weights as its user. */
dfx_status dfx_random_weights_read(void *weights, const char *component, const dfx_tensor *tensor,
                                   uint64_t off, void *dst, size_t n_bytes);

/* The greatest magnitude that a value of the tensor can have: the table's, divided. */
float dfx_random_weights_max(const dfx_random_weights *weights, const dfx_tensor *tensor);

#endif
