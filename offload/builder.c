/* The arrays grow on the heap while a program is built and move into its arena at finish. */
#include "offload/builder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "offload/fuse.h"
#include "offload/liveness.h"

static bool stuck(const dfx_builder *b) {
    return b->status != DFX_OK;
}

/* Make room for one more element of an array of the program. */
#define PUSH(b, array, count, cap)                                                             \
    ((b)->status = (b)->status != DFX_OK                                                       \
                       ? (b)->status                                                           \
                       : dfx_grow((b)->sink, (size_t)(count) + 1, sizeof(*(array)), "program", \
                                  &(cap), (void **)&(array)))

void dfx_builder_init(dfx_builder *b, const char *name, const char *component,
                      const dfx_build_env *env) {
    *b = (dfx_builder){.env = *env,
                       .sink = env->sink,
                       .component = component,
                       .page_idx = DFX_NO_PAGE,
                       .scope = ""};
    b->program = (dfx_program){
        .name = name, .tensors = env->tensors, .n_bufs = 1, .adapter_rank = env->adapter_rank};
    dfx_arena_init(&b->program.arena, "program");
    if (PUSH(b, b->program.bufs, 1, b->cap_bufs) == DFX_OK)
        b->program.bufs[0] = (dfx_buf){0};
}

void dfx_builder_fail(dfx_builder *b, dfx_status status, const char *fmt, ...) {
    if (stuck(b))
        return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    b->status = dfx_fail(b->sink, status, "%s: %s", b->component, text);
}

static const char *join_name(dfx_builder *b, const char *head, const char *tail) {
    char *text = NULL;
    dfx_status status = dfx_arena_printf(&b->program.arena, b->sink, &text, "%s%s", head, tail);
    if (status != DFX_OK)
        b->status = status;
    return text;
}

static const char *format_name(dfx_builder *b, const char *fmt, va_list args) {
    char text[256];
    vsnprintf(text, sizeof(text), fmt, args);
    return join_name(b, text, "");
}

static void set_scope(dfx_builder *b, const char *name) {
    const char *scope = name && name[0] ? join_name(b, name, ".") : "";
    if (!stuck(b))
        b->scope = scope;
}

void dfx_builder_page(dfx_builder *b, const char *fmt, ...) {
    if (PUSH(b, b->program.pages, b->program.n_pages, b->cap_pages) != DFX_OK)
        return;
    va_list args;
    va_start(args, fmt);
    const char *name = format_name(b, fmt, args);
    va_end(args);
    set_scope(b, name);
    if (stuck(b))
        return;
    b->page_idx = b->program.n_pages++;
    b->program.pages[b->page_idx] =
        (dfx_page){.name = name, .first_weight = b->program.n_weights, .keep = b->keeps_pages};
}

void dfx_builder_scope(dfx_builder *b, const char *fmt, ...) {
    if (stuck(b))
        return;
    va_list args;
    va_start(args, fmt);
    set_scope(b, format_name(b, fmt, args));
    va_end(args);
}

void dfx_builder_keep_pages(dfx_builder *b) {
    b->keeps_pages = true;
}

bool dfx_builder_has(const dfx_builder *b, const char *name) {
    char full[512];
    if (!b->program.tensors)
        return true;
    snprintf(full, sizeof(full), "%s%s", b->scope, name);
    return dfx_tensors_find(b->program.tensors, full) != NULL;
}

static dfx_ref add_buf(dfx_builder *b, dfx_buf buf) {
    size_t elements = 0;
    if (!stuck(b) &&
        (buf.rows < 1 || buf.cols < 1 ||
         !dfx_mul_size((size_t)buf.rows, (size_t)buf.cols, &elements) || elements > INT64_MAX / 8))
        dfx_builder_fail(b, DFX_E_INTERNAL, "a buffer of %" PRId64 " x %" PRId64 " values",
                         buf.rows, buf.cols);
    if (PUSH(b, b->program.bufs, b->program.n_bufs, b->cap_bufs) != DFX_OK)
        return (dfx_ref){0};
    buf.bytes = dfx_dtype_size(buf.dtype, elements);
    buf.first_op = UINT32_MAX;
    uint32_t idx = b->program.n_bufs++;
    b->program.bufs[idx] = buf;
    return (dfx_ref){.buf = idx, .rows = buf.rows, .cols = buf.cols};
}

dfx_ref dfx_extern_buf(dfx_builder *b, const char *name, int64_t rows, int64_t cols,
                       dfx_dtype dtype) {
    if (PUSH(b, b->program.externs, b->program.n_externs, b->cap_externs) != DFX_OK)
        return (dfx_ref){0};
    uint32_t idx = b->program.n_externs;
    dfx_ref r = add_buf(
        b,
        (dfx_buf){.kind = DFX_BUF_EXTERN, .dtype = dtype, .rows = rows, .cols = cols, .idx = idx});
    const char *copy = join_name(b, name, "");
    if (!stuck(b))
        b->program.externs[b->program.n_externs++] = (dfx_extern){.name = copy, .buf = r.buf};
    return r;
}

dfx_ref dfx_temp_of(dfx_builder *b, int64_t rows, int64_t cols, dfx_dtype dtype) {
    return add_buf(b, (dfx_buf){.kind = DFX_BUF_TEMP, .dtype = dtype, .rows = rows, .cols = cols});
}

dfx_ref dfx_temp(dfx_builder *b, int64_t rows, int64_t cols) {
    return dfx_temp_of(b, rows, cols, b->env.act_dtype);
}

dfx_ref dfx_adapter_buf(dfx_builder *b, int64_t rows, int64_t cols, dfx_dtype dtype) {
    return add_buf(b,
                   (dfx_buf){.kind = DFX_BUF_ADAPTER, .dtype = dtype, .rows = rows, .cols = cols});
}

void dfx_builder_adapter(dfx_builder *b, const dfx_adapter *adapter) {
    dfx_program *p = &b->program;
    if (PUSH(b, p->adapters, p->n_adapters, b->cap_adapters) != DFX_OK)
        return;
    const char *layer = join_name(b, b->scope, adapter->layer);
    if (stuck(b))
        return;
    p->adapters[p->n_adapters] = *adapter;
    p->adapters[p->n_adapters++].layer = layer;
}

/* A checkpoint's tensor must be what the architecture says. */
static void check_tensor(dfx_builder *b, const dfx_tensor *t, const char *name, int64_t rows,
                         int64_t cols) {
    char shape[DFX_SHAPE_TEXT];
    if (!t) {
        dfx_builder_fail(b, DFX_E_FORMAT,
                         "tensor %s is missing; wanted a shape of %" PRId64 " x %" PRId64, name,
                         rows, cols);
        return;
    }
    bool fits = t->n_elements == (uint64_t)rows * (uint64_t)cols &&
                (rows == 1 || (t->rank > 0 && t->shape[0] == rows));
    if (!fits)
        dfx_builder_fail(b, DFX_E_FORMAT,
                         "tensor %s is %s; wanted %" PRId64 " x %" PRId64
                         " as the configuration says",
                         name, dfx_tensor_shape_text(t, shape), rows, cols);
    else if (!dfx_dtype_is_numeric(t->dtype))
        dfx_builder_fail(b, DFX_E_FORMAT,
                         "tensor %s has type %s, which is not a number type that we read", name,
                         dfx_dtype_name(t->dtype));
}

/* The same weight named twice in one page is one weight. */
static uint32_t find_weight(const dfx_builder *b, const char *name) {
    const dfx_program *p = &b->program;
    for (uint32_t i = b->page_idx == DFX_NO_PAGE ? 0 : p->pages[b->page_idx].first_weight;
         i < p->n_weights; i++)
        if (strcmp(p->weights[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

/* What a weight of the architecture alone would be stored as. Scales are made, not stored: they are f32. */
static dfx_dtype like_dtype(const dfx_builder *b, const char *name, int64_t rows, int64_t cols) {
    static const char scale[] = "_scale";
    size_t len = strlen(name);
    char full[512];
    if (len >= sizeof(scale) && strcmp(name + len - (sizeof(scale) - 1), scale) == 0)
        return DFX_DTYPE_F32;
    if (!b->env.like)
        return DFX_DTYPE_BF16;
    snprintf(full, sizeof(full), "%s.%s", b->component, name);
    dfx_q_tensor tensor = {.name = full,
                           .dtype = DFX_DTYPE_BF16,
                           .shape = (int64_t[]){rows, cols},
                           .n_dims = rows > 1 ? 2 : 1};
    return dfx_q_storage(dfx_q_policy_format(b->env.like, &tensor), DFX_DTYPE_BF16);
}

dfx_ref dfx_weight_ref(dfx_builder *b, const char *local, int64_t rows, int64_t cols) {
    if (stuck(b))
        return (dfx_ref){0};
    const char *name = join_name(b, b->scope, local);
    if (stuck(b))
        return (dfx_ref){0};
    if (b->page_idx == DFX_NO_PAGE)
        dfx_builder_fail(b, DFX_E_INTERNAL, "weight %s outside a page", name);
    dfx_program *p = &b->program;
    const dfx_tensor *tensor = p->tensors ? dfx_tensors_find(p->tensors, name) : NULL;
    if (p->tensors)
        check_tensor(b, tensor, name, rows, cols);
    if (stuck(b))
        return (dfx_ref){0};
    uint32_t idx = find_weight(b, name);
    dfx_dtype dtype = tensor ? tensor->dtype : like_dtype(b, name, rows, cols);
    if (idx == UINT32_MAX) {
        if (PUSH(b, p->weights, p->n_weights, b->cap_weights) != DFX_OK)
            return (dfx_ref){0};
        idx = p->n_weights++;
        dfx_page *page = &p->pages[b->page_idx];
        size_t bytes = dfx_dtype_size(dtype, (size_t)rows * (size_t)cols);
        p->weights[idx] = (dfx_weight){.name = name,
                                       .tensor = tensor,
                                       .dtype = dtype,
                                       .page_idx = b->page_idx,
                                       .off = page->bytes,
                                       .bytes = bytes};
        page->bytes = dfx_align_up(page->bytes + bytes, DFX_PAGE_ALIGN);
        page->n_weights++;
    }
    return add_buf(
        b,
        (dfx_buf){.kind = DFX_BUF_WEIGHT, .dtype = dtype, .rows = rows, .cols = cols, .idx = idx});
}

dfx_ref dfx_rows(dfx_ref r, int64_t row0, int64_t rows) {
    r.row0 += row0;
    r.rows = rows;
    return r;
}

dfx_ref dfx_cols(dfx_ref r, int64_t col0, int64_t cols) {
    r.col0 += col0;
    r.cols = cols;
    return r;
}

/* Values that there are, and the page that an op reads. */
static void note_use(dfx_builder *b, const dfx_ref *r, uint32_t *page_idx) {
    dfx_buf *buf = &b->program.bufs[r->buf];
    if (r->row0 < 0 || r->col0 < 0 || r->row0 + r->rows > buf->rows ||
        r->col0 + r->cols > buf->cols) {
        dfx_builder_fail(b, DFX_E_INTERNAL, "an op names values outside its buffer");
        return;
    }
    if (buf->kind != DFX_BUF_WEIGHT)
        return;
    uint32_t page = b->program.weights[buf->idx].page_idx;
    if (*page_idx != DFX_NO_PAGE && *page_idx != page)
        dfx_builder_fail(b, DFX_E_INTERNAL, "an op reads weights of two pages");
    *page_idx = page;
}

void dfx_emit(dfx_builder *b, dfx_op_kind kind, const char *label, const dfx_ref *slots,
              const dfx_op_params *p) {
    if (PUSH(b, b->program.ops, b->program.n_ops, b->cap_ops) != DFX_OK)
        return;
    uint32_t op_idx = b->program.n_ops;
    dfx_op *op = &b->program.ops[op_idx];
    *op = (dfx_op){.kind = kind, .label = join_name(b, b->scope, label), .page_idx = DFX_NO_PAGE};
    if (p)
        op->p = *p;
    int n_slots = dfx_op_info_of(kind)->n_slots;
    for (int i = 0; i < n_slots && !stuck(b); i++) {
        op->r[i] = slots[i];
        if (slots[i].buf)
            note_use(b, &slots[i], &op->page_idx);
    }
    if (stuck(b))
        return;
    b->program.n_ops++;
    dfx_op_call call;
    dfx_program_call(&b->program, op_idx, &call);
    b->status = dfx_op_check(&call, b->sink);
}

/* Move a growing array into the arena. */
static void settle(dfx_builder *b, void **array, size_t count, size_t size) {
    void *copy = NULL;
    if (!stuck(b) && count) {
        b->status = dfx_arena_alloc(&b->program.arena, b->sink, count * size, &copy);
        if (!stuck(b))
            memcpy(copy, *array, count * size);
    }
    dfx_free(*array);
    *array = copy;
}

/* Ops as they will be run, and from them the lifetimes of what they name. */
static void settle_ops(dfx_builder *b) {
    dfx_program *p = &b->program;
    dfx_fuse_ops(p);
    dfx_fuse_bounds(b);
    dfx_fuse_streams(b);
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++) {
            dfx_buf *buf = &p->bufs[p->ops[i].r[slot].buf];
            if (buf->first_op == UINT32_MAX)
                buf->first_op = i;
            buf->last_op = i;
        }
}

static dfx_status cut_regions(dfx_program *p, const dfx_sink *sink) {
    uint32_t page = DFX_NO_PAGE;
    DFX_TRY(dfx_arena_alloc(&p->arena, sink, (size_t)p->n_ops * sizeof(*p->regions),
                            (void **)&p->regions));
    for (uint32_t i = 0; i < p->n_ops; i++) {
        uint32_t wanted = p->ops[i].page_idx;
        if (wanted != DFX_NO_PAGE && wanted != page) {
            uint32_t first = p->n_regions == 0 ? 0 : i;
            p->regions[p->n_regions++] = (dfx_region){wanted, first, i};
            page = wanted;
        }
        if (p->n_regions > 0)
            p->regions[p->n_regions - 1].end_op = i + 1;
    }
    return DFX_OK;
}

static void place_adapters(dfx_program *p) {
    for (uint32_t i = 1; i < p->n_bufs; i++) {
        dfx_buf *buf = &p->bufs[i];
        if (buf->kind != DFX_BUF_ADAPTER)
            continue;
        buf->off = p->adapter_bytes;
        p->adapter_bytes += dfx_align_up(buf->bytes, DFX_ACT_ALIGN);
    }
}

dfx_status dfx_builder_finish(dfx_builder *b, dfx_program *out) {
    dfx_program *p = &b->program;
    if (!stuck(b))
        settle_ops(b);
    if (!stuck(b))
        b->status = dfx_liveness_place(p->bufs, p->n_bufs, b->sink, &p->act_bytes);
    place_adapters(p);
    if (!stuck(b))
        b->status = cut_regions(p, b->sink);
    for (uint32_t i = 0; !stuck(b) && i < p->n_pages; i++) {
        p->page_bytes += p->pages[i].bytes;
        if (p->pages[i].bytes > p->page_bytes_max)
            p->page_bytes_max = p->pages[i].bytes;
    }
    settle(b, (void **)&p->bufs, p->n_bufs, sizeof(*p->bufs));
    settle(b, (void **)&p->weights, p->n_weights, sizeof(*p->weights));
    settle(b, (void **)&p->pages, p->n_pages, sizeof(*p->pages));
    settle(b, (void **)&p->ops, p->n_ops, sizeof(*p->ops));
    settle(b, (void **)&p->externs, p->n_externs, sizeof(*p->externs));
    settle(b, (void **)&p->adapters, p->n_adapters, sizeof(*p->adapters));
    if (stuck(b))
        dfx_program_fini(p);
    else
        *out = *p;
    b->program = (dfx_program){0};
    return b->status;
}
