/* The table of tensors: life, lookup, reading. Who fills it has checked every number. */
#include "core/tensors_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes read at a time where values are widened on the way. */
enum { WIDEN_BYTES = 1 << 20 };

dfx_status dfx_tensors_new(const dfx_sink *sink, dfx_tensors **out) {
    return dfx_new(sink, "tensors", out);
}

void dfx_tensors_close(dfx_tensors *set) {
    if (!set)
        return;
    for (size_t i = 0; i < set->n_files; i++) {
        dfx_file_close(&set->files[i].file);
        dfx_free(set->files[i].header);
        dfx_free(set->files[i].meta);
    }
    dfx_free(set->files);
    dfx_free(set->tensors);
    dfx_free(set);
}

int dfx_tensor_by_name(const void *a, const void *b) {
    return strcmp(((const dfx_tensor *)a)->name, ((const dfx_tensor *)b)->name);
}

dfx_status dfx_tensors_new_view(const dfx_tensors *base, const dfx_sink *sink, dfx_tensors **out) {
    DFX_TRY(dfx_tensors_new(sink, out));
    (*out)->base = base;
    return DFX_OK;
}

dfx_status dfx_tensors_add(dfx_tensors *view, const dfx_tensor *tensor, const dfx_sink *sink) {
    DFX_TRY(dfx_grow(sink, view->n_tensors + 1, sizeof(*tensor), "tensors", &view->cap_tensors,
                     (void **)&view->tensors));
    view->tensors[view->n_tensors++] = *tensor;
    view->bytes += tensor->bytes;
    return DFX_OK;
}

static dfx_status twice(const dfx_tensors *set, const dfx_tensor *a, const dfx_tensor *b,
                        const dfx_sink *sink) {
    char name[DFX_NAME_TEXT];
    dfx_name_text(a->name, name);
    if (a->file_idx == b->file_idx || a->file_idx == DFX_TENSOR_NO_FILE ||
        b->file_idx == DFX_TENSOR_NO_FILE)
        return dfx_fail(sink, DFX_E_FORMAT, "tensor \"%s\" is there twice", name);
    return dfx_fail(
        sink, DFX_E_FORMAT, "tensor \"%s\" is in two files, %s and %s, and only one can be right",
        name, dfx_tensors_file_path(set, a->file_idx), dfx_tensors_file_path(set, b->file_idx));
}

dfx_status dfx_tensors_seal(dfx_tensors *set, const dfx_sink *sink) {
    if (set->n_files == 1 || set->n_tensors == 0) /* one file's are sorted already */
        return DFX_OK;
    qsort(set->tensors, set->n_tensors, sizeof(*set->tensors), dfx_tensor_by_name);
    for (size_t i = 1; i < set->n_tensors; i++)
        if (dfx_tensor_by_name(&set->tensors[i - 1], &set->tensors[i]) == 0)
            return twice(set, &set->tensors[i - 1], &set->tensors[i], sink);
    return DFX_OK;
}

/* Whose files a set's tensors are in. */
static const dfx_tensors *owner(const dfx_tensors *set) {
    while (set->base)
        set = set->base;
    return set;
}

/* NULL, said, when it lies in none. */
static const dfx_file *file_of(const dfx_tensors *set, const dfx_tensor *tensor,
                               const dfx_sink *sink) {
    char name[DFX_NAME_TEXT];
    if (tensor->file_idx != DFX_TENSOR_NO_FILE)
        return &owner(set)->files[tensor->file_idx].file;
    dfx_fail(sink, DFX_E_INTERNAL, "tensor \"%s\" lies in no file by itself",
             dfx_name_text(tensor->name, name));
    return NULL;
}

size_t dfx_tensors_count(const dfx_tensors *set) {
    return set->n_tensors;
}

const dfx_tensor *dfx_tensors_at(const dfx_tensors *set, size_t idx) {
    return &set->tensors[idx];
}

const dfx_tensor *dfx_tensors_find(const dfx_tensors *set, const char *name) {
    dfx_tensor wanted = {.name = name};
    if (set->n_tensors == 0)
        return NULL;
    return bsearch(&wanted, set->tensors, set->n_tensors, sizeof(wanted), dfx_tensor_by_name);
}

uint64_t dfx_tensors_bytes(const dfx_tensors *set) {
    return set->bytes;
}

size_t dfx_tensors_n_files(const dfx_tensors *set) {
    return owner(set)->n_files;
}

const char *dfx_tensors_file_path(const dfx_tensors *set, uint32_t file_idx) {
    return owner(set)->files[file_idx].file.path;
}

const char *dfx_tensors_metadata(const dfx_tensors *set, const char *key) {
    const dfx_tensors_file *first = owner(set)->files;
    for (size_t i = 0; first && i < first->n_meta; i++)
        if (strcmp(first->meta[i].key, key) == 0)
            return first->meta[i].value;
    return NULL;
}

dfx_status dfx_tensors_read(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            void *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    if (!file)
        return DFX_E_INTERNAL;
    return dfx_file_read(file, sink, tensor->off, dst, (size_t)tensor->bytes);
}

dfx_status dfx_tensors_read_part(const dfx_tensors *set, const dfx_tensor *tensor, uint64_t off,
                                 size_t n_bytes, const dfx_sink *sink, void *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    if (!file)
        return DFX_E_INTERNAL;
    return dfx_file_read(file, sink, tensor->off + off, dst, n_bytes);
}

dfx_status dfx_tensors_read_f32(const dfx_tensors *set, const dfx_tensor *tensor,
                                const dfx_sink *sink, float *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    char name[DFX_NAME_TEXT];
    if (!file)
        return DFX_E_INTERNAL;
    if (tensor->dtype == DFX_DTYPE_F32)
        return dfx_tensors_read(set, tensor, sink, dst);
    if (!dfx_dtype_is_numeric(tensor->dtype))
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: tensor \"%s\": %s values cannot be read as numbers", file->path,
                        dfx_name_text(tensor->name, name), dfx_dtype_name(tensor->dtype));
    size_t element_bytes = dfx_dtype_bytes(tensor->dtype);
    uint64_t chunk = WIDEN_BYTES / element_bytes;
    if (chunk > tensor->n_elements)
        chunk = tensor->n_elements;
    dfx_mem stored;
    DFX_TRY(dfx_mem_alloc(sink, (size_t)chunk * element_bytes, "tensor widening", &stored));
    dfx_status status = DFX_OK;
    for (uint64_t at = 0; status == DFX_OK && at < tensor->n_elements; at += chunk) {
        uint64_t left = tensor->n_elements - at;
        size_t n = (size_t)(left < chunk ? left : chunk);
        status = dfx_file_read(file, sink, tensor->off + at * element_bytes, stored.ptr,
                               n * element_bytes);
        if (status == DFX_OK)
            dfx_to_f32(tensor->dtype, stored.ptr, dst + at, n);
    }
    dfx_mem_free(&stored);
    return status;
}

/* Zeros are left out of the overflow check: users of a shape may multiply in any order. */
bool dfx_tensor_count(const dfx_tensor *tensor, uint64_t *n_elements, uint64_t *bits) {
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        empty |= tensor->shape[i] == 0;
        if (tensor->shape[i] != 0 && __builtin_mul_overflow(product, tensor->shape[i], &product))
            return false;
    }
    *n_elements = empty ? 0 : (uint64_t)product;
    return !__builtin_mul_overflow(*n_elements, dfx_dtype_bits(tensor->dtype), bits);
}

bool dfx_tensor_measure(dfx_tensor *tensor) {
    uint64_t n_elements, bits;
    if (!dfx_tensor_count(tensor, &n_elements, &bits) || bits % 8 != 0)
        return false;
    tensor->n_elements = n_elements;
    tensor->bytes = bits / 8;
    return true;
}

char *dfx_tensor_shape_text(const dfx_tensor *tensor, char text[DFX_SHAPE_TEXT]) {
    int len = snprintf(text, DFX_SHAPE_TEXT, "%s [", dfx_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        len += snprintf(text + len, (size_t)(DFX_SHAPE_TEXT - len), "%s%lld", i ? ", " : "",
                        (long long)tensor->shape[i]);
    snprintf(text + len, (size_t)(DFX_SHAPE_TEXT - len), "]");
    return text;
}

char *dfx_name_text(const char *name, char text[DFX_NAME_TEXT]) {
    static const char dots[] = "...";
    size_t len = strnlen(name, DFX_NAME_TEXT);
    bool cut = len == DFX_NAME_TEXT;
    if (cut) {
        len = DFX_NAME_TEXT - sizeof(dots);
        while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80)
            len--;
    }
    for (size_t i = 0; i < len; i++)
        text[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    strcpy(text + len, cut ? dots : "");
    return text;
}
