#include "models/flux.h"

#include <math.h>
#include <stdio.h>

#include "models/flux_attention.h"

static const double THETA = 10000.0;
enum { SINUSOID_WIDTH = 256 };

int64_t dfx_flux_mod_cols(const dfx_flux_config *c) {
    return c->width * (12 * c->n_double + 3 * c->n_single + 2);
}

/* A page for part of block i: "transformer_blocks.3/ff", whose weights are named after the block alone. Blocks are cut where
 * it makes pages of about one size: two thirds of a page more or less is what small budgets stream through. */
static void open_page(dfx_builder *b, const char *block, int64_t i, const char *part) {
    char name[64];
    snprintf(name, sizeof(name), block, (int)i);
    dfx_builder_page(b, "%s/%s", name, part);
    dfx_builder_scope(b, "%s", name);
}

/* linear_2(silu(linear_1(x))) */
static dfx_ref mlp_embedder(dfx_builder *b, const dfx_flux_config *c, dfx_ref x, const char *first,
                            const char *second) {
    dfx_ref h = dfx_linear(
        b, &(dfx_linear_spec){.x = x, .name = first, .n = c->width, .act = DFX_ACT_SILU});
    return dfx_linear(b, &(dfx_linear_spec){.x = h, .name = second, .n = c->width});
}

static dfx_ref sinusoid(dfx_builder *b, dfx_ref t, const char *label) {
    dfx_ref y = dfx_temp(b, t.cols, SINUSOID_WIDTH);
    dfx_emit(b, DFX_OP_SINUSOID, label, (dfx_ref[DFX_OP_SLOTS]){y, t}, NULL);
    return y;
}

/* vec = (time + guidance) + text, one row a step. */
static dfx_ref condition_vector(dfx_builder *b, const dfx_flux_config *c, dfx_ref sigmas,
                                dfx_ref guidance, dfx_ref pooled) {
    dfx_builder_page(b, "time_text_embed");
    dfx_ref vec = mlp_embedder(b, c, sinusoid(b, sigmas, "time_proj"), "timestep_embedder.linear_1",
                               "timestep_embedder.linear_2");
    if (c->has_guidance) {
        dfx_ref g = mlp_embedder(b, c, sinusoid(b, guidance, "guidance_proj"),
                                 "guidance_embedder.linear_1", "guidance_embedder.linear_2");
        dfx_add_to(b, vec, g, "add_guidance");
    }
    dfx_ref y = mlp_embedder(b, c, pooled, "text_embedder.linear_1", "text_embedder.linear_2");
    dfx_add_to(b, vec, y, "add_text");
    return vec;
}

/* One block's modulation for all steps, into its columns of the table. */
static void modulation(dfx_builder *b, dfx_ref act, dfx_ref mod, int64_t *col, int64_t cols,
                       const char *name) {
    dfx_linear(b, &(dfx_linear_spec){
                      .x = act, .name = name, .n = cols, .into = dfx_cols(mod, *col, cols)});
    *col += cols;
}

dfx_status dfx_flux_build_cond(const dfx_flux_config *c, const dfx_build_env *env, int64_t n_text,
                               int64_t n_steps, dfx_program *out) {
    dfx_builder b;
    int64_t D = c->width, col = 0;
    dfx_builder_init(&b, "cond", "transformer", env);
    dfx_ref text = dfx_extern_buf(&b, "text", n_text, c->text_width, env->act_dtype);
    dfx_ref pooled = dfx_extern_buf(&b, "pooled", 1, c->pooled_width, env->act_dtype);
    dfx_ref sigmas = dfx_extern_buf(&b, "sigmas", 1, n_steps, DFX_DTYPE_F32);
    dfx_ref guidance = dfx_extern_buf(&b, "guidance", 1, 1, DFX_DTYPE_F32);
    dfx_ref txt = dfx_extern_buf(&b, "txt", n_text, D, env->act_dtype);
    dfx_ref mod = dfx_extern_buf(&b, "mod", n_steps, dfx_flux_mod_cols(c), env->act_dtype);

    dfx_builder_page(&b, "context_embedder");
    dfx_builder_scope(&b, "%s", "");
    dfx_linear(&b, &(dfx_linear_spec){.x = text, .name = "context_embedder", .n = D, .into = txt});
    dfx_ref vec = condition_vector(&b, c, sigmas, guidance, pooled);
    dfx_ref act = dfx_activate(&b, vec, DFX_ACT_SILU, "silu");
    for (int64_t i = 0; i < c->n_double; i++) {
        open_page(&b, "transformer_blocks.%d", i, "norm1");
        modulation(&b, act, mod, &col, 6 * D, "norm1.linear");
        open_page(&b, "transformer_blocks.%d", i, "norm1_context");
        modulation(&b, act, mod, &col, 6 * D, "norm1_context.linear");
    }
    for (int64_t i = 0; i < c->n_single; i++) {
        open_page(&b, "single_transformer_blocks.%d", i, "norm");
        modulation(&b, act, mod, &col, 3 * D, "norm.linear");
    }
    dfx_builder_page(&b, "norm_out");
    modulation(&b, act, mod, &col, 2 * D, "linear");
    return dfx_builder_finish(&b, out);
}

/* What every block of the step program needs to know. */
typedef struct step_ctx {
    dfx_builder *b;
    const dfx_flux_config *c;
    int64_t n_text, n_image;
    dfx_ref mod, cos, sin; /* cos and sin of all tokens */
    int64_t mod_col;       /* next unread column */
} step_ctx;

static dfx_ref next_mod(step_ctx *s) {
    dfx_ref r = dfx_cols(s->mod, s->mod_col, s->c->width);
    s->mod_col += s->c->width;
    return r;
}

typedef struct modulation_set {
    dfx_ref shift, scale, gate;
} modulation_set;

static modulation_set next_mod_set(step_ctx *s) {
    dfx_ref shift = next_mod(s), scale = next_mod(s), gate = next_mod(s);
    return (modulation_set){shift, scale, gate};
}

static dfx_ref image_rows(const step_ctx *s, dfx_ref r) {
    return dfx_rows(r, s->n_text, s->n_image);
}

static dfx_ref text_rows(const step_ctx *s, dfx_ref r) {
    return dfx_rows(r, 0, s->n_text);
}

/* Names of one stream's weights in a double block. */
typedef struct stream_names {
    const char *norm1, *q, *k, *v, *norm_q, *norm_k, *out, *norm2, *mlp_in, *mlp_out;
} stream_names;

static const stream_names IMAGE = {"norm1",         "attn.to_q",   "attn.to_k",     "attn.to_v",
                                   "attn.norm_q",   "attn.norm_k", "attn.to_out.0", "norm2",
                                   "ff.net.0.proj", "ff.net.2"};
static const stream_names TEXT = {"norm1_context",   "attn.add_q_proj",   "attn.add_k_proj",
                                  "attn.add_v_proj", "attn.norm_added_q", "attn.norm_added_k",
                                  "attn.to_add_out", "norm2_context",     "ff_context.net.0.proj",
                                  "ff_context.net.2"};

static void linear_into(step_ctx *s, dfx_ref x, const char *name, dfx_ref into) {
    dfx_linear(s->b, &(dfx_linear_spec){.x = x, .name = name, .n = into.cols, .into = into});
}

/* In the page they come one after the other, before the norms. */
static void qkv_weights(step_ctx *s, const char *const names[3]) {
    for (int i = 0; i < 3; i++)
        dfx_linear_weights(s->b, names[i], s->c->width, s->c->width);
}

/* Rows of q, or of k and v, from those of x. */
typedef struct qkv_part {
    dfx_ref x;
    dfx_flux_rows rows;
} qkv_part;

/* q and k are normed while they are in the device's cache. */
static void block_qkv(step_ctx *s, const char *const names[3], dfx_flux_attention *a,
                      const qkv_part *q, const qkv_part *kv) {
    linear_into(s, q->x, names[0], dfx_rows(a->q, q->rows.row0, q->rows.n_rows));
    dfx_flux_attention_norm_q(a, &q->rows);
    linear_into(s, kv->x, names[1], dfx_rows(a->k, kv->rows.row0, kv->rows.n_rows));
    dfx_flux_attention_norm_k(a, &kv->rows);
    linear_into(s, kv->x, names[2], dfx_rows(a->v, kv->rows.row0, kv->rows.n_rows));
}

/* q, k, v of one stream, into its rows of the block's; without tables for text, whose positions rotate by nothing. */
static void stream_qkv(step_ctx *s, dfx_ref x, const stream_names *n, const modulation_set *m,
                       dfx_flux_attention *a, dfx_ref cos, dfx_ref sin) {
    dfx_ref norm = dfx_temp(s->b, x.rows, x.cols);
    dfx_modulated_norm(s->b, norm, x, m->scale, m->shift, DFX_FLUX_EPS, n->norm1);
    const char *const names[] = {n->q, n->k, n->v};
    qkv_weights(s, names);
    const qkv_part part = {norm,
                           {.row0 = x.row0,
                            .n_rows = x.rows,
                            .norm_q = n->norm_q,
                            .norm_k = n->norm_k,
                            .cos = cos,
                            .sin = sin}};
    block_qkv(s, names, a, &part, &part);
}

/* x += gate * out(attn) */
static void stream_attention_out(step_ctx *s, dfx_ref x, dfx_ref attn, const stream_names *n,
                                 dfx_ref gate) {
    dfx_linear(
        s->b,
        &(dfx_linear_spec){
            .x = attn, .name = n->out, .n = s->c->width, .gate = gate, .residual = x, .into = x});
}

/* x += gate * mlp_out(gelu(mlp_in(LN(x) * (1 + scale) + shift))) */
static void stream_mlp(step_ctx *s, dfx_ref x, const stream_names *n, const modulation_set *m) {
    int64_t D = s->c->width;
    dfx_ref norm = dfx_temp(s->b, x.rows, x.cols);
    dfx_modulated_norm(s->b, norm, x, m->scale, m->shift, DFX_FLUX_EPS, n->norm2);
    dfx_ref f = dfx_linear(
        s->b,
        &(dfx_linear_spec){.x = norm, .name = n->mlp_in, .n = 4 * D, .act = DFX_ACT_GELU_TANH});
    dfx_linear(s->b,
               &(dfx_linear_spec){
                   .x = f, .name = n->mlp_out, .n = D, .gate = m->gate, .residual = x, .into = x});
}

/* Block i on h [Tt + Ti, D]: text rows, then image rows. Three pages of 8 D^2 weights each: attention of both streams, and
 * each stream's MLP. */
static void double_block(step_ctx *s, dfx_ref h, int64_t i) {
    modulation_set img1 = next_mod_set(s), img2 = next_mod_set(s), txt1 = next_mod_set(s),
                   txt2 = next_mod_set(s);
    dfx_ref img = image_rows(s, h), txt = text_rows(s, h), none = {0};
    open_page(s->b, "transformer_blocks.%d", i, "attn");
    dfx_flux_attention a = dfx_flux_attention_begin(s->b, s->c, h.rows, h.rows);
    stream_qkv(s, txt, &TEXT, &txt1, &a, none, none);
    stream_qkv(s, img, &IMAGE, &img1, &a, image_rows(s, s->cos), image_rows(s, s->sin));
    dfx_ref attn = dfx_flux_attention_end(&a, none);
    stream_attention_out(s, img, image_rows(s, attn), &IMAGE, img1.gate);
    stream_attention_out(s, txt, text_rows(s, attn), &TEXT, txt1.gate);
    open_page(s->b, "transformer_blocks.%d", i, "ff");
    stream_mlp(s, img, &IMAGE, &img2);
    open_page(s->b, "transformer_blocks.%d", i, "ff_context");
    stream_mlp(s, txt, &TEXT, &txt2);
}

/* h += gate * proj_out([attention, gelu(proj_mlp(n))]),  n = LN(h) * (1 + scale) + shift. Two pages: 7 and 5 D^2 weights. The
 * last block leaves the text's rows as they were: only their keys and values are wanted by then. */
static void single_block(step_ctx *s, dfx_ref h, int64_t i) {
    int64_t D = s->c->width;
    bool last = i + 1 == s->c->n_single;
    modulation_set m = next_mod_set(s);
    open_page(s->b, "single_transformer_blocks.%d", i, "in");
    dfx_ref norm = dfx_temp(s->b, h.rows, D), to = last ? image_rows(s, h) : h;
    dfx_ref joined = dfx_temp(s->b, to.rows, 5 * D);
    dfx_modulated_norm(s->b, norm, h, m.scale, m.shift, DFX_FLUX_EPS, "norm");
    static const char *const names[] = {"attn.to_q", "attn.to_k", "attn.to_v"};
    qkv_weights(s, names);
    dfx_linear_weights(s->b, "proj_mlp", 4 * D, D);
    dfx_flux_attention a = dfx_flux_attention_begin(s->b, s->c, to.rows, h.rows);
    qkv_part kv = {norm,
                   {.n_rows = h.rows,
                    .norm_q = "attn.norm_q",
                    .norm_k = "attn.norm_k",
                    .cos = s->cos,
                    .sin = s->sin}},
             q = kv;
    if (last) {
        q.x = image_rows(s, norm);
        q.rows.n_rows = to.rows;
        q.rows.cos = image_rows(s, s->cos);
        q.rows.sin = image_rows(s, s->sin);
    }
    block_qkv(s, names, &a, &q, &kv);
    dfx_flux_attention_end(&a, dfx_cols(joined, 0, D));
    dfx_linear(s->b, &(dfx_linear_spec){.x = q.x,
                                        .name = "proj_mlp",
                                        .n = 4 * D,
                                        .act = DFX_ACT_GELU_TANH,
                                        .into = dfx_cols(joined, D, 4 * D)});
    open_page(s->b, "single_transformer_blocks.%d", i, "out");
    dfx_linear(
        s->b,
        &(dfx_linear_spec){
            .x = joined, .name = "proj_out", .n = D, .gate = m.gate, .residual = to, .into = to});
}

/* v = proj_out(LN(x) * (1 + scale) + shift);  latents += dt * v */
static void final_layer(step_ctx *s, dfx_ref img, dfx_ref v) {
    dfx_ref scale = next_mod(s), shift = next_mod(s);
    dfx_ref norm = dfx_temp(s->b, img.rows, img.cols);
    dfx_builder_page(s->b, "proj_out");
    dfx_builder_scope(s->b, "%s", "");
    dfx_modulated_norm(s->b, norm, img, scale, shift, DFX_FLUX_EPS, "norm_out");
    linear_into(s, norm, "proj_out", v);
}

/* What the externs of a step are; x, dt and v for its last ops. */
typedef struct step_externs {
    dfx_ref x, txt, dt, v;
} step_externs;

static step_externs step_begin(step_ctx *s, dfx_builder *b, const dfx_build_env *env) {
    const dfx_flux_config *c = s->c;
    int64_t L = s->n_text + s->n_image;
    step_externs e;
    s->b = b;
    dfx_builder_init(b, "step", "transformer", env);
    e.x = dfx_extern_buf(b, "x", s->n_image, c->in_channels, env->act_dtype);
    e.txt = dfx_extern_buf(b, "txt", s->n_text, c->width, env->act_dtype);
    s->mod = dfx_extern_buf(b, "mod", 1, dfx_flux_mod_cols(c), env->act_dtype);
    s->cos = dfx_extern_buf(b, "cos", L, c->head_size / 2, DFX_DTYPE_F32);
    s->sin = dfx_extern_buf(b, "sin", L, c->head_size / 2, DFX_DTYPE_F32);
    e.dt = dfx_extern_buf(b, "dt", 1, 1, DFX_DTYPE_F32);
    e.v = dfx_extern_buf(b, "v", s->n_image, c->out_channels, env->act_dtype);
    return e;
}

static void copy(step_ctx *s, dfx_ref to, dfx_ref from, const char *label) {
    dfx_emit(s->b, DFX_OP_ACT, label, (dfx_ref[DFX_OP_SLOTS]){to, from},
             &(dfx_op_params){.act = DFX_ACT_NONE});
}

/* h of what the blocks begin with. */
static void embed(step_ctx *s, const step_externs *e, dfx_ref h) {
    copy(s, text_rows(s, h), e->txt, "txt");
    dfx_builder_page(s->b, "x_embedder");
    dfx_builder_scope(s->b, "%s", "");
    linear_into(s, e->x, "x_embedder", image_rows(s, h));
}

/* All of them, but for the 2-stream ones before first_double. */
static void blocks(step_ctx *s, dfx_ref h, int64_t first_double) {
    for (int64_t i = first_double; i < s->c->n_double; i++)
        double_block(s, h, i);
    for (int64_t i = 0; i < s->c->n_single; i++)
        single_block(s, h, i);
}

static void step_end(step_ctx *s, const step_externs *e, dfx_ref h) {
    final_layer(s, image_rows(s, h), e->v);
    dfx_emit(s->b, DFX_OP_AXPY, "euler", (dfx_ref[DFX_OP_SLOTS]){e->x, e->x, e->v, e->dt}, NULL);
}

dfx_status dfx_flux_build_step(const dfx_flux_config *c, const dfx_build_env *env, int64_t n_text,
                               int64_t n_image, dfx_program *out) {
    dfx_builder b;
    step_ctx s = {.c = c, .n_text = n_text, .n_image = n_image};
    step_externs e = step_begin(&s, &b, env);
    dfx_ref h = dfx_temp(&b, n_text + n_image, c->width);
    embed(&s, &e, h);
    blocks(&s, h, 0);
    step_end(&s, &e, h);
    return dfx_builder_finish(&b, out);
}

/* What the parts of a step hand on to each other. */
typedef struct part_externs {
    dfx_ref h, first, last, rest, minus, diff;
} part_externs;

static part_externs parts_begin(step_ctx *s) {
    dfx_builder *b = s->b;
    dfx_dtype act = b->env.act_dtype;
    int64_t D = s->c->width;
    part_externs p;
    p.h = dfx_extern_buf(b, "h", s->n_text + s->n_image, D, act);
    p.first = dfx_extern_buf(b, "first", s->n_image, D, act);
    p.last = dfx_extern_buf(b, "last", s->n_image, D, act);
    p.rest = dfx_extern_buf(b, "rest", s->n_image, D, act);
    p.minus = dfx_extern_buf(b, "minus", 1, 1, DFX_DTYPE_F32);
    p.diff = dfx_extern_buf(b, "diff", 1, 1, DFX_DTYPE_F32);
    return p;
}

/* r = what the image's rows of h are now, less what r says that they were. */
static void residual(step_ctx *s, const part_externs *p, dfx_ref r, const char *label) {
    dfx_emit(s->b, DFX_OP_AXPY, label, (dfx_ref[DFX_OP_SLOTS]){r, image_rows(s, p->h), r, p->minus},
             NULL);
}

static void part_first(step_ctx *s, const step_externs *e, const part_externs *p) {
    dfx_builder_keep_pages(s->b);
    embed(s, e, p->h);
    copy(s, p->first, image_rows(s, p->h), "reuse.before_first");
    double_block(s, p->h, 0);
    residual(s, p, p->first, "reuse.first");
    dfx_emit(s->b, DFX_OP_REL_DIFF, "reuse.diff",
             (dfx_ref[DFX_OP_SLOTS]){p->diff, p->first, p->last}, NULL);
}

static void part_rest(step_ctx *s, const step_externs *e, const part_externs *p) {
    s->mod_col = 12 * s->c->width; /* behind the first block's */
    copy(s, p->last, p->first, "reuse.last");
    copy(s, p->rest, image_rows(s, p->h), "reuse.before_rest");
    blocks(s, p->h, 1);
    residual(s, p, p->rest, "reuse.rest");
    dfx_builder_keep_pages(s->b);
    step_end(s, e, p->h);
}

static void part_reused(step_ctx *s, const step_externs *e, const part_externs *p) {
    s->mod_col = dfx_flux_mod_cols(s->c) - 2 * s->c->width; /* the final layer's */
    dfx_add_to(s->b, image_rows(s, p->h), p->rest, "reuse.add");
    dfx_builder_keep_pages(s->b);
    step_end(s, e, p->h);
}

dfx_status dfx_flux_build_part(const dfx_flux_config *c, const dfx_build_env *env, int64_t n_text,
                               int64_t n_image, dfx_flux_part part, dfx_program *out) {
    static void (*const parts[])(step_ctx *, const step_externs *,
                                 const part_externs *) = {[DFX_FLUX_FIRST] = part_first,
                                                          [DFX_FLUX_REST] = part_rest,
                                                          [DFX_FLUX_REUSED] = part_reused};
    dfx_builder b;
    step_ctx s = {.c = c, .n_text = n_text, .n_image = n_image};
    step_externs e = step_begin(&s, &b, env);
    part_externs p = parts_begin(&s);
    parts[part](&s, &e, &p);
    return dfx_builder_finish(&b, out);
}

void dfx_flux_rope(const dfx_flux_config *c, int64_t n_text, int64_t h, int64_t w, float *cos_out,
                   float *sin_out) {
    int64_t half = c->head_size / 2;
    for (int64_t t = 0; t < n_text + h * w; t++) {
        int64_t image = t - n_text;
        int64_t position[3] = {0, image < 0 ? 0 : image / w, image < 0 ? 0 : image % w};
        int64_t pair = 0;
        for (int axis = 0; axis < 3; axis++)
            for (int64_t j = 0; j < c->axes[axis] / 2; j++, pair++) {
                double angle =
                    (double)position[axis] * pow(THETA, -2.0 * (double)j / (double)c->axes[axis]);
                cos_out[t * half + pair] = (float)cos(angle);
                sin_out[t * half + pair] = (float)sin(angle);
            }
    }
}
