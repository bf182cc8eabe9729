#include "tools/random_header.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static dfx_status no_memory(const dfx_sink *sink) {
    return dfx_fail(sink, DFX_E_NOFIT, "random-model: out of memory");
}

static char *header_text(const dfx_tensor *const *tensors, size_t n) {
    json_t *root = json_object();
    uint64_t begin = 0;
    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (size_t i = 0; i < n; i++) {
        const dfx_tensor *t = tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dfx_dtype_name(t->dtype),
                                      "shape", shape, "data_offsets", (json_int_t)begin,
                                      (json_int_t)(begin + t->bytes)));
        begin += t->bytes;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

dfx_status dfx_safetensors_header(const dfx_tensor *const *tensors, size_t n, const dfx_sink *sink,
                                  uint8_t **out, size_t *n_bytes) {
    char *text = header_text(tensors, n);
    if (!text)
        return no_memory(sink);
    size_t n_text = strlen(text), n_padded = dfx_align_up(n_text, 8);
    dfx_status status = dfx_alloc(sink, 8 + n_padded, "random model", (void **)out);
    if (status == DFX_OK) {
        for (int i = 0; i < 8; i++)
            (*out)[i] = (uint8_t)((uint64_t)n_padded >> 8 * i);
        memcpy(*out + 8, text, n_text);
        memset(*out + 8 + n_text, ' ', n_padded - n_text);
        *n_bytes = 8 + n_padded;
    }
    free(text);
    return status;
}

/* ---- GGUF ---- */

enum { GGUF_ALIGN = 32, TYPE_STRING = 8 };

/* A buffer that grows; the first fault sticks. */
typedef struct bytes {
    uint8_t *data; /* owned */
    size_t n, cap;
    const dfx_sink *sink;
    dfx_status status;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    if (b->status == DFX_OK)
        b->status = dfx_grow(b->sink, b->n + n, 1, "random model", &b->cap, (void **)&b->data);
    if (b->status != DFX_OK)
        return;
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_number(bytes *b, uint64_t value, int n_bytes) {
    uint8_t le[8];
    for (int i = 0; i < 8; i++)
        le[i] = (uint8_t)(value >> 8 * i);
    put(b, le, (size_t)n_bytes);
}

static void put_string(bytes *b, const char *text) {
    put_number(b, strlen(text), 8);
    put(b, text, strlen(text));
}

/* ggml's number of a type; -1: none that is written here. */
static int ggml_type(dfx_dtype dtype) {
    switch (dtype) {
    case DFX_DTYPE_F32:
        return 0;
    case DFX_DTYPE_F16:
        return 1;
    case DFX_DTYPE_Q8_0:
        return 8;
    case DFX_DTYPE_BF16:
        return 30;
    default:
        return -1;
    }
}

static dfx_status put_tensors(bytes *b, const dfx_tensor *const *tensors, size_t n) {
    uint64_t off = 0;
    for (size_t i = 0; i < n; i++) {
        const dfx_tensor *t = tensors[i];
        if (ggml_type(t->dtype) < 0 || t->bytes % GGUF_ALIGN != 0)
            return dfx_fail(b->sink, DFX_E_INTERNAL,
                            "random-model: %s cannot be put into a GGUF file", t->name);
        put_string(b, t->name);
        put_number(b, (uint64_t)t->rank, 4);
        for (int d = t->rank - 1; d >= 0; d--)
            put_number(b, (uint64_t)t->shape[d], 8);
        put_number(b, (uint64_t)ggml_type(t->dtype), 4);
        put_number(b, off, 8);
        off += t->bytes;
    }
    return b->status;
}

dfx_status dfx_gguf_header(const dfx_tensor *const *tensors, size_t n, const char *architecture,
                           const dfx_sink *sink, uint8_t **out, size_t *n_bytes) {
    static const uint8_t zeros[GGUF_ALIGN];
    bytes b = {.sink = sink};
    put(&b, "GGUF", 4);
    put_number(&b, 3, 4);
    put_number(&b, n, 8);
    put_number(&b, 1, 8);
    put_string(&b, "general.architecture");
    put_number(&b, TYPE_STRING, 4);
    put_string(&b, architecture);
    dfx_status status = put_tensors(&b, tensors, n);
    put(&b, zeros, (GGUF_ALIGN - b.n % GGUF_ALIGN) % GGUF_ALIGN);
    status = status != DFX_OK ? status : b.status;
    if (status != DFX_OK) {
        dfx_free(b.data);
        return status;
    }
    *out = b.data;
    *n_bytes = b.n;
    return DFX_OK;
}
