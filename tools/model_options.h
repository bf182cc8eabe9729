/* The options that say which model is opened and on what: of generate and repl. In a command's table they stand behind those of
 * the picture. */
#ifndef DFX_TOOLS_MODEL_OPTIONS_H
#define DFX_TOOLS_MODEL_OPTIONS_H

#include "tools/find_model.h"
#include "tools/picture_options.h"

#define DFX_MODEL_OPTIONS(X)                                \
    X(PATH, "model", 'm', "a folder or file")               \
    X(VAE, "vae", 0, "a file")                              \
    X(CLIP_L, "clip-l", 0, "a file")                        \
    X(T5, "t5", 0, "a file")                                \
    X(TOKENIZER, "tokenizer", 0, "a folder")                \
    X(DEVICE, "device", 0, "auto, cpu, cuda or cuda:N")     \
    X(THREADS, "threads", 0, "a number")                    \
    X(VRAM_BUDGET, "vram-budget", 0, "a size such as 12G")  \
    X(RAM_BUDGET, "ram-budget", 0, "a size such as 16G")    \
    X(OFFLOAD, "offload", 0, "auto, ram, nvme or none")     \
    X(QUANT, "quant", 0, "auto, bf16, int8, int8wo or fp8") \
    X(ATTENTION_BITS, "attention-bits", 0, "16 or 8")       \
    X(LORA_MAX_RANK, "lora-max-rank", 0, "a number")        \
    X(LORA_MAX, "lora-max", 0, "a number")                  \
    X(PROFILE, "profile", 0, "a machine profile")           \
    X(VERIFY, "verify", 0, "first or always")               \
    X(TRACE, "trace", 0, "a file name")

#define DFX_MODEL_OPTION_ENUM(name, word, letter, value) DFX_MODEL_##name,
enum {
    DFX_MODEL_OPTIONS_BEFORE = DFX_N_PICTURE_OPTIONS - 1,
    DFX_MODEL_OPTIONS(DFX_MODEL_OPTION_ENUM) DFX_N_MODEL_OPTIONS /* those of the picture too */
};
#undef DFX_MODEL_OPTION_ENUM

#define DFX_MODEL_OPTION_ENTRY(name, word, letter, value) \
    [DFX_MODEL_##name] = {word, letter, value, false},
#define DFX_MODEL_OPTION_TABLE DFX_MODEL_OPTIONS(DFX_MODEL_OPTION_ENTRY)

typedef struct dfx_model_options {
    dfx_open_options open; /* strings are borrowed from args or lie in `path` */
    char path[DFX_MODEL_PATH_BYTES];
} dfx_model_options;

/* `options` is zeroed and must not move afterwards. Errors: DFX_E_USAGE; DFX_E_IO: there is no bundled model; said. */
dfx_status dfx_model_options_read(dfx_args *args, dfx_console *console, dfx_model_options *options);

#endif
