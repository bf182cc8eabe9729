#include "models/loras.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "models/lora_block.h"
#include "models/model.h"

/* Programs whose linear layers have places, and whose layers they are. Some are empty (models/picture.h). */
static const struct {
    dfx_program_id program;
    dfx_component component;
} PLACES[] = {{DFX_PROGRAM_CLIP, DFX_CLIP},        {DFX_PROGRAM_T5, DFX_T5},
              {DFX_PROGRAM_COND, DFX_TRANSFORMER}, {DFX_PROGRAM_STEP, DFX_TRANSFORMER},
              {DFX_PROGRAM_REST, DFX_TRANSFORMER}, {DFX_PROGRAM_REUSED, DFX_TRANSFORMER}};

/* Zeros where there is no file. */
static void stamp_of(const char *path, uint64_t stamp[3]) {
    struct stat st;
    memset(stamp, 0, 3 * sizeof(*stamp));
    if (stat(path, &st) != 0)
        return;
    stamp[0] = (uint64_t)st.st_size;
    stamp[1] = (uint64_t)st.st_mtim.tv_sec;
    stamp[2] = (uint64_t)st.st_mtim.tv_nsec;
}

static void close_file(dfx_lora_file *file) {
    size_t n = file->rescale ? dfx_lora_n_parts(file->lora) : 0;
    for (size_t i = 0; i < n; i++)
        dfx_free(file->rescale[i]);
    dfx_free(file->rescale);
    dfx_lora_close(file->lora);
    dfx_free(file->path);
    *file = (dfx_lora_file){0};
}

void dfx_loras_fini(dfx_loras *l) {
    for (size_t i = 0; i < l->n_files; i++)
        close_file(&l->files[i]);
    dfx_free(l->files);
    dfx_pool_close(l->pool);
    *l = (dfx_loras){0};
}

/* A tensor of the packed model that can be read by itself. */
static bool is_there(const dfx_model *m, const dfx_lora_part *part, const char *suffix) {
    char name[256];
    const dfx_tensors *set =
        dfx_packed_tensors(m->packed, dfx_component_places[part->component].folder);
    snprintf(name, sizeof(name), "%s%s", part->layer, suffix);
    const dfx_tensor *t = set ? dfx_tensors_find(set, name) : NULL;
    return t && t->file_idx != DFX_TENSOR_NO_FILE;
}

/* A DoRA makes rows longer or shorter, which is for the scales of quantized weights to do. */
static dfx_status check_kinds(const dfx_model *m, const char *path, const dfx_lora *lora) {
    for (size_t i = 0; i < dfx_lora_n_parts(lora); i++) {
        const dfx_lora_part *part = dfx_lora_part_at(lora, i);
        if (part->magnitude == DFX_LORA_MAGNITUDE_COLUMNS)
            return dfx_fail(&m->sink, DFX_E_FORMAT,
                            "%s: %s is a DoRA of columns; only those of rows can be used", path,
                            part->module);
        if (part->magnitude &&
            !(is_there(m, part, ".weight") && is_there(m, part, ".weight_scale")))
            return dfx_fail(&m->sink, DFX_E_FORMAT,
                            "%s: %s is a DoRA, which rescales the rows of the weight %s, and that "
                            "has no scales of its own, or is compressed; pack the model with "
                            "--quant int8 or fp8, without --compress",
                            path, part->module, part->layer);
    }
    return DFX_OK;
}

static dfx_status open_file(dfx_model *m, const char *path, const uint64_t stamp[3],
                            dfx_lora_file *out) {
    dfx_lora_file file = {.path = dfx_strdup(path, "lora")};
    memcpy(file.stamp, stamp, sizeof(file.stamp));
    dfx_status status = file.path
                            ? dfx_lora_open(path, &m->parts.configs, &m->sink, &file.lora)
                            : dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", path);
    if (status == DFX_OK)
        status = check_kinds(m, path, file.lora);
    if (status == DFX_OK && dfx_lora_facts_of(file.lora)->n_dora > 0)
        status = dfx_new_array(&m->sink, dfx_lora_n_parts(file.lora), "DoRA", &file.rescale);
    if (status != DFX_OK) {
        close_file(&file);
        return status;
    }
    *out = file;
    return DFX_OK;
}

/* Opened before, unless the file is another by now; then both stay open, since the earlier one may be in use. *out: a copy, of
 * which everything stays the model's. */
static dfx_status find_file(dfx_model *m, const char *path, dfx_lora_file *out) {
    dfx_loras *l = &m->loras;
    uint64_t stamp[3];
    stamp_of(path, stamp);
    for (size_t i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].path, path) == 0 &&
            memcmp(l->files[i].stamp, stamp, sizeof(stamp)) == 0) {
            *out = l->files[i];
            return DFX_OK;
        }
    DFX_TRY(dfx_grow(&m->sink, l->n_files + 1, sizeof(*l->files), "loras", &l->cap_files,
                     (void **)&l->files));
    DFX_TRY(open_file(m, path, stamp, &l->files[l->n_files]));
    *out = l->files[l->n_files++];
    return DFX_OK;
}

/* The rank that a layer's place must have for all of them, over all layers that have places. `layer`: one that needs it. */
static int64_t rank_of_all(const dfx_lora *const *loras, size_t n, bool with_t5,
                           const char **layer) {
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < dfx_lora_n_parts(loras[i]); p++) {
            const dfx_lora_part *part = dfx_lora_part_at(loras[i], p);
            int64_t rank = 0;
            for (size_t k = 0; (with_t5 || part->component != DFX_T5) && k < n; k++) {
                const dfx_lora_part *other = dfx_lora_find(loras[k], part->component, part->layer);
                rank += other ? other->rank : 0;
            }
            if (rank > most) {
                most = rank;
                *layer = part->layer;
            }
        }
    return most;
}

/* The rank of the list that needs most; lists end with NULL, the last one without. */
static int64_t rank_of_lists(const dfx_loras *l, const dfx_lora *const *loras, int n) {
    const char *layer;
    int64_t most = 0;
    for (int first = 0, end = 0; first < n; first = ++end) {
        while (end < n && loras[end])
            end++;
        int64_t rank = rank_of_all(loras + first, (size_t)(end - first), l->has_t5, &layer);
        most = rank > most ? rank : most;
    }
    return most;
}

static dfx_status open_named(dfx_model *m, const dfx_open_options *o, int64_t *rank) {
    const dfx_lora **loras;
    DFX_TRY(dfx_new_array(&m->sink, (size_t)o->n_loras, "loras", &loras));
    dfx_status status = DFX_OK;
    for (int i = 0; i < o->n_loras && status == DFX_OK; i++) {
        dfx_lora_file file;
        if (!o->loras[i] || (status = find_file(m, o->loras[i], &file)) != DFX_OK)
            continue;
        loras[i] = file.lora;
        m->loras.has_t5 |= dfx_lora_facts_of(file.lora)->n_parts_of[DFX_T5] > 0;
        m->loras.has_dora |= dfx_lora_facts_of(file.lora)->n_dora > 0;
    }
    if (status == DFX_OK)
        *rank = rank_of_lists(&m->loras, loras, o->n_loras);
    dfx_free(loras);
    return status;
}

dfx_status dfx_loras_room(int64_t rank, int64_t n, const dfx_sink *sink, int64_t *room) {
    if (rank < 0 || rank > DFX_ADAPTER_RANK_MAX || n < 0 || n > DFX_ADAPTER_RANK_MAX)
        return dfx_fail(sink, DFX_E_USAGE,
                        "LoRA: wanted a highest rank and a number from 0 to %d, found %" PRId64
                        " and %" PRId64,
                        DFX_ADAPTER_RANK_MAX, rank, n);
    int64_t all = rank * (n ? n : 1);
    if (all > DFX_ADAPTER_RANK_MAX)
        return dfx_fail(sink, DFX_E_USAGE,
                        "LoRA: there is room for ranks of %d in all beside a layer, found %" PRId64
                        "; use fewer at a time, or of lower rank",
                        DFX_ADAPTER_RANK_MAX, all);
    *room = (int64_t)dfx_align_up((size_t)all, DFX_ADAPTER_GRAIN);
    return DFX_OK;
}

/* Of the files that are named, and of what is asked for beside them, the larger. */
dfx_status dfx_loras_reserve(dfx_model *m, const dfx_open_options *o) {
    int64_t named = 0, asked = 0;
    if (o->n_loras > 0)
        DFX_TRY(open_named(m, o, &named));
    DFX_TRY(dfx_loras_room(named, 1, &m->sink, &named));
    DFX_TRY(dfx_loras_room(o->lora_max_rank, o->lora_max, &m->sink, &asked));
    m->loras.rank = named > asked ? named : asked;
    return m->loras.rank ? dfx_pool_open(&m->sink, o->n_threads, &m->loras.pool) : DFX_OK;
}

static dfx_status check_dora(const dfx_model *m, const dfx_lora *lora) {
    if (dfx_lora_facts_of(lora)->n_dora == 0 || m->loras.has_dora || m->loras.rank == 0)
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_USAGE,
                    "a DoRA needs room of its own beside the weights: name its file when the model "
                    "is opened");
}

dfx_status dfx_loras_check(dfx_model *m, const dfx_request *r) {
    const char *layer = NULL;
    const dfx_lora **loras;
    size_t n = 0;
    if (r->n_loras == 0)
        return DFX_OK;
    DFX_TRY(dfx_new_array(&m->sink, (size_t)r->n_loras, "loras", &loras));
    dfx_status status = DFX_OK;
    for (int i = 0; i < r->n_loras && status == DFX_OK; i++) {
        dfx_lora_file file = {0};
        if (!isfinite(r->loras[i].strength))
            status = dfx_fail(&m->sink, DFX_E_USAGE, "%s: wanted a number as strength, found %g",
                              r->loras[i].path, (double)r->loras[i].strength);
        else
            status = find_file(m, r->loras[i].path, &file);
        if (status == DFX_OK && r->loras[i].strength != 0)
            loras[n++] = file.lora;
    }
    int64_t rank = status == DFX_OK ? rank_of_all(loras, n, m->loras.has_t5, &layer) : 0;
    for (size_t i = 0; status == DFX_OK && i < n; i++)
        status = check_dora(m, loras[i]);
    if (status == DFX_OK && rank > 0 && m->loras.rank == 0)
        status = dfx_fail(&m->sink, DFX_E_USAGE,
                          "%s: the model was opened without room for LoRAs; give --lora-max-rank",
                          r->loras[0].path);
    dfx_free(loras);
    if (status == DFX_OK && rank > m->loras.rank)
        status =
            dfx_fail(&m->sink, DFX_E_USAGE,
                     "LoRA: layer %s wants rank %" PRId64 " in all, and there is room for %" PRId64
                     "; give a higher --lora-max-rank or --lora-max",
                     layer, rank, m->loras.rank);
    return status;
}

/* ---- writing the adapter blocks ---- */

size_t dfx_loras_image_bytes(const dfx_program programs[DFX_N_PROGRAMS]) {
    size_t bytes = 0;
    for (size_t i = 0; i < DFX_COUNT(PLACES); i++)
        bytes += programs[PLACES[i].program].adapter_bytes;
    return bytes;
}

/* Where the host sees the device's memory, straight into it. */
static dfx_status write_blocks(dfx_model *m, const dfx_lora_weight *loras, size_t n) {
    dfx_session *ses = &m->session;
    unsigned char *image = ses->lora_image.ptr;
    for (size_t i = 0; i < DFX_COUNT(PLACES); i++) {
        dfx_program_id id = PLACES[i].program;
        const dfx_program *program = &ses->programs[id];
        void *block = ses->state.adapters[id];
        if (program->adapter_bytes == 0)
            continue;
        DFX_TRY(dfx_lora_block_fill(program, PLACES[i].component, loras, n, m->backend->act_dtype,
                                    m->loras.pool, &m->sink, image ? image : block));
        if (!image)
            continue;
        DFX_TRY(m->backend->vt->upload(m->backend, block, image, program->adapter_bytes));
        image += program->adapter_bytes;
    }
    return DFX_OK;
}

/* What acts, as a text: equal texts are equal blocks. */
static char *key_of(const dfx_model *m, const dfx_request *r) {
    size_t bytes = 1, used = 0;
    for (int i = 0; i < r->n_loras; i++)
        bytes += strlen(r->loras[i].path) + 96;
    char *key;
    if (dfx_new_array(&m->sink, bytes, "loras", &key) != DFX_OK)
        return NULL;
    for (int i = 0; i < r->n_loras; i++) {
        uint64_t stamp[3];
        if (r->loras[i].strength == 0)
            continue;
        stamp_of(r->loras[i].path, stamp);
        used += (size_t)snprintf(key + used, bytes - used,
                                 "%s:%a:%" PRIx64 ":%" PRIx64 ":%" PRIx64 "\n", r->loras[i].path,
                                 (double)r->loras[i].strength, stamp[0], stamp[1], stamp[2]);
    }
    return key;
}

/* Those that act, in loras[r->n_loras]. */
static dfx_status gather(dfx_model *m, const dfx_request *r, dfx_lora_weight *loras, size_t *n) {
    for (int i = 0; i < r->n_loras; i++) {
        if (r->loras[i].strength == 0)
            continue;
        dfx_lora_file file;
        DFX_TRY(find_file(m, r->loras[i].path, &file));
        loras[(*n)++] = (dfx_lora_weight){file.lora, r->loras[i].strength, file.rescale};
    }
    return DFX_OK;
}

static void warn_left_out(const dfx_model *m, const dfx_lora *lora) {
    size_t n = dfx_lora_facts_of(lora)->n_parts_of[DFX_T5];
    if (n > 0 && !m->loras.has_t5)
        dfx_warn(&m->sink,
                 "a LoRA changes %zu layers of T5, which has no room for it: they are left out; "
                 "name its file when the model is opened",
                 n);
}

/* Layers of the encoders, so that a text has other encodings. */
static bool changes_text(const dfx_model *m, const dfx_lora_weight *loras, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const dfx_lora_facts *facts = dfx_lora_facts_of(loras[i].lora);
        if (facts->n_parts_of[DFX_CLIP] > 0 || (m->loras.has_t5 && facts->n_parts_of[DFX_T5] > 0))
            return true;
    }
    return false;
}

/* What was computed with other adapters than will be there: conditioning always, encodings where an encoder had or will have some. */
static void forget(dfx_session *ses, bool will_change_text) {
    if (ses->loras_change_text || will_change_text) {
        dfx_free(ses->text_key);
        ses->text_key = NULL;
    }
    ses->loras_change_text = will_change_text;
    ses->cond_valid = false;
}

/* Reading and measuring weights takes a while. */
static void tell_dora(const dfx_model *m, const dfx_lora_weight *loras, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool known = loras[i].rescale == NULL;
        for (size_t k = 0; !known && k < dfx_lora_n_parts(loras[i].lora); k++)
            known = loras[i].rescale[k] != NULL;
        if (!known)
            dfx_info(&m->sink, "measuring the rows of the weights that a DoRA rescales, once");
    }
}

static dfx_status write_request(dfx_model *m, const dfx_request *r) {
    size_t n = 0;
    dfx_lora_weight *loras;
    DFX_TRY(dfx_new_array(&m->sink, (size_t)r->n_loras + 1, "loras", &loras));
    dfx_status status = gather(m, r, loras, &n);
    if (status == DFX_OK) {
        for (size_t i = 0; i < n; i++)
            warn_left_out(m, loras[i].lora);
        tell_dora(m, loras, n);
        forget(&m->session, changes_text(m, loras, n));
        status = write_blocks(m, loras, n);
    }
    dfx_free(loras);
    return status;
}

dfx_status dfx_loras_apply(dfx_model *m, const dfx_request *r) {
    dfx_session *ses = &m->session;
    if (m->loras.rank == 0)
        return DFX_OK;
    uint64_t begin_ns = dfx_clock_ns();
    char *key = key_of(m, r);
    if (!key)
        return DFX_E_NOFIT;
    if (ses->loras_key && strcmp(ses->loras_key, key) == 0) {
        dfx_free(key);
        return DFX_OK;
    }
    dfx_free(ses->loras_key);
    ses->loras_key = NULL;
    dfx_status status = write_request(m, r);
    if (status != DFX_OK) {
        dfx_free(key);
        return status;
    }
    ses->loras_key = key;
    dfx_debug(&m->sink, "adapters of rank %" PRId64 " written in %.1f ms", m->loras.rank,
              1e-6 * (double)(dfx_clock_ns() - begin_ns));
    dfx_model_span(m, "loras", begin_ns);
    return DFX_OK;
}
