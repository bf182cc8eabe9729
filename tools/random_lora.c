#include "tools/random_lora.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/rng.h"

enum { N_PROGRAMS = 2, DRAWN = 1 << 16, NAME_BYTES = 256, HEADER_ALIGN = 8 };

static const double UP = 1.0 / 64;

typedef struct maker {
    dfx_program programs[N_PROGRAMS]; /* owned; what is conditioned once, and the step */
    const dfx_sink *sink;
    int rank;
    float *drawn;     /* owned; [DRAWN] of torch.randn */
    uint16_t *part;   /* owned; [DRAWN] */
    json_t *header;   /* owned */
    uint64_t n_bytes; /* of the tensors so far */
} maker;

/* One factor, as the header and the data see it. */
typedef struct factor {
    const char *layer, *name;
    int64_t rows, cols;
    double scale;
} factor;

static uint64_t factor_bytes(const factor *f) {
    return (uint64_t)(f->rows * f->cols) * sizeof(uint16_t);
}

/* Calls `each` for both factors of every layer, in the order of the file. */
static dfx_status for_each(maker *m, dfx_status (*each)(maker *m, const factor *f, void *user),
                           void *user) {
    for (int p = 0; p < N_PROGRAMS; p++)
        for (uint32_t i = 0; i < m->programs[p].n_adapters; i++) {
            const dfx_adapter *a = &m->programs[p].adapters[i];
            factor down = {a->layer, "lora_A", m->rank, a->k, 1 / sqrt((double)a->k)};
            factor up = {a->layer, "lora_B", a->n, m->rank, UP};
            DFX_TRY(each(m, &down, user));
            DFX_TRY(each(m, &up, user));
        }
    return DFX_OK;
}

static dfx_status describe(maker *m, const factor *f, void *user) {
    char name[NAME_BYTES];
    uint64_t end = m->n_bytes + factor_bytes(f);
    (void)user;
    snprintf(name, sizeof(name), "transformer.%s.%s.weight", f->layer, f->name);
    json_t *entry =
        json_pack("{s:s, s:[I, I], s:[I, I]}", "dtype", "BF16", "shape", (json_int_t)f->rows,
                  (json_int_t)f->cols, "data_offsets", (json_int_t)m->n_bytes, (json_int_t)end);
    m->n_bytes = end;
    return json_object_set_new(m->header, name, entry) == 0
               ? DFX_OK
               : dfx_fail(m->sink, DFX_E_NOFIT, "out of memory writing the LoRA's header");
}

/* Runs of the table, each from another place. */
static dfx_status write_values(maker *m, const factor *f, void *user) {
    dfx_file_writer *writer = user;
    uint64_t left = factor_bytes(f) / sizeof(uint16_t), place = (uint64_t)f->rows * 7919;
    while (left > 0) {
        size_t from = (size_t)(place++ * 40503 % DRAWN), n = DRAWN - from;
        n = left < n ? (size_t)left : n;
        float scaled[256];
        for (size_t at = 0; at < n; at += DFX_COUNT(scaled)) {
            size_t some = n - at < DFX_COUNT(scaled) ? n - at : DFX_COUNT(scaled);
            for (size_t i = 0; i < some; i++)
                scaled[i] = (float)((double)m->drawn[from + at + i] * f->scale);
            dfx_from_f32(DFX_DTYPE_BF16, scaled, m->part + at, some);
        }
        DFX_TRY(dfx_file_write(writer, m->sink, m->part, n * sizeof(uint16_t)));
        left -= n;
    }
    return DFX_OK;
}

static dfx_status write_header(maker *m, dfx_file_writer *writer) {
    char *text = json_dumps(m->header, JSON_COMPACT);
    if (!text)
        return dfx_fail(m->sink, DFX_E_NOFIT, "out of memory writing the LoRA's header");
    size_t len = strlen(text), padded = dfx_align_up(len, HEADER_ALIGN);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    dfx_status status = dfx_file_write(writer, m->sink, prefix, sizeof(prefix));
    if (status == DFX_OK)
        status = dfx_file_write(writer, m->sink, text, len);
    if (status == DFX_OK)
        status = dfx_file_write(writer, m->sink, "       ", padded - len);
    free(text);
    return status;
}

static dfx_status write_file(maker *m, const char *path) {
    dfx_file_writer writer;
    DFX_TRY(for_each(m, describe, NULL));
    DFX_TRY(dfx_file_write_begin(path, m->sink, &writer));
    dfx_status status = write_header(m, &writer);
    if (status == DFX_OK)
        status = for_each(m, write_values, &writer);
    if (status == DFX_OK)
        return dfx_file_write_commit(&writer, m->sink);
    dfx_file_write_abort(&writer);
    return status;
}

dfx_status dfx_random_lora_write(const dfx_architecture *arch, int rank, uint64_t seed,
                                 const char *path, const dfx_sink *sink, uint64_t *out_bytes) {
    maker m = {.sink = sink, .rank = rank, .header = json_object()};
    dfx_build_env env = {
        .adapter_rank = DFX_ADAPTER_GRAIN, .act_dtype = DFX_DTYPE_BF16, .sink = sink};
    dfx_rng rng;
    dfx_status status;
    DFX_TRY_OUT(status, dfx_flux_build_cond(&arch->configs.flux, &env, 1, 1, &m.programs[0]));
    DFX_TRY_OUT(status, dfx_flux_build_step(&arch->configs.flux, &env, 1, 1, &m.programs[1]));
    DFX_TRY_OUT(status, dfx_new_array(sink, DRAWN, "random LoRA", &m.drawn));
    DFX_TRY_OUT(status, dfx_new_array(sink, DRAWN, "random LoRA", &m.part));
    dfx_rng_seed(&rng, seed);
    dfx_rng_normal(&rng, m.drawn, DRAWN);
    DFX_TRY_OUT(status, write_file(&m, path));
    *out_bytes = m.n_bytes;
out:
    json_decref(m.header);
    dfx_free(m.drawn);
    dfx_free(m.part);
    for (int p = 0; p < N_PROGRAMS; p++)
        dfx_program_fini(&m.programs[p]);
    return status;
}
