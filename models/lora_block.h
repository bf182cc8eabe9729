/* The adapter block of a program, filled from LoRAs: of each place (offload/program.h), A and u. A layer's adapters lie one behind
 * the other in the ranks of its place, those of one layer may so have any ranks whose sum it holds; what is left of it becomes
 * zeros. u has strength and scale in it: W x + sum of strength * scale * up (down x).
 *
 * A place with scales has those of its page, times 1 + sum of strength * (d - 1) over its DoRAs (models/lora_dora.h). */
#ifndef DFX_MODELS_LORA_BLOCK_H
#define DFX_MODELS_LORA_BLOCK_H

#include "core/pool.h"
#include "models/lora.h"
#include "offload/program.h"

typedef struct dfx_lora_weight {
    const dfx_lora *lora; /* borrowed */
    float strength;
    float **
        rescale; /* borrowed; [dfx_lora_n_parts]: d of parts that are DoRAs, worked out when they are first used (dfx_free is the
                      * owner's); NULL: the lora has none */
} dfx_lora_weight;

/* block: program->adapter_bytes in host memory, values of `dtype` (F32 or BF16). component: whose layers the
 * program has. pool: places are filled side by side.
 * Errors: DFX_E_IO (also when more rank is wanted than a place has: the file is another than was checked), DFX_E_NOFIT. */
dfx_status dfx_lora_block_fill(const dfx_program *program, dfx_component component,
                               const dfx_lora_weight *loras, size_t n_loras, dfx_dtype dtype,
                               dfx_pool *pool, const dfx_sink *sink, void *block);

#endif
