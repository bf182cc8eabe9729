/* Codes of a packed model against their source: one sum for each tensor, added up by kind and by page. Part of
 * inspect_packed.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/pool.h"
#include "offload/packed.h"
#include "quant/q_error.h"
#include "tools/inspect_packed.h"

enum { RUN_BYTES = 2 << 20, NAME_BYTES = 512 };

/* One line of the result. */
typedef struct sum {
    char name[NAME_BYTES];
    uint64_t n_tensors;
    dfx_q_error error;
} sum;

typedef struct sums {
    sum *list; /* owned */
    size_t n, cap;
} sums;

/* A tensor of codes, cut into runs of rows. */
typedef struct run {
    const dfx_tensors *packed, *source;
    const dfx_tensor *codes, *from;
    const float *scales;
    dfx_qformat format;
    int64_t rows_a_run;
    dfx_q_error
        *errors; /* of each run; added up in order, so that the result does not depend on threads */
    uint8_t *scratch; /* [n_threads][row pairs] */
    size_t scratch_bytes;
    const dfx_sink *sink;
    _Atomic int status;
} run;

static void measure_run(void *ctx, int64_t index, int worker) {
    run *r = ctx;
    int64_t row = index * r->rows_a_run, cols = r->codes->shape[1];
    int64_t n = r->codes->shape[0] - row < r->rows_a_run ? r->codes->shape[0] - row : r->rows_a_run;
    size_t code_row = (size_t)cols, from_row = dfx_dtype_size(r->from->dtype, (size_t)cols);
    uint8_t *codes = r->scratch + (size_t)worker * r->scratch_bytes;
    uint8_t *from = codes + (size_t)r->rows_a_run * code_row;
    dfx_status status = dfx_tensors_read_part(r->packed, r->codes, (size_t)row * code_row,
                                              (size_t)n * code_row, r->sink, codes);
    if (status == DFX_OK)
        status = dfx_tensors_read_part(r->source, r->from, (size_t)row * from_row,
                                       (size_t)n * from_row, r->sink, from);
    dfx_q_rows rows = {.name = r->codes->name,
                       .dtype = r->from->dtype,
                       .src = from,
                       .first_row = row,
                       .n_rows = n,
                       .cols = cols};
    if (status == DFX_OK &&
        !dfx_q_error_rows(&r->errors[index], &rows, r->format, codes, r->scales + row))
        status = dfx_fail(r->sink, DFX_E_FORMAT, "%s of the source has type %s and is no number",
                          r->from->name, dfx_dtype_name(r->from->dtype));
    if (status != DFX_OK)
        r->status = status;
}

static dfx_status measure(run *r, dfx_pool *pool, const dfx_tensor *scale, dfx_q_error *out) {
    size_t cols = (size_t)r->codes->shape[1],
           pair_bytes = cols + dfx_dtype_size(r->from->dtype, cols);
    dfx_status status;
    float *scales = NULL;
    r->rows_a_run = pair_bytes < RUN_BYTES ? (int64_t)(RUN_BYTES / pair_bytes) : 1;
    r->scratch_bytes = (size_t)r->rows_a_run * pair_bytes;
    int64_t n_runs = (r->codes->shape[0] + r->rows_a_run - 1) / r->rows_a_run;
    DFX_TRY_OUT(status, dfx_new_array(r->sink, scale->n_elements, "inspect", &scales));
    DFX_TRY_OUT(status, dfx_tensors_read_f32(r->packed, scale, r->sink, scales));
    DFX_TRY_OUT(status, dfx_new_array(r->sink, (size_t)n_runs, "inspect", &r->errors));
    DFX_TRY_OUT(status, dfx_alloc_array(r->sink, (size_t)dfx_pool_n_threads(pool), r->scratch_bytes,
                                        "inspect", (void **)&r->scratch));
    r->scales = scales;
    DFX_TRY_OUT(status, dfx_pool_run(pool, n_runs, measure_run, r));
    status = (dfx_status)r->status;
    for (int64_t i = 0; i < n_runs; i++)
        dfx_q_error_add(out, &r->errors[i]);
out:
    dfx_free(r->scratch);
    dfx_free(r->errors);
    dfx_free(scales);
    return status;
}

/* ---- sums ---- */

static dfx_status add_sum(sums *s, const char *name, const dfx_q_error *error,
                          const dfx_sink *sink) {
    size_t i = 0;
    while (i < s->n && strcmp(s->list[i].name, name) != 0)
        i++;
    if (i == s->n) {
        DFX_TRY(dfx_grow(sink, s->n + 1, sizeof(*s->list), "inspect", &s->cap, (void **)&s->list));
        snprintf(s->list[s->n++].name, NAME_BYTES, "%s", name);
    }
    s->list[i].n_tensors++;
    dfx_q_error_add(&s->list[i].error, error);
    return DFX_OK;
}

/* "transformer.transformer_blocks.3.attn.to_q.weight" to "transformer.transformer_blocks.*.attn.to_q". */
static void kind_name(const char *component, const char *name, char out[NAME_BYTES]) {
    char full[NAME_BYTES];
    snprintf(full, sizeof(full), "%s.%s", component, name);
    size_t used = 0;
    for (char *rest = full, *part; (part = strsep(&rest, ".")) != NULL;) {
        bool number = *part && part[strspn(part, "0123456789")] == 0;
        if (!rest && strcmp(part, "weight") == 0)
            break;
        int n = snprintf(out + used, NAME_BYTES - used, "%s%s", used ? "." : "",
                         number && used ? "*" : part);
        used += (size_t)n < NAME_BYTES - used ? (size_t)n : NAME_BYTES - used - 1;
    }
}

static json_t *sum_json(const sum *s) {
    double snr = dfx_q_error_snr_db(&s->error);
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o}", "name", s->name, "tensors",
                     (json_int_t)s->n_tensors, "rows", (json_int_t)s->error.n_rows, "outlier_rows",
                     (json_int_t)s->error.n_outlier_rows, "relative",
                     dfx_q_error_relative(&s->error), "snr_db",
                     isfinite(snr) ? json_real(snr) : json_null());
}

static json_t *sums_json(const sums *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(list, sum_json(&s->list[i]));
    return list;
}

/* ---- the file ---- */

typedef struct comparison {
    const dfx_packed *packed;
    const char *folder; /* the source */
    const dfx_sink *sink;
    dfx_pool *pool;
    sums kinds, pages;
    sum total;
} comparison;

static const dfx_packed_page *page_of(const dfx_packed *packed, const dfx_tensor *t) {
    for (size_t i = 0; i < dfx_packed_n_pages(packed); i++) {
        const dfx_packed_page *page = dfx_packed_page_at(packed, i);
        if (t->off >= page->off && t->off < page->off + page->stored_bytes)
            return page;
    }
    return NULL;
}

static dfx_status compare_tensor(comparison *c, const char *component, const dfx_tensors *set,
                                 const dfx_tensors *source, const dfx_tensor *codes,
                                 const dfx_tensor *scale) {
    run r = {.packed = set,
             .source = source,
             .codes = codes,
             .from = dfx_tensors_find(source, codes->name),
             .format = codes->dtype == DFX_DTYPE_I8 ? DFX_Q_INT8 : DFX_Q_FP8,
             .sink = c->sink};
    const dfx_packed_page *page = page_of(c->packed, codes);
    dfx_q_error error = {0};
    char kind[NAME_BYTES];
    bool fits = r.from && codes->rank == 2 && r.from->rank == 2 &&
                memcmp(r.from->shape, codes->shape, 2 * sizeof(*codes->shape)) == 0 &&
                scale->n_elements == (uint64_t)codes->shape[0] &&
                dfx_dtype_is_numeric(r.from->dtype) && codes->n_elements > 0;
    if (!fits)
        return dfx_fail(
            c->sink, DFX_E_FORMAT,
            "%s/%s: tensor %s is not there in the shape of the packed model; wanted the "
            "folder that it was packed from",
            c->folder, component, codes->name);
    DFX_TRY(measure(&r, c->pool, scale, &error));
    kind_name(component, codes->name, kind);
    DFX_TRY(add_sum(&c->kinds, kind, &error, c->sink));
    DFX_TRY(add_sum(&c->pages, page ? page->name : "outside of pages", &error, c->sink));
    c->total.n_tensors++;
    dfx_q_error_add(&c->total.error, &error);
    return DFX_OK;
}

static dfx_status compare_component(comparison *c, const char *component, const char *stem) {
    const dfx_tensors *set = dfx_packed_tensors(c->packed, component);
    char dir[DFX_PATH_BYTES], name[NAME_BYTES];
    dfx_tensors *source;
    if (!set)
        return DFX_OK;
    DFX_TRY(dfx_path_join(c->sink, c->folder, component, dir));
    DFX_TRY(dfx_tensors_open_dir(dir, stem, c->sink, &source));
    dfx_status status = DFX_OK;
    for (size_t i = 0; i < dfx_tensors_count(set) && status == DFX_OK; i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        snprintf(name, sizeof(name), "%s_scale", t->name);
        const dfx_tensor *scale = dfx_tensors_find(set, name);
        bool coded = t->dtype == DFX_DTYPE_I8 || t->dtype == DFX_DTYPE_F8_E4M3;
        if (coded && scale && t->file_idx != DFX_TENSOR_NO_FILE)
            status = compare_tensor(c, component, set, source, t, scale);
    }
    dfx_tensors_close(source);
    return status;
}

static dfx_status compare(comparison *c) {
    static const char *const parts[][2] = {{"transformer", "diffusion_pytorch_model"},
                                           {"text_encoder", "model"},
                                           {"text_encoder_2", "model"},
                                           {"vae", "diffusion_pytorch_model"}};
    DFX_TRY(dfx_pool_open(c->sink, 0, &c->pool));
    for (size_t i = 0; i < DFX_COUNT(parts); i++)
        DFX_TRY(compare_component(c, parts[i][0], parts[i][1]));
    return DFX_OK;
}

static json_t *comparison_json(const comparison *c) {
    json_int_t n_skipped = 0;
    for (size_t i = 0; i < dfx_packed_n_pages(c->packed); i++)
        n_skipped += dfx_packed_page_at(c->packed, i)->codec != DFX_CODEC_RAW;
    return json_pack("{s:o, s:o, s:o, s:I}", "total", sum_json(&c->total), "kinds",
                     sums_json(&c->kinds), "pages", sums_json(&c->pages), "skipped_pages",
                     n_skipped);
}

dfx_status dfx_inspect_packed_error(const char *path, const char *source, const dfx_sink *sink,
                                    json_t *file) {
    dfx_packed *packed;
    DFX_TRY(dfx_packed_open(path, sink, &packed));
    comparison c = {.packed = packed, .folder = source, .sink = sink, .total.name = "all"};
    dfx_status status = compare(&c);
    if (status == DFX_OK && json_object_set_new(file, "error", comparison_json(&c)) != 0)
        status = dfx_fail(sink, DFX_E_NOFIT, "%s: no memory to describe it", path);
    dfx_pool_close(c.pool);
    dfx_free(c.kinds.list);
    dfx_free(c.pages.list);
    dfx_packed_close(packed);
    return status;
}
