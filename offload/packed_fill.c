#include "offload/packed_fill.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "quant/q_rows.h"

/* Runs are long enough for the disk, and together, over all workers, small beside a page. */
enum { RUN_BYTES_MAX = 2 << 20, RUN_BYTES_MIN = 64 << 10, RUNS_BYTES_MAX = 96 << 20 };

/* Rows [row, row + n_rows) of a tensor. */
typedef struct dfx_fill_job {
    uint32_t tensor_idx; /* in the layout */
    int64_t row, n_rows, cols;
} job;

/* What the workers share while a page is filled. */
typedef struct page_run {
    dfx_fill *fill;
    const dfx_pack_page *page;
    uint8_t *dst;
    _Atomic int status; /* of the first job that failed */
} page_run;

/* A tensor as rows: its first dimension, and all others. */
static int64_t rows_of(const dfx_tensor *t) {
    return t->rank < 2 || t->n_elements == 0 ? 1 : t->shape[0];
}

static int64_t cols_of(const dfx_tensor *t) {
    return (int64_t)(t->n_elements / (uint64_t)rows_of(t));
}

static size_t row_bytes(const dfx_tensor *t) {
    return (size_t)(t->bytes / (uint64_t)rows_of(t));
}

dfx_status dfx_fill_init(dfx_fill *fill, const dfx_pack_layout *layout,
                         const dfx_pack_source *source, dfx_pool *pool, bool compress,
                         const dfx_sink *sink) {
    size_t n_workers = (size_t)dfx_pool_n_threads(pool), run = RUNS_BYTES_MAX / n_workers;
    run = run > RUN_BYTES_MAX ? RUN_BYTES_MAX : run < RUN_BYTES_MIN ? RUN_BYTES_MIN : run;
    *fill = (dfx_fill){
        .layout = layout, .source = source, .sink = sink, .pool = pool, .run_bytes = run};
    fill->scratch_bytes = compress && run < DFX_PACKED_BLOCK_BYTES ? DFX_PACKED_BLOCK_BYTES : run;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const dfx_pack_tensor *t = &layout->tensors[i];
        if (t->source && t->format != DFX_Q_STORED && row_bytes(t->source) > fill->scratch_bytes)
            fill->scratch_bytes = row_bytes(t->source);
    }
    fill->scratch_bytes = dfx_align_up(fill->scratch_bytes, DFX_PAGE_ALIGN);
    return dfx_mem_alloc(sink, n_workers * fill->scratch_bytes, "pack", &fill->scratch);
}

void dfx_fill_fini(dfx_fill *fill) {
    dfx_mem_free(&fill->scratch);
    dfx_free(fill->jobs);
    *fill = (dfx_fill){0};
}

static dfx_status read_run(const page_run *run, const dfx_tensor *t, uint64_t off, void *dst,
                           size_t n_bytes) {
    const dfx_pack_source *s = run->fill->source;
    if (s->read)
        return s->read(s->read_user, run->page->component, t, off, dst, n_bytes);
    return dfx_tensors_read_part(run->page->set, t, off, n_bytes, run->fill->sink, dst);
}

/* A weight that is copied is looked at too: a NaN would come to light as a black picture, hours later. */
static dfx_status check_finite(const page_run *run, const dfx_pack_tensor *t, const job *j,
                               const void *values) {
    enum { PIECE = 1024 }; /* whole blocks of every type */
    float wide[PIECE];
    const dfx_tensor *source = t->source;
    const uint8_t *bytes = values;
    int64_t n = j->n_rows * j->cols;
    if (!dfx_dtype_is_numeric(source->dtype))
        return DFX_OK;
    for (int64_t at = 0; at < n; at += PIECE) {
        size_t piece = (size_t)(n - at < PIECE ? n - at : PIECE);
        uint32_t bad = 0;
        dfx_to_f32(source->dtype, bytes + dfx_dtype_size(source->dtype, (size_t)at), wide, piece);
        for (size_t i = 0; i < piece; i++) {
            uint32_t bits;
            memcpy(&bits, &wide[i], sizeof(bits));
            bad |= (bits & 0x7f800000u) ==
                   0x7f800000u; /* infinity or NaN; without branches: it is many GB */
        }
        if (!bad)
            continue;
        size_t i = 0;
        while (isfinite(wide[i]))
            i++;
        int64_t flat = at + (int64_t)i;
        return dfx_fail(
            run->fill->sink, DFX_E_NUMERIC,
            "%s: row %" PRId64 ", column %" PRId64 " is %s; the source is damaged, fetch it again",
            t->name, j->row + flat / j->cols, flat % j->cols, isnan(wide[i]) ? "NaN" : "infinite");
    }
    return DFX_OK;
}

/* The bytes as they are, straight to their place. */
static dfx_status copy_run(const page_run *run, const dfx_pack_tensor *t, const job *j) {
    size_t row = row_bytes(t->source), off = (size_t)j->row * row,
           n_bytes = (size_t)j->n_rows * row;
    uint8_t *to = run->dst + t->made.off + off;
    DFX_TRY(read_run(run, t->source, off, to, n_bytes));
    return check_finite(run, t, j, to);
}

/* Scales stand after the codes, as a tensor of their own. */
static dfx_status encode_run(const page_run *run, const dfx_pack_tensor *t, const job *j,
                             void *scratch) {
    size_t row = row_bytes(t->source), made_row = row_bytes(&t->made);
    float *scales = NULL;
    if (dfx_q_has_row_scale(t->format))
        scales = (float *)(run->dst + t[1].made.off) + j->row;
    DFX_TRY(read_run(run, t->source, (size_t)j->row * row, scratch, (size_t)j->n_rows * row));
    dfx_q_rows rows = {.name = t->name,
                       .dtype = t->source->dtype,
                       .src = scratch,
                       .first_row = j->row,
                       .n_rows = j->n_rows,
                       .cols = j->cols};
    return dfx_q_encode_rows(&rows, t->format, run->dst + t->made.off + (size_t)j->row * made_row,
                             scales, run->fill->sink);
}

static void run_job(void *ctx, int64_t index, int worker) {
    page_run *run = ctx;
    const dfx_fill *fill = run->fill;
    const job *j = &fill->jobs[index];
    const dfx_pack_tensor *t = &fill->layout->tensors[j->tensor_idx];
    if (atomic_load(&run->status) != DFX_OK)
        return;
    void *scratch = (uint8_t *)fill->scratch.ptr + (size_t)worker * fill->scratch_bytes;
    dfx_status status =
        t->format == DFX_Q_STORED ? copy_run(run, t, j) : encode_run(run, t, j, scratch);
    int ok = DFX_OK;
    if (status != DFX_OK)
        atomic_compare_exchange_strong(&run->status, &ok, status);
}

static dfx_status add_jobs(dfx_fill *fill, uint32_t tensor_idx, size_t *n_jobs) {
    const dfx_pack_tensor *t = &fill->layout->tensors[tensor_idx];
    if (!t->source || t->source->n_elements == 0)
        return DFX_OK;
    int64_t rows = rows_of(t->source), step = 1;
    if (row_bytes(t->source) < fill->run_bytes)
        step = (int64_t)(fill->run_bytes / row_bytes(t->source));
    for (int64_t row = 0; row < rows; row += step) {
        DFX_TRY(dfx_grow(fill->sink, *n_jobs + 1, sizeof(*fill->jobs), "pack", &fill->cap_jobs,
                         (void **)&fill->jobs));
        fill->jobs[(*n_jobs)++] = (job){.tensor_idx = tensor_idx,
                                        .row = row,
                                        .n_rows = rows - row < step ? rows - row : step,
                                        .cols = cols_of(t->source)};
    }
    return DFX_OK;
}

/* The buffer held another page before. */
static void zero_gaps(const dfx_fill *fill, const dfx_pack_page *page, uint8_t *dst) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < page->n_tensors; i++) {
        const dfx_tensor *t = &fill->layout->tensors[page->first_tensor + i].made;
        memset(dst + end, 0, t->off - end);
        end = t->off + t->bytes;
    }
    memset(dst + end, 0, page->page.bytes - end);
}

dfx_status dfx_fill_page(dfx_fill *fill, const dfx_pack_page *page, void *dst) {
    page_run run = {.fill = fill, .page = page, .dst = dst};
    size_t n_jobs = 0;
    for (uint32_t i = 0; i < page->n_tensors; i++)
        DFX_TRY(add_jobs(fill, page->first_tensor + i, &n_jobs));
    zero_gaps(fill, page, dst);
    DFX_TRY(dfx_pool_run(fill->pool, (int64_t)n_jobs, run_job, &run));
    return (dfx_status)atomic_load(&run.status);
}

/* ---- compressing ---- */

/* Block i is squeezed into the place that it would need uncompressed; then they are moved together. */
typedef struct squeeze_run {
    dfx_fill *fill;
    const uint8_t *page;
    uint64_t page_bytes;
    uint8_t *table, *blocks;
} squeeze_run;

static void write_u32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t read_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void squeeze_job(void *ctx, int64_t index, int worker) {
    squeeze_run *run = ctx;
    const dfx_fill *fill = run->fill;
    size_t off = (size_t)index * DFX_PACKED_BLOCK_BYTES;
    size_t bytes = (size_t)dfx_packed_block_bytes(run->page_bytes, (uint64_t)index);
    void *planes = (uint8_t *)fill->scratch.ptr + (size_t)worker * fill->scratch_bytes;
    size_t stored = dfx_packed_squeeze(run->page + off, bytes, planes, run->blocks + off);
    write_u32(run->table + index * DFX_PACKED_SIZE_BYTES, (uint32_t)stored);
}

dfx_status dfx_fill_squeeze(dfx_fill *fill, const void *page, uint64_t page_bytes, void *dst,
                            uint64_t *stored) {
    uint64_t n_blocks = dfx_packed_n_blocks(page_bytes);
    squeeze_run run = {.fill = fill, .page = page, .page_bytes = page_bytes, .table = dst};
    run.blocks = run.table + n_blocks * DFX_PACKED_SIZE_BYTES;
    DFX_TRY(dfx_pool_run(fill->pool, (int64_t)n_blocks, squeeze_job, &run));
    uint8_t *end = run.blocks;
    for (uint64_t i = 0; i < n_blocks; i++) {
        uint32_t bytes = read_u32(run.table + i * DFX_PACKED_SIZE_BYTES);
        memmove(end, run.blocks + i * DFX_PACKED_BLOCK_BYTES, bytes);
        end += bytes;
    }
    *stored = (uint64_t)(end - run.table);
    return DFX_OK;
}
