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

dfx_status dfx_tensors_seal(dfx_tensors *set, const dfx_sink *sink) {
    if (set->n_files < 2)
        return DFX_OK;
    qsort(set->tensors, set->n_tensors, sizeof(*set->tensors), dfx_tensor_by_name);
    for (size_t i = 1; i < set->n_tensors; i++) {
        const dfx_tensor *a = &set->tensors[i - 1], *b = &set->tensors[i];
        char name[DFX_NAME_TEXT];
        if (strcmp(a->name, b->name) == 0)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "tensor \"%s\" is in two files, %s and %s, and only one can be right",
                            dfx_name_text(a->name, name), dfx_tensors_file_path(set, a->file_idx),
                            dfx_tensors_file_path(set, b->file_idx));
    }
    return DFX_OK;
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
    return set->n_files;
}

const char *dfx_tensors_file_path(const dfx_tensors *set, uint32_t file_idx) {
    return set->files[file_idx].file.path;
}

const char *dfx_tensors_metadata(const dfx_tensors *set, const char *key) {
    const dfx_tensors_file *first = set->files;
    for (size_t i = 0; i < first->n_meta; i++)
        if (strcmp(first->meta[i].key, key) == 0)
            return first->meta[i].value;
    return NULL;
}

dfx_status dfx_tensors_read(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            void *dst) {
    return dfx_file_read(&set->files[tensor->file_idx].file, sink, tensor->off, dst,
                         (size_t)tensor->bytes);
}

dfx_status dfx_tensors_read_f32(const dfx_tensors *set, const dfx_tensor *tensor,
                                const dfx_sink *sink, float *dst) {
    const dfx_file *file = &set->files[tensor->file_idx].file;
    char name[DFX_NAME_TEXT];
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
