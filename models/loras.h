/* LoRAs beside the linear layers of a model: files are opened once and kept; what acts is written into the adapter block of the
 * session (offload/program.h), and only when a request's list differs from what is there. No page is written to, no program
 * built and nothing recorded anew: a LoRA comes and goes as data. */
#ifndef DFX_MODELS_LORAS_H
#define DFX_MODELS_LORAS_H

#include "core/pool.h"
#include "models/dfx.h"
#include "models/lora.h"
#include "models/picture.h"
#include "offload/program.h"

typedef struct dfx_lora_file {
    char *path;        /* owned */
    uint64_t stamp[3]; /* of the file when it was opened: bytes, seconds, nanoseconds */
    dfx_lora *lora;    /* owned */
    float **rescale;   /* owned, each; models/lora_block.h; NULL: no DoRA in it */
} dfx_lora_file;

/* Of a model. Zeroed: none. */
typedef struct dfx_loras {
    dfx_lora_file *files; /* owned, each */
    size_t n_files, cap_files;
    int64_t rank; /* of every place; 0: the model was opened for none */
    bool
        has_dora; /* rows of quantized weights can be rescaled: a file that was named then is a DoRA */
    bool has_t5;    /* T5 has places too: a file that was named then has layers of it. Few have */
    dfx_pool *pool; /* owned */
} dfx_loras;

/* The rank of a place that holds `n` LoRAs (0: one) of `rank`; 0 for none. Errors: DFX_E_USAGE: more than a place can have. */
dfx_status dfx_loras_room(int64_t rank, int64_t n, const dfx_sink *sink, int64_t *room);

/* Decide what room there is, when the model is opened: for the files that the options name, all at once, and for as many of any
 * rank as they say. Errors: those of dfx_lora_open; DFX_E_USAGE. */
dfx_status dfx_loras_reserve(dfx_model *model, const dfx_open_options *options);
void dfx_loras_fini(dfx_loras *loras); /* zeroed is fine */

/* Open what a request names and see that it fits. Errors: those of dfx_lora_open; DFX_E_USAGE: a strength that is no number, or
 * more rank than was reserved; DFX_E_FORMAT: a DoRA on a weight without scales. */
dfx_status dfx_loras_check(dfx_model *model, const dfx_request *request);

/* Of pinned memory, from which a session uploads the blocks where the host does not see the device's memory. */
size_t dfx_loras_image_bytes(const dfx_program programs[DFX_N_PROGRAMS]);

/* The session's adapter block holds what the request names, which has been checked. What was computed with others is forgotten.
 * Errors: DFX_E_IO, DFX_E_NOFIT, DFX_E_DEVICE. */
dfx_status dfx_loras_apply(dfx_model *model, const dfx_request *request);

#endif
