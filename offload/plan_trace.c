#include "offload/plan_trace.h"

#include <math.h>
#include <string.h>

static double mat_bytes(const dfx_mat *m) {
    return (double)m->rows * (double)m->cols * dfx_dtype_bits(m->dtype) / 8;
}

/* KV_CENTER looks at few of its rows. */
static double op_bytes(const dfx_op_call *call) {
    double bytes = 0;
    for (int i = 0; i < DFX_OP_SLOTS; i++) {
        bool sampled = call->kind == DFX_OP_KV_CENTER && (i == DFX_CENTER_K || i == DFX_CENTER_V);
        bytes +=
            mat_bytes(&call->m[i]) / (double)(sampled ? dfx_kv_sample_step(call->m[i].rows) : 1);
    }
    return bytes;
}

static double product_rate(const dfx_op_call *call, const dfx_profile *f) {
    const dfx_mat *scale = &call->m[DFX_LINEAR_SCALE];
    if (call->kind != DFX_OP_LINEAR || !scale->rows || call->p.weight_only)
        return f->bf16_flops;
    return call->m[DFX_LINEAR_W].dtype == DFX_DTYPE_I8 ? f->int8_flops
           : f->has_fp8                                ? f->fp8_flops
                                                       : f->bf16_flops;
}

/* How many times as fast as in 16 bits attention in 8 bits is. Hopper's kernel by itself gains 1.46. A step gained 7.6 ms of the
 * 23.3 that attention takes of it, after what its codes take (kernels/PERF.md): at its power limit the card has more for all
 * else, too. What the other kernel gains is reckoned there, under "Cards we cannot measure", for those that are named here;
 * later data centre cards, and what is not known, gain nothing. */
static double attention_gain(uint32_t sm) {
    return sm == 90                ? 1.56
           : sm == 89 || sm >= 120 ? 2.3
           : sm == 86              ? 2.0
           : sm == 80 || sm == 87  ? 1.2
                                   : 1;
}

static double attention_rate(const dfx_op_call *call, const dfx_profile *f) {
    double gain = call->kind == DFX_OP_ATTENTION_CODES ? attention_gain(f->sm) : 1;
    return gain * f->attention_flops;
}

static double rate_of(const dfx_op_call *call, const dfx_profile *f) {
    return call->kind == DFX_OP_ATTENTION || call->kind == DFX_OP_ATTENTION_CODES
               ? attention_rate(call, f)
               : product_rate(call, f);
}

double dfx_trace_op_seconds(const dfx_op_call *call, const dfx_profile *f) {
    return f->launch_s +
           fmax(dfx_op_flops(call) / rate_of(call, f), op_bytes(call) / f->memory_bytes_per_s);
}

static dfx_status add_pages(dfx_trace *t, const dfx_program *program, const dfx_sink *sink) {
    for (uint32_t i = 0; i < program->n_pages; i++) {
        char *name;
        DFX_TRY(dfx_arena_printf(&t->memory, sink, &name, "%s/%s", program->name,
                                 program->pages[i].name));
        t->pages[t->n_pages++] = (dfx_plan_page){.name = name,
                                                 .bytes = program->pages[i].bytes,
                                                 .disk_bytes = program->pages[i].bytes,
                                                 .keep = program->pages[i].keep};
    }
    return DFX_OK;
}

/* Append a program's regions to its stage's. */
static dfx_status add_regions(dfx_trace *t, dfx_plan_stage *stage, const dfx_trace_program *p,
                              uint32_t first_page, const dfx_profile *profile,
                              const dfx_sink *sink) {
    const dfx_program *program = p->program;
    uint32_t n_before = stage->n_regions, n = program->n_regions;
    dfx_plan_region *regions;
    size_t most = (size_t)n_before + n;
    DFX_TRY(dfx_arena_alloc(&t->memory, sink, most * sizeof(*regions), (void **)&regions));
    if (n_before)
        memcpy(regions, stage->regions, n_before * sizeof(*regions));
    for (uint32_t i = 0; i < n; i++) {
        const dfx_region *region = &program->regions[i];
        double seconds = 0;
        for (uint32_t op = region->first_op; op < region->end_op; op++) {
            dfx_op_call call;
            dfx_program_call(program, op, &call);
            seconds += dfx_trace_op_seconds(&call, profile);
        }
        regions[n_before + i] = (dfx_plan_region){.page_idx = first_page + region->page_idx,
                                                  .seconds = p->n_lanes * seconds};
    }
    stage->regions = regions;
    stage->n_regions = n_before + n;
    uint64_t activation_bytes = (uint64_t)p->n_lanes * program->act_bytes;
    if (activation_bytes > stage->activation_bytes)
        stage->activation_bytes = activation_bytes;
    return DFX_OK;
}

static dfx_status make(dfx_trace *t, const dfx_trace_program *programs, size_t n_programs,
                       const dfx_profile *profile, const dfx_sink *sink) {
    size_t n_pages = 0;
    for (size_t i = 0; i < n_programs; i++)
        n_pages += programs[i].program->n_pages;
    DFX_TRY(dfx_arena_alloc(&t->memory, sink, n_pages * sizeof(*t->pages), (void **)&t->pages));
    DFX_TRY(
        dfx_arena_alloc(&t->memory, sink, n_programs * sizeof(*t->stages), (void **)&t->stages));
    DFX_TRY(dfx_arena_alloc(&t->memory, sink, n_programs * sizeof(*t->first_page),
                            (void **)&t->first_page));
    for (size_t i = 0; i < n_programs; i++) {
        const dfx_trace_program *p = &programs[i];
        if (i == 0 || strcmp(p->stage, programs[i - 1].stage) != 0)
            t->stages[t->n_stages++] =
                (dfx_plan_stage){.name = p->stage, .n_repeats = p->n_repeats};
        t->first_page[i] = t->n_pages;
        DFX_TRY(add_pages(t, p->program, sink));
        DFX_TRY(add_regions(t, &t->stages[t->n_stages - 1], p, t->first_page[i], profile, sink));
    }
    return DFX_OK;
}

dfx_status dfx_trace_make(const dfx_trace_program *programs, size_t n_programs,
                          const dfx_profile *profile, const dfx_sink *sink, dfx_trace *out) {
    dfx_trace t = {0};
    dfx_arena_init(&t.memory, "trace");
    dfx_status status = make(&t, programs, n_programs, profile, sink);
    if (status == DFX_OK)
        *out = t;
    else
        dfx_trace_fini(&t);
    return status;
}

void dfx_trace_fini(dfx_trace *trace) {
    dfx_arena_fini(&trace->memory);
    *trace = (dfx_trace){0};
}
