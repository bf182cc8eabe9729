#include "models/lora_block.h"

#include <stdatomic.h>
#include <string.h>

#include "models/lora_dora.h"

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

/* The scales of a place, in the block. */
static float *scales_of(const fill *f, const dfx_adapter *place) {
    return (float *)(void *)(f->block + f->program->bufs[place->scale_buf].off);
}

static const dfx_weight *page_scales(const fill *f, const dfx_adapter *place) {
    return &f->program->weights[place->scale_idx];
}

/* d of a part, kept for the next time. */
static dfx_status rescale_of(const fill *f, const dfx_adapter *place, const dfx_lora_weight *lora,
                             const dfx_lora_part *part, const float *down, const float *up,
                             const float **out) {
    float **kept = &lora->rescale[part - dfx_lora_part_at(lora->lora, 0)], *d, *scales;
    if (*kept) {
        *out = *kept;
        return DFX_OK;
    }
    const dfx_program *p = f->program;
    DFX_TRY(dfx_new_array(f->sink, 2 * (size_t)part->n, "DoRA", &d));
    scales = d + part->n;
    dfx_status status =
        dfx_tensors_read_f32(p->tensors, page_scales(f, place)->tensor, f->sink, scales);
    if (status == DFX_OK)
        status =
            dfx_dora_of_part(lora->lora, part, p->tensors, p->weights[place->weight_idx].tensor,
                             scales, down, up, f->sink, d);
    if (status != DFX_OK) {
        dfx_free(d);
        return status;
    }
    *out = *kept = d;
    return DFX_OK;
}

/* Rows of a place that a DoRA makes longer or shorter: its part of their scales, and `up`. */
static dfx_status rescale_rows(const fill *f, const dfx_adapter *place, const dfx_lora_weight *lora,
                               const dfx_lora_part *part, const float *down, float *up,
                               float *factors) {
    const float *d;
    if (!place->scale_buf)
        return dfx_fail(f->sink, DFX_E_INTERNAL, "%s: a DoRA on a layer without scales",
                        part->module);
    DFX_TRY(rescale_of(f, place, lora, part, down, up, &d));
    for (int64_t n = 0; n < part->n; n++) {
        factors[n] += lora->strength * (d[n] - 1);
        for (int64_t r = 0; r < part->rank; r++)
            up[n * part->rank + r] *= d[n];
    }
    return DFX_OK;
}

/* Factors of one LoRA into ranks [at, at + part->rank) of a place. factors [n]: of its rows. */
static dfx_status write_part(const fill *f, const dfx_adapter *place, const dfx_lora_weight *lora,
                             const dfx_lora_part *part, int64_t at, float *factors) {
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
    if (status == DFX_OK && part->magnitude)
        status = rescale_rows(f, place, lora, part, down, up, factors);
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

static dfx_status write_parts(const fill *f, const dfx_adapter *place, float *factors) {
    int64_t at = 0;
    for (size_t i = 0; i < f->n_loras; i++) {
        const dfx_lora_part *part = dfx_lora_find(f->loras[i].lora, f->component, place->layer);
        if (!part)
            continue;
        DFX_TRY(write_part(f, place, &f->loras[i], part, at, factors));
        at += part->rank;
    }
    return DFX_OK;
}

static dfx_status write_place(const fill *f, const dfx_adapter *place) {
    float *factors;
    clear_place(f, place);
    if (!place->scale_buf)
        return write_parts(f, place, NULL);
    DFX_TRY(dfx_new_array(f->sink, (size_t)place->n, "lora scales", &factors));
    for (int64_t n = 0; n < place->n; n++)
        factors[n] = 1;
    float *scales = scales_of(f, place);
    dfx_status status =
        dfx_tensors_read_f32(f->program->tensors, page_scales(f, place)->tensor, f->sink, scales);
    if (status == DFX_OK)
        status = write_parts(f, place, factors);
    for (int64_t n = 0; n < place->n; n++)
        scales[n] *= factors[n];
    dfx_free(factors);
    return status;
}

static void fill_place(void *ctx, int64_t index, int worker) {
    fill *f = ctx;
    dfx_status status = write_place(f, &f->program->adapters[index]);
    int ok = DFX_OK;
    (void)worker;
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
