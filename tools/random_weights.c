#include "tools/random_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "core/rng.h"

enum { TABLE = 1 << 16, BIAS_SHIFT = 6 };

/* ---- which tensors ---- */

/* Side of the kernel of the convolution that reads a weight; 0 when none does. */
static int kernel_of(const dfx_program *p, uint32_t weight_idx) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (int slot = 0; slot < DFX_OP_SLOTS && p->ops[i].kind == DFX_OP_CONV2D; slot++) {
            const dfx_buf *buf = &p->bufs[p->ops[i].r[slot].buf];
            if (p->ops[i].r[slot].buf && buf->kind == DFX_BUF_WEIGHT && buf->idx == weight_idx &&
                buf->rows > 1)
                return (int)p->ops[i].p.conv.k;
        }
    return 0;
}

/* The shape that diffusers gives a weight that an op sees as [rows, cols]. */
static void set_shape(const dfx_program *p, const dfx_buf *buf, dfx_tensor *t) {
    int k = kernel_of(p, buf->idx);
    bool as_conv = k > 0 || strstr(t->name, "conv_shortcut.weight") != NULL;
    int64_t side = k > 0 ? k : 1;
    t->rank = buf->rows == 1 ? 1 : as_conv ? 4 : 2;
    int64_t shape[4] = {buf->rows, buf->cols / (as_conv ? side * side : 1), side, side};
    if (t->rank == 1)
        shape[0] = buf->cols;
    memcpy(t->shape, shape, sizeof(shape));
}

static dfx_status add_tensors(dfx_tensors *set, const dfx_program *p, const dfx_sink *sink) {
    for (uint32_t i = 1; i < p->n_bufs; i++) {
        const dfx_buf *buf = &p->bufs[i];
        dfx_tensor t = {.dtype = DFX_DTYPE_BF16, .file_idx = DFX_TENSOR_NO_FILE};
        bool again = false; /* one weight may be named by several ops */
        for (uint32_t k = 1; k < i; k++)
            again |= p->bufs[k].kind == DFX_BUF_WEIGHT && p->bufs[k].idx == buf->idx;
        if (buf->kind != DFX_BUF_WEIGHT || again)
            continue;
        t.name = p->weights[buf->idx].name;
        set_shape(p, buf, &t);
        if (!dfx_tensor_measure(&t))
            return dfx_fail(sink, DFX_E_INTERNAL, "random-model: tensor %s is too large", t.name);
        DFX_TRY(dfx_tensors_add(set, &t, sink));
    }
    return DFX_OK;
}

static dfx_status init(dfx_random_weights *w, const dfx_architecture *arch, const dfx_sink *sink) {
    static const dfx_tensors *const none[DFX_N_COMPONENTS];
    dfx_rng rng;
    float *numbers;
    size_t n;
    DFX_TRY(dfx_pack_build(&arch->configs, none, sink, w->shapes, &n));
    for (int c = 0; c < DFX_N_COMPONENTS; c++) {
        DFX_TRY(dfx_tensors_new_view(NULL, sink, &w->sets[c]));
        for (int p = 0; p < DFX_PACK_PROGRAMS; p++)
            if ((int)dfx_pack_component_of[p] == c)
                DFX_TRY(add_tensors(w->sets[c], &w->shapes[p], sink));
        DFX_TRY(dfx_tensors_seal(w->sets[c], sink));
    }
    DFX_TRY(dfx_new_array(sink, TABLE, "random weights", &w->table));
    DFX_TRY(dfx_new_array(sink, TABLE, "random weights", &numbers));
    dfx_rng_seed(&rng, 0);
    dfx_rng_normal(&rng, numbers, TABLE);
    dfx_from_f32(DFX_DTYPE_BF16, numbers, w->table, TABLE);
    dfx_free(numbers);
    return DFX_OK;
}

dfx_status dfx_random_weights_init(dfx_random_weights *w, const dfx_architecture *arch,
                                   uint64_t seed, const dfx_sink *sink) {
    *w = (dfx_random_weights){.seed = seed};
    dfx_status status = init(w, arch, sink);
    if (status != DFX_OK)
        dfx_random_weights_fini(w);
    return status;
}

void dfx_random_weights_fini(dfx_random_weights *w) {
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        dfx_tensors_close(w->sets[c]);
    for (int p = 0; p < DFX_PACK_PROGRAMS; p++)
        dfx_program_fini(&w->shapes[p]);
    dfx_free(w->table);
    *w = (dfx_random_weights){0};
}

/* ---- values ---- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* A vector that is no bias scales: the weight of a norm. */
static bool is_one(const dfx_tensor *t) {
    return t->rank == 1 && !ends_with(t->name, ".bias");
}

static unsigned shift_of(const dfx_tensor *t) {
    if (t->rank == 1)
        return BIAS_SHIFT;
    double inputs = (double)(t->n_elements / (uint64_t)t->shape[0]);
    return (unsigned)lround(log2(inputs) / 2);
}

static uint64_t stream_of(const dfx_random_weights *w, const char *component, const dfx_tensor *t) {
    char name[512];
    int n = snprintf(name, sizeof(name), "%s.%s", component, t->name);
    return dfx_xxh3(name, (size_t)n) + (w->seed + 1) * UINT64_C(0xD1B54A32D192ED03);
}

static uint64_t word(uint64_t stream, uint64_t i) {
    uint64_t z = stream + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Dividing by 2^k takes k from the exponent; of 65536 normal numbers none is so small that it would not do. */
static uint16_t scaled(uint16_t bf16, unsigned shift) {
    return (uint16_t)(bf16 - (shift << 7));
}

float dfx_random_weights_max(const dfx_random_weights *w, const dfx_tensor *t) {
    float most = 0;
    for (size_t i = 0; i < TABLE; i++)
        most = fmaxf(most, fabsf(dfx_bf16_to_f32(w->table[i])));
    return is_one(t) ? 1 : ldexpf(most, -(int)shift_of(t));
}

dfx_status dfx_random_weights_read(void *user, const char *component, const dfx_tensor *t,
                                   uint64_t off, void *dst, size_t n_bytes) {
    const dfx_random_weights *w = user;
    const uint16_t *table = w->table;
    uint16_t *to = dst;
    uint64_t i = off / 2, end = i + n_bytes / 2, stream = stream_of(w, component, t);
    unsigned shift = shift_of(t);
    if (is_one(t)) {
        for (; i < end; i++)
            *to++ = dfx_f32_to_bf16(1.0f);
        return DFX_OK;
    }
    for (; i < end && i % 4 != 0; i++)
        *to++ = scaled(table[word(stream, i / 4) >> 16 * (i % 4) & 0xffff], shift);
    for (; i + 4 <= end; i += 4, to += 4) {
        uint64_t z = word(stream, i / 4);
        to[0] = scaled(table[z & 0xffff], shift);
        to[1] = scaled(table[z >> 16 & 0xffff], shift);
        to[2] = scaled(table[z >> 32 & 0xffff], shift);
        to[3] = scaled(table[z >> 48], shift);
    }
    for (; i < end; i++)
        *to++ = scaled(table[word(stream, i / 4) >> 16 * (i % 4) & 0xffff], shift);
    return DFX_OK;
}
