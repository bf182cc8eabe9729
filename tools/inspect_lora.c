#include "tools/inspect_lora.h"

#include <stdio.h>
#include <string.h>

#include "models/architecture.h"
#include "models/lora.h"
#include "models/pack.h"

static dfx_status no_memory(const dfx_sink *sink, const char *path) {
    return dfx_fail(sink, DFX_E_NOFIT, "%s: no memory to describe it", path);
}

/* The configurations of the model that is meant, and what to call it. */
static dfx_status find_configs(const char *model, const dfx_sink *sink, dfx_configs *out) {
    dfx_parts parts;
    if (!model) {
        *out = dfx_architecture_find("flux-dev")->configs;
        return DFX_OK;
    }
    DFX_TRY(dfx_model_check(&(dfx_model_paths){.model = model}, sink, &parts));
    *out = parts.configs;
    dfx_parts_fini(&parts);
    return DFX_OK;
}

static json_t *describe_part(const dfx_lora_part *p) {
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:b}", "component",
                     dfx_component_places[p->component].folder, "layer", p->layer, "module",
                     p->module, "out", (json_int_t)p->n, "in", (json_int_t)p->k, "rank",
                     (json_int_t)p->rank, "alpha", (double)p->alpha, "scale", (double)p->scale,
                     "dora", p->magnitude != DFX_LORA_NO_MAGNITUDE);
}

/* json_pack with a NULL part gives NULL and frees the rest, so running out of memory anywhere ends as NULL. */
static json_t *describe(const dfx_lora *lora, const dfx_configs *configs, bool listed) {
    const dfx_lora_facts *f = dfx_lora_facts_of(lora);
    json_t *names = json_array(), *parts = listed ? json_array() : NULL;
    bool good = names && (parts || !listed);
    for (size_t i = 0; good && i < f->n_named; i++)
        good = json_array_append_new(names, json_string(f->unmatched[i])) == 0;
    for (size_t i = 0; good && listed && i < dfx_lora_n_parts(lora); i++)
        good = json_array_append_new(parts, describe_part(dfx_lora_part_at(lora, i))) == 0;
    json_t *layers =
        json_pack("{s:I, s:I, s:I}", "transformer", (json_int_t)f->n_parts_of[DFX_TRANSFORMER],
                  "text_encoder", (json_int_t)f->n_parts_of[DFX_CLIP], "text_encoder_2",
                  (json_int_t)f->n_parts_of[DFX_T5]);
    json_t *found = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:f, s:f, s:f, "
        "s:f, s:o, s:o}",
        "style", dfx_lora_style_text(f->style), "for",
        configs->flux.has_guidance ? "FLUX.1 dev" : "FLUX.1 schnell", "modules",
        (json_int_t)f->n_modules, "matched", (json_int_t)f->n_matched, "unmatched",
        (json_int_t)f->n_unmatched, "zero", (json_int_t)f->n_zero, "loha", (json_int_t)f->n_loha,
        "lokr", (json_int_t)f->n_lokr, "dora", (json_int_t)f->n_dora, "block_diagonal",
        (json_int_t)f->n_block_diagonal, "ignored_zeros", (json_int_t)f->n_ignored_zeros,
        "split_qkv", f->split_qkv, "rank_min", (json_int_t)f->rank_min, "rank_max",
        (json_int_t)f->rank_max, "alpha_min", (double)f->alpha_min, "alpha_max",
        (double)f->alpha_max, "scale_min", (double)f->scale_min, "scale_max", (double)f->scale_max,
        "layers", layers, "unmatched_names", names);
    if (good && found && (!listed || json_object_set(found, "parts", parts) == 0)) {
        json_decref(parts);
        return found;
    }
    json_decref(parts);
    json_decref(found);
    return NULL;
}

/* Forwards, and keeps the first error for the verdict. */
typedef struct listener {
    const dfx_sink *to;
    char error[1024];
} listener;

static void listen(void *user, dfx_level level, const char *text) {
    listener *l = user;
    if (level == DFX_ERROR && !l->error[0])
        snprintf(l->error, sizeof(l->error), "%s", text);
    if (l->to && l->to->say)
        l->to->say(l->to->user, level, text);
}

static json_t *verdict_of(const dfx_lora *lora, const json_t *found, const char *error) {
    if (error[0] || !found)
        return json_sprintf("dfx-edge cannot apply this: %s", error[0] ? error : "no memory");
    const dfx_lora_facts *f = dfx_lora_facts_of(lora);
    return json_sprintf("a LoRA for %s: %zu of %zu modules match, %zu layers are changed",
                        json_string_value(json_object_get(found, "for")), f->n_matched,
                        f->n_modules, dfx_lora_n_parts(lora));
}

dfx_status dfx_inspect_lora(const char *path, const char *model, bool listed, const dfx_sink *sink,
                            json_t *file) {
    listener heard = {.to = sink};
    dfx_sink listening = {.say = listen, .user = &heard};
    dfx_configs configs;
    dfx_lora *lora = NULL;
    json_t *found = NULL;
    DFX_TRY(find_configs(model, sink, &configs));
    dfx_status status = dfx_lora_look(path, &configs, &listening, &lora);
    bool told = true;
    if (status == DFX_OK) {
        found = describe(lora, &configs, listed);
        told = found && json_object_set(file, "lora", found) == 0;
        status = dfx_lora_check_matched(lora, &listening);
    }
    json_t *verdict = verdict_of(lora, found, heard.error);
    told = told && json_object_set(file, "verdict", verdict) == 0;
    json_decref(verdict);
    json_decref(found);
    dfx_lora_close(lora);
    return status != DFX_OK ? status : told ? DFX_OK : no_memory(sink, path);
}
