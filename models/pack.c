#include "models/pack.h"

#include "models/tokenizer_files.h"

enum { CLIP_TABLE, T5_TABLE, CLIP, T5, COND, STEP, DECODE, ENCODE };

const dfx_component dfx_pack_component_of[DFX_PACK_PROGRAMS] = {
    [CLIP_TABLE] = DFX_CLIP,  [T5_TABLE] = DFX_T5,      [CLIP] = DFX_CLIP,  [T5] = DFX_T5,
    [COND] = DFX_TRANSFORMER, [STEP] = DFX_TRANSFORMER, [DECODE] = DFX_VAE, [ENCODE] = DFX_VAE,
};

/* What is packed, ready to be. */
typedef struct parts {
    dfx_checkpoint *checkpoint; /* owned */
    dfx_parts loaded;           /* owned */
    dfx_program programs[DFX_PACK_PROGRAMS];
    size_t n_programs;
    const char **files; /* owned */
    size_t n_files;
} parts;

/* The encoder is for pictures as input; a checkpoint without it makes pictures all the same. */
static dfx_status build(const dfx_configs *c, const dfx_build_env env[DFX_PACK_PROGRAMS],
                        dfx_program *p, size_t *n_programs) {
    const dfx_tensors *vae = env[ENCODE].tensors;
    DFX_TRY(dfx_clip_build_table(&c->clip, &env[CLIP_TABLE], &p[CLIP_TABLE]));
    DFX_TRY(dfx_t5_build_table(&c->t5, &env[T5_TABLE], &p[T5_TABLE]));
    DFX_TRY(dfx_clip_build(&c->clip, &env[CLIP], c->clip.n_positions, &p[CLIP]));
    DFX_TRY(dfx_t5_build(&c->t5, &env[T5], 1, &p[T5]));
    DFX_TRY(dfx_flux_build_cond(&c->flux, &env[COND], 1, 1, &p[COND]));
    DFX_TRY(dfx_flux_build_step(&c->flux, &env[STEP], 1, 1, &p[STEP]));
    DFX_TRY(dfx_vae_build_decoder(&c->vae, &env[DECODE], 2, 2, &p[DECODE]));
    *n_programs = ENCODE;
    if (vae && !dfx_tensors_find(vae, "encoder.conv_in.weight"))
        return DFX_OK;
    *n_programs = DFX_PACK_PROGRAMS;
    return dfx_vae_build_encoder(&c->vae, &env[ENCODE], 2, 2, &p[ENCODE]);
}

dfx_status dfx_pack_build(const dfx_configs *configs,
                          const dfx_tensors *const sets[DFX_N_COMPONENTS], const dfx_sink *sink,
                          dfx_program programs[DFX_PACK_PROGRAMS], size_t *n_programs) {
    dfx_build_env env[DFX_PACK_PROGRAMS];
    for (int i = 0; i < DFX_PACK_PROGRAMS; i++)
        env[i] = (dfx_build_env){
            .tensors = sets[dfx_pack_component_of[i]], .act_dtype = DFX_DTYPE_F32, .sink = sink};
    dfx_status status = build(configs, env, programs, n_programs);
    for (int i = 0; status != DFX_OK && i < DFX_PACK_PROGRAMS; i++)
        dfx_program_fini(&programs[i]);
    return status;
}

static void close_parts(parts *p) {
    for (int i = 0; i < DFX_PACK_PROGRAMS; i++)
        dfx_program_fini(&p->programs[i]);
    dfx_parts_fini(&p->loaded);
    dfx_checkpoint_close(p->checkpoint);
    dfx_free(p->files);
}

/* Everything that can be refused is refused here: no weight has been read. */
static dfx_status open_parts(parts *p, const dfx_checkpoint_options *from, const dfx_sink *sink) {
    const dfx_tensors *sets[DFX_N_COMPONENTS];
    DFX_TRY(dfx_checkpoint_open(from, sink, &p->checkpoint));
    const dfx_bundle *bundle = dfx_checkpoint_bundle(p->checkpoint);
    DFX_TRY(dfx_parts_load(bundle, sink, &p->loaded));
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        sets[i] = dfx_checkpoint_tensors(p->checkpoint, (dfx_component)i);
    DFX_TRY(dfx_pack_build(&p->loaded.configs, sets, sink, p->programs, &p->n_programs));
    DFX_TRY(dfx_new_array(sink, dfx_n_model_files, "pack", &p->files));
    for (size_t i = 0; i < dfx_n_model_files; i++)
        if (dfx_bundle_has(bundle, dfx_model_files[i]))
            p->files[p->n_files++] = dfx_model_files[i];
    return DFX_OK;
}

static dfx_status check_source(const dfx_model_paths *paths, const dfx_sink *sink, dfx_parts *out) {
    dfx_checkpoint_options from = {.paths = *paths, .quant = DFX_Q_STORED, .automatic = true};
    parts p = {0};
    dfx_status status = open_parts(&p, &from, sink);
    if (status == DFX_OK) {
        *out = p.loaded;
        p.loaded = (dfx_parts){0};
    }
    close_parts(&p);
    return status;
}

static dfx_status check_pages(const dfx_packed *packed, const dfx_parts *of, const dfx_sink *sink) {
    const dfx_tensors *sets[DFX_N_COMPONENTS];
    dfx_program programs[DFX_PACK_PROGRAMS] = {0};
    size_t n;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (!(sets[i] = dfx_packed_tensors(packed, dfx_component_places[i].folder)))
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: there are no weights of the %s; wanted a packed FLUX pipeline",
                            dfx_packed_path(packed), dfx_component_places[i].folder);
    DFX_TRY(dfx_pack_build(&of->configs, sets, sink, programs, &n));
    dfx_status status = DFX_OK;
    for (size_t p = 0; p < n && status == DFX_OK; p++)
        for (uint32_t i = 0; i < programs[p].n_pages && status == DFX_OK; i++)
            status = dfx_packed_check_page(packed, &programs[p], i, sink);
    for (size_t p = 0; p < n; p++)
        dfx_program_fini(&programs[p]);
    return status;
}

static dfx_status check_packed(const char *path, const dfx_sink *sink, dfx_parts *out) {
    dfx_packed *packed;
    DFX_TRY(dfx_packed_open(path, sink, &packed));
    dfx_bundle bundle = dfx_packed_bundle(packed);
    dfx_status status = dfx_parts_load(&bundle, sink, out);
    if (status == DFX_OK) {
        status = check_pages(packed, out, sink);
        if (status != DFX_OK)
            dfx_parts_fini(out);
    }
    dfx_packed_close(packed);
    return status;
}

dfx_status dfx_model_check(const dfx_model_paths *paths, const dfx_sink *sink, dfx_parts *out) {
    bool is;
    DFX_TRY(dfx_checkpoint_ask(paths, sink, &is));
    return is ? check_source(paths, sink, out) : check_packed(paths->model, sink, out);
}

/* The user's patterns, and those of the components that an automatic format leaves alone. */
static dfx_status add_patterns(const parts *p, const dfx_pack_options *options,
                               const dfx_sink *sink, const char ***out, size_t *n) {
    size_t n_own;
    const char *const *own = dfx_checkpoint_keep(p->checkpoint, &n_own);
    DFX_TRY(dfx_new_array(sink, options->n_keep + n_own, "pack", out));
    for (size_t i = 0; i < options->n_keep; i++)
        (*out)[i] = options->keep[i];
    for (size_t i = 0; i < n_own; i++)
        (*out)[options->n_keep + i] = own[i];
    *n = options->n_keep + n_own;
    return DFX_OK;
}

static dfx_status write_parts(const parts *p, const dfx_pack_options *options, const char *out_path,
                              const dfx_sink *sink, dfx_pack_report *report) {
    const dfx_program *programs[DFX_PACK_PROGRAMS];
    const char *components[DFX_PACK_PROGRAMS], **keep;
    dfx_pack_options o = *options;
    for (int i = 0; i < DFX_PACK_PROGRAMS; i++) {
        programs[i] = &p->programs[i];
        components[i] = dfx_component_places[dfx_pack_component_of[i]].folder;
    }
    dfx_pack_source source = {.programs = programs,
                              .components = components,
                              .n_programs = p->n_programs,
                              .bundle = dfx_checkpoint_bundle(p->checkpoint),
                              .files = p->files,
                              .n_files = p->n_files,
                              .read = dfx_checkpoint_read,
                              .read_user = p->checkpoint};
    if (!o.source)
        o.source = source.bundle->name;
    o.quant = dfx_checkpoint_quant(p->checkpoint);
    DFX_TRY(add_patterns(p, options, sink, &keep, &o.n_keep));
    o.keep = keep;
    dfx_status status = dfx_pack_write(&source, &o, out_path, sink, report);
    dfx_free(keep);
    return status;
}

static void remember_tokenizers(const char *given, const dfx_sink *sink) {
    dfx_tokenizer_files files;
    if (dfx_tokenizer_files_find(given, sink, &files) == DFX_OK)
        dfx_tokenizer_files_remember(&files, sink);
    dfx_tokenizer_files_close(&files);
}

dfx_status dfx_model_pack(const dfx_model_paths *paths, bool automatic,
                          const dfx_pack_options *options, const char *out_path,
                          const dfx_sink *sink, dfx_pack_report *report) {
    dfx_checkpoint_options from = {
        .paths = *paths, .quant = options->quant, .automatic = automatic};
    parts p = {0};
    dfx_status status = open_parts(&p, &from, sink);
    if (status == DFX_OK && out_path)
        dfx_info(sink, "packing %s into %s", paths->model, out_path);
    if (status == DFX_OK)
        status = write_parts(&p, options, out_path, sink, report);
    if (status == DFX_OK && out_path && paths->tokenizer)
        remember_tokenizers(paths->tokenizer, sink);
    close_parts(&p);
    return status;
}
