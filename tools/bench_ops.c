#include "tools/bench_ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench_program.h"

/* ---- an op as text */

static void add(char text[DFX_BENCH_OP_TEXT], const char *fmt, ...) DFX_PRINTF(2, 3);
static void add(char text[DFX_BENCH_OP_TEXT], const char *fmt, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + used, DFX_BENCH_OP_TEXT - used, fmt, args);
    va_end(args);
}

static void add_linear(const dfx_op_call *c, char text[DFX_BENCH_OP_TEXT]) {
    add(text, ", K %lld", (long long)c->m[DFX_LINEAR_X].cols);
    if (c->m[DFX_LINEAR_B].rows)
        add(text, ", bias");
    if (c->m[DFX_LINEAR_GATE].rows)
        add(text, ", gate");
    if (c->m[DFX_LINEAR_R].rows)
        add(text, ", residual");
}

void dfx_bench_op_text(const dfx_op_call *c, char text[DFX_BENCH_OP_TEXT]) {
    static const char *const acts[] = {[DFX_ACT_NONE] = "",
                                       [DFX_ACT_SILU] = ", silu",
                                       [DFX_ACT_GELU_TANH] = ", gelu",
                                       [DFX_ACT_QUICK_GELU] = ", quick_gelu"};
    text[0] = 0;
    add(text, "%s", dfx_op_info_of(c->kind)->name);
    if (c->kind == DFX_OP_LINEAR)
        add(text, " %s%s", dfx_dtype_name(c->m[DFX_LINEAR_W].dtype),
            c->p.weight_only ? " weight only" : "");
    add(text, " %lldx%lld", (long long)c->m[0].rows, (long long)c->m[0].cols);
    if (c->kind == DFX_OP_LINEAR)
        add_linear(c, text);
    if (c->kind == DFX_OP_ATTENTION || c->kind == DFX_OP_ATTENTION_CODES)
        add(text, ", %d heads, %lld keys%s", c->p.n_heads, (long long)c->m[DFX_ATTN_K].rows,
            c->kind == DFX_OP_ATTENTION && c->m[DFX_ATTN_BIAS].rows ? ", bias" : "");
    if (c->kind == DFX_OP_LAYERNORM && c->m[DFX_NORM_SCALE].rows)
        add(text, ", modulated");
    if (c->kind == DFX_OP_QKNORM_ROPE)
        add(text, ", %d heads%s", c->p.n_heads, c->m[DFX_QKNORM_COS].rows ? ", rotated" : "");
    if (c->kind == DFX_OP_CONV2D)
        add(text, ", %dx%d of %lld channels%s%s", c->p.conv.k, c->p.conv.k,
            (long long)c->m[DFX_CONV_X].cols, c->p.conv.upsample > 1 ? ", upsampled" : "",
            c->m[DFX_CONV_R].rows ? ", residual" : "");
    int y_scale = dfx_op_y_scale_given(c->kind);
    add(text, "%s%s", acts[c->p.act], y_scale && c->m[y_scale].rows ? ", to codes" : "");
}

/* ---- rows */

typedef struct job {
    const dfx_bench_timer *timer;
    const dfx_bench_ops_question *question;
    const dfx_sink *sink;
    dfx_bench_ops *out;
} job;

static double call_bytes(const dfx_op_call *c) {
    double bytes = 0;
    for (int i = 0; i < DFX_OP_SLOTS; i++)
        bytes += (double)c->m[i].rows * (double)c->m[i].cols * dfx_dtype_bits(c->m[i].dtype) / 8;
    return bytes;
}

static bool is_wanted(const job *j, const char *program, const char *text) {
    char line[DFX_BENCH_OP_TEXT + 16];
    snprintf(line, sizeof(line), "%s %s", program, text);
    return !j->question->only || strstr(line, j->question->only);
}

/* The row of a shape; NULL: there is none yet. */
static dfx_bench_op *known_row(const job *j, const char *program, const char *text) {
    for (uint32_t i = 0; i < j->out->n_ops; i++)
        if (strcmp(j->out->ops[i].program, program) == 0 && strcmp(j->out->ops[i].text, text) == 0)
            return &j->out->ops[i];
    return NULL;
}

typedef struct one_op {
    dfx_backend *be;
    const dfx_op_call *call;
} one_op;

static dfx_status op_round(void *user, uint64_t idx) {
    const one_op *o = user;
    return o->be->vt->run(o->be, o->call);
}

static dfx_status time_call(job *j, const char *program, const dfx_op_call *call) {
    char text[DFX_BENCH_OP_TEXT];
    dfx_bench_op_text(call, text);
    if (known_row(j, program, text) || !is_wanted(j, program, text))
        return DFX_OK;
    if (j->out->n_ops == DFX_BENCH_OPS_MAX)
        return dfx_fail(j->sink, DFX_E_INTERNAL, "bench ops: wanted at most %d kinds of ops",
                        DFX_BENCH_OPS_MAX);
    dfx_bench_op *row = &j->out->ops[j->out->n_ops];
    *row = (dfx_bench_op){.program = program,
                          .kind = call->kind,
                          .flops = dfx_op_flops(call),
                          .bytes = call_bytes(call),
                          .floor_s = dfx_trace_op_seconds(call, j->question->profile)};
    memcpy(row->text, text, sizeof(text));
    dfx_info(j->sink, "measuring %s %s", program, text);
    one_op o = {j->timer->be, call};
    dfx_bench_work work = {op_round, &o, call->m[0].ptr};
    DFX_TRY(dfx_bench_time(j->timer, &work, &row->seconds));
    if (o.be->vt->kernels)
        snprintf(row->kernels, sizeof(row->kernels), "%s", o.be->vt->kernels(o.be));
    j->out->n_ops++;
    return DFX_OK;
}

/* ---- programs */

static void text_at(const dfx_program *p, uint32_t idx, char text[DFX_BENCH_OP_TEXT]) {
    dfx_op_call call;
    dfx_program_call(p, idx, &call);
    dfx_bench_op_text(&call, text);
}

static bool any_is_wanted(const job *j, const dfx_program *p) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        char text[DFX_BENCH_OP_TEXT];
        text_at(p, i, text);
        if (is_wanted(j, p->name, text))
            return true;
    }
    return false;
}

/* `program` is ended here. */
static dfx_status time_program(job *j, dfx_program *program) {
    dfx_bench_program bench = {0};
    dfx_status status = DFX_OK;
    if (any_is_wanted(j, program)) {
        status = dfx_bench_program_open(j->timer->be, program, j->sink, &bench);
        for (uint32_t i = 0; i < bench.n_calls && status == DFX_OK; i++)
            status = time_call(j, program->name, &bench.calls[i]);
        dfx_bench_program_close(&bench);
    }
    dfx_program_fini(program);
    return status;
}

/* How often the rows' shapes are in the whole program, which is ended here. */
static void count_same(job *j, dfx_program *whole) {
    for (uint32_t i = 0; i < whole->n_ops; i++) {
        char text[DFX_BENCH_OP_TEXT];
        text_at(whole, i, text);
        dfx_bench_op *row = known_row(j, whole->name, text);
        if (row)
            row->n_same++;
    }
    dfx_program_fini(whole);
}

/* Two blocks of one stream, as the last one is the picture's alone; the others are like the first. */
static dfx_status time_step(job *j, const dfx_build_env *env) {
    const dfx_bench_ops_question *q = j->question;
    dfx_configs c = q->architecture->configs;
    int64_t n_image = dfx_picture_tokens(&c, &q->shape);
    dfx_flux_config few = c.flux;
    dfx_program program;
    few.n_double = 1;
    few.n_single = few.n_single < 2 ? few.n_single : 2;
    DFX_TRY(dfx_flux_build_step(&few, env, q->shape.n_text, n_image, &program));
    DFX_TRY(time_program(j, &program));
    DFX_TRY(dfx_flux_build_step(&c.flux, env, q->shape.n_text, n_image, &program));
    count_same(j, &program);
    return DFX_OK;
}

/* One layer; the others are the same. */
static dfx_status time_t5(job *j, const dfx_build_env *env) {
    const dfx_bench_ops_question *q = j->question;
    dfx_configs c = q->architecture->configs;
    dfx_t5_config one = c.t5;
    dfx_program program;
    one.n_layers = 1;
    DFX_TRY(dfx_t5_build(&one, env, q->shape.n_text, &program));
    DFX_TRY(time_program(j, &program));
    DFX_TRY(dfx_t5_build(&c.t5, env, q->shape.n_text, &program));
    count_same(j, &program);
    return DFX_OK;
}

static dfx_status time_decoder(job *j, const dfx_build_env *env) {
    const dfx_bench_ops_question *q = j->question;
    dfx_configs c = q->architecture->configs;
    int64_t h = dfx_picture_latents(&c, q->shape.height),
            w = dfx_picture_latents(&c, q->shape.width);
    dfx_program program;
    DFX_TRY(dfx_vae_build_decoder(&c.vae, env, h, w, &program));
    DFX_TRY(time_program(j, &program));
    DFX_TRY(dfx_vae_build_decoder(&c.vae, env, h, w, &program));
    count_same(j, &program);
    return DFX_OK;
}

static dfx_status time_all(job *j) {
    const dfx_bench_ops_question *q = j->question;
    dfx_q_policy policy = {.target = q->format, .kept = DFX_Q_STORED};
    dfx_build_env env = {.like = &policy,
                         .weight_only = q->format == DFX_Q_INT8WO,
                         .attention_codes = q->attention_codes,
                         .act_dtype = j->timer->be->act_dtype,
                         .sink = j->sink};
    DFX_TRY(time_step(j, &env));
    DFX_TRY(time_t5(j, &env));
    return time_decoder(j, &env);
}

dfx_status dfx_bench_ops_run(const dfx_bench_timer *timer, const dfx_bench_ops_question *question,
                             const dfx_sink *sink, dfx_bench_ops *out) {
    job j = {timer, question, sink, out};
    *out = (dfx_bench_ops){0};
    DFX_TRY(dfx_new_array(sink, DFX_BENCH_OPS_MAX, "bench", &out->ops));
    timer->be->vt->set_cancel(timer->be, timer->cancelled, NULL);
    dfx_status status = time_all(&j);
    timer->be->vt->set_cancel(timer->be, NULL, NULL);
    return status;
}

void dfx_bench_ops_close(dfx_bench_ops *ops) {
    dfx_free(ops->ops);
    *ops = (dfx_bench_ops){0};
}
