/* What a file is that we do not run, told by a part of a name that only such files have. */
#include <stdio.h>
#include <string.h>

#include "models/checkpoint_internal.h"

typedef struct mark {
    const char *part, *also; /* `also`: of another name in the file; NULL: none is wanted */
    const char *text;
} mark;

/* In this order: families whose names resemble FLUX.1's come first. */
static const mark FAMILIES[] = {
    {".lora_A.", NULL, "a LoRA"},
    {".lora_down.", NULL, "a LoRA"},
    {".lora.down.", NULL, "a LoRA"},
    {"_lora.down.", NULL, "a LoRA"},
    {".processor.", NULL, "a LoRA"},
    {".lokr_w", NULL, "a LoKr adapter"},
    {".hada_w", NULL, "a LoHa adapter"},
    {"distilled_guidance_layer.", NULL, "Chroma"},
    {"single_stream_modulation.", NULL, "FLUX.2"},
    {"redux_up.", NULL, "FLUX.1 Redux"},
    {"controlnet_blocks.", NULL, "a ControlNet"},
    {"joint_blocks.", NULL, "Stable Diffusion 3"},
    {"transformer_blocks.0.img_mod.", NULL, "Qwen-Image"},
    {"noise_refiner.", NULL, "Z-Image or Lumina"},
    {"adaln_single.", NULL, "PixArt"},
    {"input_blocks.0.0.", NULL, "a Stable Diffusion UNet"},
    {"down_blocks.0.resnets.0.time_emb_proj.", NULL, "a Stable Diffusion UNet"},
    {"transformer.resblocks.0.", NULL, "a CLIP with the names of OpenCLIP"},
};

static const mark STORAGES[] = {
    {".qweight", ".wscales", "SVDQuant (nunchaku)"},
    {".qweight", NULL, "AWQ or GPTQ"},
    {"._data", NULL, "optimum-quanto"},
    {".bitmask_", NULL, "compressed-tensors"},
    {".wcscales", NULL, "SVDQuant (nunchaku)"},
};

static const char *find_part(const dfx_tensors *set, const char *part) {
    for (size_t i = 0; i < dfx_tensors_count(set); i++)
        if (strstr(dfx_tensors_at(set, i)->name, part))
            return dfx_tensors_at(set, i)->name;
    return NULL;
}

static const char *find_mark(const dfx_tensors *set, const mark *marks, size_t n,
                             const char **example) {
    for (size_t i = 0; i < n; i++) {
        *example = find_part(set, marks[i].part);
        if (*example && (!marks[i].also || find_part(set, marks[i].also)))
            return marks[i].text;
    }
    return NULL;
}

const char *dfx_kind_foreign(const dfx_tensors *set, const char **example) {
    return find_mark(set, FAMILIES, DFX_COUNT(FAMILIES), example);
}

const char *dfx_kind_storage(const dfx_tensors *set, const char **example) {
    return find_mark(set, STORAGES, DFX_COUNT(STORAGES), example);
}

/* Names that writers of GGUF give to what is certainly not FLUX.1. */
static const char *const OTHERS[] = {"sd1",     "sdxl",       "sd3",     "aura",   "hidream",
                                     "cosmos",  "ltxv",       "hyvid",   "wan",    "llama",
                                     "lumina2", "qwen2",      "qwen3",   "gemma",  "gemma2",
                                     "gemma3",  "qwen_image", "qwen2vl", "chroma", "flux2"};

dfx_status dfx_kind_check_architecture(const dfx_source *source, dfx_component component,
                                       const dfx_sink *sink) {
    const char *found = dfx_tensors_metadata(source->set, "general.architecture");
    bool is_t5 = found && (strcmp(found, "t5") == 0 || strcmp(found, "t5encoder") == 0);
    if (!found || strcmp(found, "flux") == 0 || (is_t5 && component == DFX_T5))
        return DFX_OK;
    for (size_t i = 0; i < DFX_COUNT(OTHERS); i++)
        if (strcmp(found, OTHERS[i]) == 0)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: wanted a %s for %s, found general.architecture \"%s\"",
                            source->path, dfx_component_texts[component],
                            dfx_component_options[component], found);
    dfx_warn(sink, "%s: general.architecture is \"%s\"; its tensors are those of a %s",
             source->path, found, dfx_component_texts[component]);
    return DFX_OK;
}
