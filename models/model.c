/* Opening a model: every part is checked against every other before a weight is read. What runs is a packed model; anything
 * else is packed once into the cache. */
#include "models/model.h"

#include <string.h>
#include <unistd.h>

#include "models/cache.h"
#include "models/early.h"
#include "models/machine.h"
#include "models/pack.h"

void dfx_model_env(const dfx_model *m, dfx_build_env env[DFX_N_COMPONENTS]) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        env[i] = (dfx_build_env){.tensors =
                                     dfx_packed_tensors(m->packed, dfx_component_places[i].folder),
                                 .weight_only = dfx_packed_quant(m->packed) == DFX_Q_INT8WO,
                                 .act_dtype = m->backend->act_dtype,
                                 .sink = &m->sink};
    env[DFX_CLIP].adapter_rank = env[DFX_TRANSFORMER].adapter_rank = m->loras.rank;
    env[DFX_T5].adapter_rank = m->loras.has_t5 ? m->loras.rank : 0;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        env[i].adapter_scales = m->loras.has_dora;
    env[DFX_TRANSFORMER].attention_codes = m->attention_codes;
}

/* What the machine has, less a tenth for others. */
static uint64_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages / 10 * 9 * (uint64_t)page_bytes
                                       : UINT64_MAX;
}

static dfx_status load_profile(dfx_model *m, const dfx_open_options *o) {
    return o->profile ? dfx_profile_load(o->profile, &m->sink, &m->profile)
                      : dfx_machine_profile(m->backend, &m->sink, &m->profile);
}

/* *device_bytes: what it has for us. On the CPU, device memory and pinned memory are both of the machine. */
static dfx_status open_cpu(dfx_model *m, const dfx_open_options *o, uint64_t *device_bytes) {
    DFX_TRY(
        dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = o->n_threads}, &m->sink, &m->backend));
    *device_bytes = machine_bytes();
    return load_profile(m, o);
}

#ifdef DFX_HAVE_CUDA

/* Of what is free without a budget: left to the display and to others. */
static const uint64_t MARGIN_BYTES = 512 << 20;

/* A device that is not there is no fault when nobody asked for it, nor is a cache that cannot be. */
static void say_as_detail(void *user, dfx_level level, const char *text) {
    const dfx_model *m = user;
    dfx_debug(&m->sink, "%s", text);
}

static dfx_status open_cuda(dfx_model *m, const dfx_open_options *o, const dfx_sink *sink,
                            uint64_t *device_bytes) {
    uint64_t free_bytes;
    char cache[DFX_PATH_BYTES];
    dfx_sink quiet = {.say = say_as_detail, .user = m};
    bool has_cache = dfx_cache_folder(&quiet, cache) == DFX_OK;
    dfx_cuda_options options = {.device = o->device_index,
                                .budget_bytes = o->vram_budget_bytes,
                                .cache_folder = has_cache ? cache : NULL};
    DFX_TRY(dfx_cuda_backend_open(&options, sink, &m->backend));
    m->backend->sink = &m->sink;
    DFX_TRY(dfx_cuda_free_bytes(m->backend, &free_bytes));
    DFX_TRY(load_profile(m, o));
    m->profile.context_bytes = 0; /* the backend measures it */
    m->profile.unified = false;   /* pages are copied, also where there is one memory */
    m->profile.device_bytes = free_bytes;
    *device_bytes = free_bytes > MARGIN_BYTES ? free_bytes - MARGIN_BYTES : free_bytes;
    return DFX_OK;
}

static dfx_status open_device(dfx_model *m, const dfx_open_options *o, uint64_t *device_bytes) {
    if (o->device == DFX_DEVICE_CUDA)
        return open_cuda(m, o, &m->sink, device_bytes);
    dfx_sink quiet = {.say = say_as_detail, .user = m};
    if (o->device == DFX_DEVICE_AUTO && open_cuda(m, o, &quiet, device_bytes) == DFX_OK)
        return DFX_OK;
    if (m->backend) /* opened, and failed at once */
        m->backend->vt->close(m->backend);
    m->backend = NULL;
    return open_cpu(m, o, device_bytes);
}

#else

static dfx_status open_device(dfx_model *m, const dfx_open_options *o, uint64_t *device_bytes) {
    if (o->device == DFX_DEVICE_CUDA)
        return dfx_fail(&m->sink, DFX_E_DEVICE,
                        "device cuda: this dfx-edge was built without its CUDA part; build it "
                        "where nvcc is, or use --device cpu");
    return open_cpu(m, o, device_bytes);
}

#endif

static dfx_status open_backend(dfx_model *m, const dfx_open_options *o) {
    uint64_t device_bytes = 0;
    if (o->device != DFX_DEVICE_CUDA && o->device_index != 0)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "device index: wanted 0, found %d; only devices of CUDA are counted",
                        o->device_index);
    DFX_TRY(open_device(m, o, &device_bytes));
    dfx_budget_init(&m->budget, o->vram_budget_bytes ? o->vram_budget_bytes : device_bytes);
    m->verify = o->verify_always ? DFX_VERIFY_ALWAYS : DFX_VERIFY_FIRST;
    return DFX_OK;
}

static dfx_status parse_offload(dfx_model *m, const char *text) {
    static const char *const names[] = {[DFX_OFFLOAD_AUTO] = "auto",
                                        [DFX_OFFLOAD_RAM] = "ram",
                                        [DFX_OFFLOAD_NVME] = "nvme",
                                        [DFX_OFFLOAD_NONE] = "none"};
    for (size_t i = 0; text && i < DFX_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) {
            m->offload = (dfx_offload)i;
            return DFX_OK;
        }
    return text ? dfx_fail(&m->sink, DFX_E_USAGE,
                           "offload: wanted auto, ram, nvme or none, found \"%s\"", text)
                : DFX_OK;
}

static dfx_status parse_attention_bits(dfx_model *m, int bits) {
    m->attention_codes = bits == 8;
    return bits == 0 || bits == 8 || bits == 16
               ? DFX_OK
               : dfx_fail(&m->sink, DFX_E_USAGE, "attention bits: wanted 16 or 8, found %d", bits);
}

/* "auto" is what suits the device: on the CPU the weights as they are. */
static dfx_status parse_quant(const dfx_model *m, const char *text, dfx_qformat *quant) {
    *quant = DFX_Q_STORED;
    if (!text || strcmp(text, "auto") == 0 || dfx_q_parse(text, quant))
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_USAGE,
                    "quant: wanted auto, bf16, int8, int8wo or fp8, found \"%s\"", text);
}

static dfx_model_paths paths_of(const dfx_open_options *o) {
    return (dfx_model_paths){.model = o->model_path,
                             .vae = o->vae_path,
                             .clip = o->clip_path,
                             .t5 = o->t5_path,
                             .tokenizer = o->tokenizer_path};
}

/* The packed file of what was given, made now if it is not in the cache. */
static dfx_status pack_once(dfx_model *m, const dfx_open_options *o,
                            const dfx_checkpoint_options *given, char path[DFX_PATH_BYTES]) {
    dfx_checkpoint_options from = *given;
    dfx_device_facts facts;
    dfx_pack_report report;
    m->backend->vt->describe(m->backend, &facts);
    from.without_fp8 = from.automatic && !facts.has_fp8;
    DFX_TRY(dfx_cache_path(&from, &m->sink, path));
    if (dfx_file_exists(path) && dfx_packed_is(path))
        return DFX_OK;
    dfx_pack_options options = {.n_threads = o->n_threads,
                                .progress = o->packing,
                                .cancelled = o->cancelled,
                                .user = o->user};
    return dfx_model_pack(&from, &options, path, &m->sink, &report);
}

static dfx_status open_packed(dfx_model *m, const dfx_open_options *o,
                              const dfx_checkpoint_options *from) {
    char packed[DFX_PATH_BYTES];
    const char *path = o->model_path;
    bool is_checkpoint;
    DFX_TRY(dfx_checkpoint_ask(&from->paths, &m->sink, &is_checkpoint));
    if (is_checkpoint) {
        DFX_TRY(pack_once(m, o, from, packed));
        path = packed;
    }
    if (m->packed && strcmp(m->path, path) == 0)
        return DFX_OK;
    dfx_early_drop(m);
    if (!(m->path = dfx_strdup(path, "model")))
        return dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", o->model_path);
    DFX_TRY(dfx_packed_open(m->path, &m->sink, &m->packed));
    return dfx_early_begin(m);
}

/* A file that was packed before has the format that it has. */
static dfx_status check_quant(const dfx_model *m, dfx_qformat wanted) {
    dfx_qformat found = dfx_packed_quant(m->packed);
    if (wanted == DFX_Q_STORED || wanted == found)
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_USAGE,
                    "quant: wanted %s, but %s is packed as %s already; pack it anew from what it "
                    "was made of, or leave quant out",
                    dfx_q_name(wanted), m->path, dfx_q_name(found));
}

/* A packed file may hold anything that can be packed. */
static dfx_status check_components(const dfx_model *m) {
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        if (!dfx_packed_tensors(m->packed, dfx_component_places[c].folder))
            return dfx_fail(&m->sink, DFX_E_FORMAT,
                            "%s: there are no weights of the %s; wanted a packed FLUX pipeline",
                            m->path, dfx_component_places[c].folder);
    return DFX_OK;
}

/* Rows are read from the file where they lie, so a table cannot be compressed; nor is it checked on the way, and reading
 * all of it for that would make every start later. */
static dfx_status check_table(const dfx_model *m, const dfx_program *table) {
    DFX_TRY(dfx_packed_check_page(m->packed, table, 0, &m->sink));
    int64_t page_idx = dfx_packed_page_of(m->packed, table, 0);
    const dfx_packed_page *page = dfx_packed_page_at(m->packed, (size_t)page_idx);
    if (page->codec != DFX_CODEC_RAW)
        return dfx_fail(&m->sink, DFX_E_FORMAT,
                        "%s: page %s is compressed, but its rows are looked up one by one; pack "
                        "the model again",
                        m->path, page->name);
    return m->verify == DFX_VERIFY_ALWAYS ? dfx_packed_verify_file(m->packed, page, &m->sink)
                                          : DFX_OK;
}

static dfx_status open_tables(dfx_model *m) {
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_model_env(m, env);
    DFX_TRY(dfx_clip_build_table(&m->parts.configs.clip, &env[DFX_CLIP], &m->clip_table));
    DFX_TRY(dfx_t5_build_table(&m->parts.configs.t5, &env[DFX_T5], &m->t5_table));
    DFX_TRY(check_table(m, &m->clip_table));
    return check_table(m, &m->t5_table);
}

static dfx_status open_parts(dfx_model *m) {
    dfx_bundle bundle = dfx_packed_bundle(m->packed);
    DFX_TRY(check_components(m));
    DFX_TRY(dfx_parts_load(&bundle, &m->sink, &m->parts));
    DFX_TRY(open_tables(m));
    if (!m->parts.defaults.name[0])
        return DFX_OK;
    dfx_free(m->name);
    m->name = dfx_strdup(m->parts.defaults.name, "model");
    return m->name ? DFX_OK : dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", m->path);
}

/* Build the programs once for the default shape: that checks every tensor. */
static dfx_status check_tensors(dfx_model *m) {
    dfx_program programs[DFX_N_PROGRAMS] = {0};
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_model_env(m, env);
    DFX_TRY(dfx_picture_build(&m->parts.configs, env, &m->parts.defaults.shape, programs));
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&programs[i]);
    return DFX_OK;
}

static dfx_status open_model(dfx_model *m, const dfx_open_options *o) {
    char name[DFX_MODEL_NAME_BYTES];
    dfx_checkpoint_options from = {.paths = paths_of(o)};
    dfx_cache_short_name(o->model_path, name, sizeof(name));
    if (!(m->name = dfx_strdup(name, "model")))
        return dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", o->model_path);
    DFX_TRY(parse_offload(m, o->offload));
    DFX_TRY(parse_attention_bits(m, o->attention_bits));
    DFX_TRY(parse_quant(m, o->quant, &from.quant));
    from.automatic = from.quant == DFX_Q_STORED;
    DFX_TRY(dfx_model_trace_open(m, o->trace_path));
    m->ram_budget_bytes = o->ram_budget_bytes ? o->ram_budget_bytes : machine_bytes();
    DFX_TRY(dfx_early_open(m, &from));
    DFX_TRY(open_backend(m, o));
    DFX_TRY(open_packed(m, o, &from));
    DFX_TRY(check_quant(m, from.quant));
    DFX_TRY(open_parts(m));
    DFX_TRY(dfx_loras_reserve(m, o));
    return check_tensors(m);
}

dfx_status dfx_model_open(const dfx_open_options *options, dfx_model **out) {
    dfx_model *m;
    DFX_TRY(dfx_new(&options->sink, "model", &m));
    m->sink = options->sink;
    dfx_status status = open_model(m, options);
    if (status != DFX_OK) {
        dfx_model_close(m);
        return status;
    }
    *out = m;
    return DFX_OK;
}

void dfx_model_close(dfx_model *m) {
    if (!m)
        return;
    dfx_session_end(m);
    dfx_tier_close(m->tier);
    if (m->backend)
        m->backend->vt->close(m->backend);
    dfx_model_trace_close(m);
    dfx_program_fini(&m->clip_table);
    dfx_program_fini(&m->t5_table);
    dfx_loras_fini(&m->loras);
    dfx_parts_fini(&m->parts);
    dfx_packed_close(m->packed);
    dfx_free(m->name);
    dfx_free(m->path);
    dfx_free(m);
}

/* Scales of codes are no parameters. */
static bool is_scale(const dfx_tensor *t) {
    static const char suffix[] = "_scale";
    size_t len = strlen(t->name), n = sizeof(suffix) - 1;
    return len >= n && strcmp(t->name + len - n, suffix) == 0;
}

void dfx_model_describe(const dfx_model *m, dfx_model_info *out) {
    const dfx_defaults *d = &m->parts.defaults;
    *out = (dfx_model_info){.name = m->name,
                            .kind = dfx_parts_kind(&m->parts),
                            .device = m->backend->name,
                            .path = m->path,
                            .has_guidance = m->parts.configs.flux.has_guidance,
                            .steps = d->shape.n_steps,
                            .width = (int)d->shape.width,
                            .height = (int)d->shape.height,
                            .text_length = (int)d->shape.n_text,
                            .max_text_length = d->max_text_length};
    for (int c = 0; c < DFX_N_COMPONENTS; c++) {
        const dfx_tensors *set = dfx_packed_tensors(m->packed, dfx_component_places[c].folder);
        out->weight_bytes += dfx_tensors_bytes(set);
        for (size_t i = 0; i < dfx_tensors_count(set); i++)
            out->n_parameters +=
                is_scale(dfx_tensors_at(set, i)) ? 0 : dfx_tensors_at(set, i)->n_elements;
    }
}

uint64_t dfx_host_peak_bytes(void) {
    return dfx_mem_peak_bytes();
}

void dfx_buffer_free(void *buffer) {
    dfx_free(buffer);
}

const char *dfx_version(void) {
    return DFX_VERSION;
}
