#include "tools/model_options.h"

#include <string.h>

enum { THREADS_MAX = 256, LORA_RANK_MAX = 512, DEVICE_MAX = 63 };

static bool read_values(dfx_args *args, dfx_open_options *open) {
    static const char *const devices[] = {
        [DFX_DEVICE_AUTO] = "auto", [DFX_DEVICE_CPU] = "cpu", [DFX_DEVICE_CUDA] = "cuda", NULL};
    static const char *const offloads[] = {"auto", "ram", "nvme", "none", NULL};
    static const char *const quants[] = {"auto", "bf16", "int8", "int8wo", "fp8", NULL};
    static const char *const verifies[] = {"first", "always", NULL};
    static const char *const attentions[] = {"16", "8", NULL};
    int device = DFX_DEVICE_AUTO, offload = 0, quant = 0, attention = 0, verify = 0;
    bool good =
        dfx_args_choice_numbered(args, DFX_MODEL_DEVICE, devices, DFX_DEVICE_CUDA, DEVICE_MAX,
                                 &device, &open->device_index) &&
        dfx_args_int(args, DFX_MODEL_THREADS, 1, THREADS_MAX, &open->n_threads) &&
        dfx_args_bytes(args, DFX_MODEL_VRAM_BUDGET, &open->vram_budget_bytes) &&
        dfx_args_bytes(args, DFX_MODEL_RAM_BUDGET, &open->ram_budget_bytes) &&
        dfx_args_choice(args, DFX_MODEL_OFFLOAD, offloads, &offload) &&
        dfx_args_choice(args, DFX_MODEL_QUANT, quants, &quant) &&
        dfx_args_choice(args, DFX_MODEL_ATTENTION_BITS, attentions, &attention) &&
        dfx_args_choice(args, DFX_MODEL_VERIFY, verifies, &verify) &&
        dfx_args_int(args, DFX_MODEL_LORA_MAX_RANK, 1, LORA_RANK_MAX, &open->lora_max_rank) &&
        dfx_args_int(args, DFX_MODEL_LORA_MAX, 1, LORA_RANK_MAX, &open->lora_max);
    open->device = (dfx_device_choice)device;
    open->offload = offloads[offload];
    open->quant = quants[quant];
    open->attention_bits = attention == 1 ? 8 : 16;
    open->verify_always = verify == 1;
    open->profile = args->value[DFX_MODEL_PROFILE];
    open->trace_path = args->value[DFX_MODEL_TRACE];
    open->vae_path = args->value[DFX_MODEL_VAE];
    open->clip_path = args->value[DFX_MODEL_CLIP_L];
    open->t5_path = args->value[DFX_MODEL_T5];
    open->tokenizer_path = args->value[DFX_MODEL_TOKENIZER];
    return good;
}

dfx_status dfx_model_options_read(dfx_args *args, dfx_console *console, dfx_model_options *to) {
    to->open.sink = console->sink;
    if (!read_values(args, &to->open))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    if (to->open.trace_path && strcmp(to->open.trace_path, "-") == 0)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--trace -: wanted the name of a file; it is written several times");
    to->open.model_path = args->value[DFX_MODEL_PATH];
    if (to->open.model_path)
        return DFX_OK;
    to->open.model_path = to->path;
    return dfx_bundled_find(console, to->path);
}
