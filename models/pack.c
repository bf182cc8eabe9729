#include "models/pack.h"

enum { CLIP_TABLE, T5_TABLE, CLIP, T5, COND, STEP, DECODE, ENCODE };

const dfx_component dfx_pack_component_of[DFX_PACK_PROGRAMS] = {
    [CLIP_TABLE] = DFX_CLIP,  [T5_TABLE] = DFX_T5,      [CLIP] = DFX_CLIP,  [T5] = DFX_T5,
    [COND] = DFX_TRANSFORMER, [STEP] = DFX_TRANSFORMER, [DECODE] = DFX_VAE, [ENCODE] = DFX_VAE,
};

typedef struct parts {
    dfx_tensors *sets[DFX_N_COMPONENTS]; /* owned */
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
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        dfx_tensors_close(p->sets[i]);
    dfx_free(p->files);
}

static dfx_status open_parts(parts *p, const dfx_bundle *bundle, const dfx_sink *sink) {
    dfx_configs configs;
    if (!dfx_file_is_dir(bundle->folder))
        return dfx_fail(sink, dfx_file_exists(bundle->folder) ? DFX_E_FORMAT : DFX_E_IO,
                        "%s: wanted a diffusers folder with a model_index.json, found %s",
                        bundle->folder,
                        dfx_file_exists(bundle->folder) ? "a file" : "nothing there");
    DFX_TRY(dfx_configs_load(bundle, sink, &configs));
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        char dir[DFX_PATH_BYTES];
        DFX_TRY(dfx_path_join(sink, bundle->folder, dfx_component_places[i].folder, dir));
        DFX_TRY(dfx_tensors_open_dir(dir, dfx_component_places[i].stem, sink, &p->sets[i]));
    }
    DFX_TRY(dfx_pack_build(&configs, (const dfx_tensors *const *)p->sets, sink, p->programs,
                           &p->n_programs));
    DFX_TRY(dfx_new_array(sink, dfx_n_model_files, "pack", &p->files));
    for (size_t i = 0; i < dfx_n_model_files; i++)
        if (dfx_bundle_has(bundle, dfx_model_files[i]))
            p->files[p->n_files++] = dfx_model_files[i];
    return DFX_OK;
}

static dfx_status check_folder(const char *folder, const dfx_sink *sink, dfx_parts *out) {
    dfx_bundle bundle = {.folder = folder, .name = folder};
    parts p = {0};
    dfx_status status = open_parts(&p, &bundle, sink);
    if (status == DFX_OK)
        status = dfx_parts_load(&bundle, sink, out);
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

dfx_status dfx_model_check(const char *path, const dfx_sink *sink, dfx_parts *out) {
    return dfx_file_is_dir(path) ? check_folder(path, sink, out) : check_packed(path, sink, out);
}

static dfx_status write_parts(const parts *p, const dfx_bundle *bundle,
                              const dfx_pack_options *options, const char *out_path,
                              const dfx_sink *sink, dfx_pack_report *report) {
    const dfx_program *programs[DFX_PACK_PROGRAMS];
    const char *components[DFX_PACK_PROGRAMS];
    dfx_pack_options o = *options;
    for (int i = 0; i < DFX_PACK_PROGRAMS; i++) {
        programs[i] = &p->programs[i];
        components[i] = dfx_component_places[dfx_pack_component_of[i]].folder;
    }
    dfx_pack_source source = {.programs = programs,
                              .components = components,
                              .n_programs = p->n_programs,
                              .bundle = bundle,
                              .files = p->files,
                              .n_files = p->n_files};
    if (!o.source)
        o.source = bundle->folder;
    return dfx_pack_write(&source, &o, out_path, sink, report);
}

dfx_status dfx_model_pack(const char *folder, const dfx_pack_options *options, const char *out_path,
                          const dfx_sink *sink, dfx_pack_report *report) {
    dfx_bundle bundle = {.folder = folder, .name = folder};
    parts p = {0};
    dfx_status status = open_parts(&p, &bundle, sink);
    if (status == DFX_OK)
        status = write_parts(&p, &bundle, options, out_path, sink, report);
    close_parts(&p);
    return status;
}
