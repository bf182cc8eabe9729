#include "models/lora_block.h"

#include <stdatomic.h>
#include <string.h>

typedef struct fill {
    const dfx_program *program;
    dfx_component component;
    const dfx_lora_weight *loras;
    size_t n_loras;
    dfx_dtype dtype;
    const dfx_sink *sink;
    unsigned char *block;
    _Atomic int status; /* of the first place that failed */
} fill;

/* Factors of one LoRA into ranks [at, at + part->rank) of a place. */
static dfx_status write_part(const fill *f, const dfx_adapter *place, const dfx_lora_weight *lora,
                             const dfx_lora_part *part, int64_t at) {
    const dfx_buf *a = &f->program->bufs[place->a_buf], *u = &f->program->bufs[place->u_buf];
    size_t n_down = (size_t)(part->rank * part->k), n_up = (size_t)(part->n * part->rank),
           value = dfx_dtype_bytes(f->dtype);
    float *down, *up, scale = lora->strength * part->scale;
    if (at + part->rank > f->program->adapter_rank)
        return dfx_fail(f->sink, DFX_E_IO, "%s: the LoRA's file has changed; run it again",
                        part->module);
    DFX_TRY(dfx_new_array(f->sink, n_down + n_up, "lora factors", &down));
    up = down + n_down;
    dfx_status status = dfx_lora_factors(lora->lora, part, f->sink, down, up);
    if (status == DFX_OK) {
        size_t a_row = (size_t)(place->a_row + at) * (size_t)a->cols;
        dfx_from_f32(f->dtype, down, f->block + a->off + a_row * value, n_down);
        for (size_t i = 0; i < n_up; i++)
            up[i] *= scale;
        for (int64_t n = 0; n < part->n; n++)
            dfx_from_f32(f->dtype, up + n * part->rank,
                         f->block + u->off + (size_t)(n * u->cols + at) * value,
                         (size_t)part->rank);
    }
    dfx_free(down);
    return status;
}

/* Adds nothing. */
static void clear_place(const fill *f, const dfx_adapter *place) {
    const dfx_buf *a = &f->program->bufs[place->a_buf], *u = &f->program->bufs[place->u_buf];
    size_t a_row_bytes = (size_t)a->cols * dfx_dtype_bytes(f->dtype);
    memset(f->block + a->off + (size_t)place->a_row * a_row_bytes, 0,
           (size_t)f->program->adapter_rank * a_row_bytes);
    memset(f->block + u->off, 0, u->bytes);
}

static void fill_place(void *ctx, int64_t index, int worker) {
    fill *f = ctx;
    const dfx_adapter *place = &f->program->adapters[index];
    dfx_status status = DFX_OK;
    int64_t at = 0;
    int ok = DFX_OK;
    (void)worker;
    clear_place(f, place);
    for (size_t i = 0; i < f->n_loras && status == DFX_OK; i++) {
        const dfx_lora_part *part = dfx_lora_find(f->loras[i].lora, f->component, place->layer);
        if (!part)
            continue;
        status = write_part(f, place, &f->loras[i], part, at);
        at += part->rank;
    }
    if (status != DFX_OK)
        atomic_compare_exchange_strong(&f->status, &ok, status);
}

dfx_status dfx_lora_block_fill(const dfx_program *program, dfx_component component,
                               const dfx_lora_weight *loras, size_t n_loras, dfx_dtype dtype,
                               dfx_pool *pool, const dfx_sink *sink, void *block) {
    fill f = {program, component, loras, n_loras, dtype, sink, block, DFX_OK};
    DFX_TRY(dfx_pool_run(pool, program->n_adapters, fill_place, &f));
    return (dfx_status)atomic_load(&f.status);
}
