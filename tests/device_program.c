/* See device_program.h. Nothing here allocates through core/mem.h but the backend. */
#include "tests/device_program.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tmpdir.h"

static void must(const device_program *d, dfx_status status, const char *what) {
    if (status != DFX_OK)
        fail_msg("%s of program %s: %s", what, d->program->name, dfx_status_text(status));
}

static void *host_block(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    if (!block)
        abort();
    return block;
}

/* Bytes of all ones are NaN in F32 and in BF16. */
static void take(device_program *d, size_t bytes, const char *tag, dfx_mem *out) {
    must(d, d->backend->vt->alloc(d->backend, bytes, tag, out), tag);
    void *ones = memset(host_block(bytes), 0xFF, bytes);
    must(d, d->backend->vt->upload(d->backend, out->ptr, ones, bytes), tag);
    free(ones);
}

static void take_page(device_program *d, uint32_t page_idx) {
    const dfx_program *p = d->program;
    const dfx_page *page = &p->pages[page_idx];
    unsigned char *bytes = memset(host_block(page->bytes), 0xFF, page->bytes);
    for (uint32_t i = page->first_weight; i < page->first_weight + page->n_weights; i++)
        must(d,
             dfx_tensors_read(p->tensors, p->weights[i].tensor, d->sink, bytes + p->weights[i].off),
             p->weights[i].name);
    take(d, page->bytes, "page", &d->pages[page_idx]);
    must(d, d->backend->vt->upload(d->backend, d->pages[page_idx].ptr, bytes, page->bytes),
         page->name);
    free(bytes);
}

static const dfx_buf *extern_buf(const dfx_program *program, uint32_t extern_idx) {
    return &program->bufs[program->externs[extern_idx].buf];
}

void device_program_open(device_program *d, dfx_backend *backend, const dfx_program *program,
                         const dfx_sink *sink) {
    *d = (device_program){.backend = backend, .program = program, .sink = sink};
    must(d, dfx_executor_announce(backend, program), "announcing the ops");
    must(d, backend->vt->workspace_alloc(backend), "workspace");
    d->pages = calloc(program->n_pages + 1, sizeof(*d->pages));
    d->externs = calloc(program->n_externs + 1, sizeof(*d->externs));
    d->addresses = calloc(program->n_externs + 1, sizeof(*d->addresses));
    if (!d->pages || !d->externs || !d->addresses)
        abort();
    take(d, program->act_bytes, "activations", &d->activations);
    if (program->adapter_bytes)
        take(d, program->adapter_bytes, "adapters", &d->adapters);
    for (uint32_t i = 0; i < program->n_pages; i++)
        take_page(d, i);
    for (uint32_t i = 0; i < program->n_externs; i++) {
        take(d, extern_buf(program, i)->bytes, program->externs[i].name, &d->externs[i]);
        d->addresses[i] = d->externs[i].ptr;
    }
    d->executor = (dfx_executor){.backend = backend,
                                 .sink = sink,
                                 .activations = d->activations.ptr,
                                 .adapters = d->adapters.ptr,
                                 .activation_bytes = program->act_bytes};
}

void device_program_close(device_program *d) {
    const dfx_backend_vtable *vt = d->backend->vt;
    for (uint32_t i = 0; i < d->program->n_pages; i++)
        vt->free(d->backend, &d->pages[i]);
    for (uint32_t i = 0; i < d->program->n_externs; i++)
        vt->free(d->backend, &d->externs[i]);
    vt->free(d->backend, &d->activations);
    if (d->adapters.ptr)
        vt->free(d->backend, &d->adapters);
    vt->workspace_free(d->backend);
    free(d->pages);
    free(d->externs);
    free(d->addresses);
}

void device_program_put_adapters(device_program *d, const void *block) {
    size_t bytes = d->program->adapter_bytes;
    if (bytes)
        must(d, d->backend->vt->upload(d->backend, d->adapters.ptr, block, bytes), "upload");
}

void device_program_put(device_program *d, uint32_t extern_idx, const float *values) {
    const dfx_buf *buf = extern_buf(d->program, extern_idx);
    void *host = host_block(buf->bytes);
    assert_true(dfx_from_f32(buf->dtype, values, host, (size_t)(buf->rows * buf->cols)));
    must(d, d->backend->vt->upload(d->backend, d->addresses[extern_idx], host, buf->bytes),
         "upload");
    free(host);
}

void device_program_get(device_program *d, uint32_t extern_idx, float *values) {
    const dfx_buf *buf = extern_buf(d->program, extern_idx);
    const dfx_mat m = {.ptr = d->addresses[extern_idx],
                       .rows = buf->rows,
                       .cols = buf->cols,
                       .ld = buf->cols,
                       .dtype = buf->dtype};
    device_values(d->backend, &m, values);
}

bool device_program_writes(const dfx_program *program, uint32_t extern_idx) {
    for (uint32_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].r[0].buf == program->externs[extern_idx].buf)
            return true;
    return false;
}

static dfx_status page_that_stays(void *self, uint32_t region, uint32_t page_idx, void **base) {
    device_program *d = self;
    *base = d->pages[page_idx].ptr;
    return DFX_OK;
}

static void stays(void *self, uint32_t region) {}

void device_program_run(device_program *d, dfx_recorded *recorded, dfx_probe_fn probe, void *user) {
    const dfx_page_source pages = {.pin = page_that_stays, .unpin = stays, .self = d};
    d->executor.probe = probe;
    d->executor.probe_user = user;
    must(d, dfx_executor_run(&d->executor, d->program, recorded, &pages, d->addresses), "run");
}

void device_values(dfx_backend *backend, const dfx_mat *m, float *values) {
    size_t value_bytes = dfx_dtype_bytes(m->dtype);
    size_t bytes = (size_t)((m->rows - 1) * m->ld + m->cols) * value_bytes;
    char *host = host_block(bytes);
    if (backend->vt->download(backend, host, m->ptr, bytes) != DFX_OK)
        fail_msg("download of %zu bytes failed", bytes);
    for (int64_t t = 0; t < m->rows; t++)
        assert_true(dfx_to_f32(m->dtype, host + (size_t)(t * m->ld) * value_bytes,
                               values + t * m->cols, (size_t)m->cols));
    free(host);
}
