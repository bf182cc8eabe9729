/* Checkpoint: what a user has, presented as what packing wants.
 *
 *     dfx_checkpoint *c;
 *     dfx_checkpoint_options o = {.paths = {.model = "flux1-dev.safetensors", .vae = "ae.safetensors", ...}};
 *     DFX_TRY(dfx_checkpoint_open(&o, sink, &c));
 *     ... dfx_checkpoint_tensors(c, DFX_T5), dfx_checkpoint_bundle(c), and dfx_checkpoint_read for the bytes ...
 *     dfx_checkpoint_close(c);
 *
 * Files are a diffusers folder, single files (safetensors or GGUF; one component or several in one), or both together.
 * Whatever they are, each component comes out as a set of tensors under the names of diffusers and transformers and in their
 * shapes. Opening reads tables of contents, scales and small files; what cannot be run is refused there, by name. Weights are
 * made out of the source's bytes by dfx_checkpoint_read, a run of rows at a time: nothing large is ever held.
 *
 * Facts that have bitten someone (guards in tests/test_checkpoint*.c): the final layer's two halves are exchanged between
 * BFL's names and diffusers'; `decoder.up.i` is `up_blocks.(n-1-i)`; a weight of scaled fp8 without its scale is 1000 times
 * too large and finite all the same; what a file is follows from its tensors, never from its name. */
#ifndef DFX_MODELS_CHECKPOINT_H
#define DFX_MODELS_CHECKPOINT_H

#include "models/configs.h"
#include "quant/qformat.h"

/* What was given on the command line; borrowed. NULL: not given. */
typedef struct dfx_model_paths {
    const char *model; /* a diffusers folder, or a file with a FLUX transformer in it */
    const char *vae, *clip,
        *t5; /* instead of what `model` has; a file, a component's folder or a diffusers folder */
    const char
        *tokenizer; /* models/tokenizer_files.h says what and where else they are looked for */
} dfx_model_paths;

typedef struct dfx_checkpoint_options {
    dfx_model_paths paths;
    dfx_qformat quant; /* of the large matrices; DFX_Q_STORED: as the source has them */
    /* Nobody asked for `quant`: codes of 8 bits with a scale a row stay what they are, and where `quant` is STORED, formats of
     * blocks (GGUF, bitsandbytes' 4 bits), which no page can hold, become int8wo: as many bytes as Q8_0, activations untouched. */
    bool automatic;
} dfx_checkpoint_options;

typedef struct dfx_checkpoint dfx_checkpoint;

/* Is it something to open here: a folder, a file that is no packed model, or anything with other files beside it?
 * Errors: those of dfx_tensors_open_file(). */
dfx_status dfx_checkpoint_ask(const dfx_model_paths *paths, const dfx_sink *sink, bool *is);

/* Errors: DFX_E_IO, DFX_E_USAGE (files that do not do what they were given for), DFX_E_FORMAT (another kind of model, a storage
 * that is not read, tensors that contradict each other). */
dfx_status dfx_checkpoint_open(const dfx_checkpoint_options *options, const dfx_sink *sink,
                               dfx_checkpoint **out);
void dfx_checkpoint_close(dfx_checkpoint *checkpoint); /* NULL is fine */

/* Borrowed. Never NULL; its files are those that the component's bytes come from. */
const dfx_tensors *dfx_checkpoint_tensors(const dfx_checkpoint *checkpoint,
                                          dfx_component component);

/* Configurations, found or derived from the tensors, and tokenizers. */
const dfx_bundle *dfx_checkpoint_bundle(const dfx_checkpoint *checkpoint);

/* The format to pack in, and the components (patterns of names; borrowed) that it leaves alone: options->quant and none of them
 * unless `automatic` chose. */
dfx_qformat dfx_checkpoint_quant(const dfx_checkpoint *checkpoint);
const char *const *dfx_checkpoint_keep(const dfx_checkpoint *checkpoint, size_t *n);

/* Bytes [off, off + n_bytes) of a tensor of dfx_checkpoint_tensors(c, the component of that folder): dfx_pack_source.read.
 * Whole elements. Any thread. Errors: DFX_E_IO; DFX_E_FORMAT. */
dfx_status dfx_checkpoint_read(void *checkpoint, const char *component, const dfx_tensor *tensor,
                               uint64_t off, void *dst, size_t n_bytes);

#endif
