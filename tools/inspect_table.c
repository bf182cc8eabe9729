/* See inspect_table.h. json_pack with a NULL part gives NULL and frees the rest, so running out of memory anywhere ends
 * as NULL here. */
#include "tools/inspect_table.h"

#include <string.h>

#include "tools/inspect_kind.h"

typedef struct tensor_sum {
    uint64_t n_tensors, n_parameters, n_bytes;
} tensor_sum;

static void count(tensor_sum *sum, const dfx_tensor *tensor) {
    sum->n_tensors++;
    sum->n_parameters += tensor->n_elements;
    sum->n_bytes += tensor->bytes;
}

/* Appends; false, and `array` stays as it is, when out of memory. */
static bool append(json_t *array, json_t *value) {
    return json_array_append_new(array, value) == 0;
}

static json_t *give_or_drop(json_t *array, bool good) {
    if (good)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *dtypes(const dfx_tensors *set) {
    tensor_sum sums[DFX_N_DTYPES] = {0};
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; i < dfx_tensors_count(set); i++)
        count(&sums[dfx_tensors_at(set, i)->dtype], dfx_tensors_at(set, i));
    for (int d = 0; good && d < DFX_N_DTYPES; d++)
        if (sums[d].n_tensors)
            good = append(array,
                          json_pack("{s:s, s:I, s:I, s:I}", "dtype", dfx_dtype_name((dfx_dtype)d),
                                    "tensors", (json_int_t)sums[d].n_tensors, "parameters",
                                    (json_int_t)sums[d].n_parameters, "bytes",
                                    (json_int_t)sums[d].n_bytes));
    return give_or_drop(array, good);
}

/* Length of the words, with their dots, that begin every name: names are sorted, so first and last decide. */
static size_t shared_words(const dfx_tensors *set) {
    size_t shared = 0, n = dfx_tensors_count(set);
    if (n < 2)
        return 0;
    const char *first = dfx_tensors_at(set, 0)->name, *last = dfx_tensors_at(set, n - 1)->name;
    for (size_t i = 0; first[i] && first[i] == last[i]; i++)
        if (first[i] == '.')
            shared = i + 1;
    return shared;
}

static bool append_group(json_t *array, const char *name, size_t name_bytes,
                         const tensor_sum *sum) {
    return append(array, json_pack("{s:s%, s:I, s:I}", "name", name, name_bytes, "tensors",
                                   (json_int_t)sum->n_tensors, "bytes", (json_int_t)sum->n_bytes));
}

/* Sorted names keep a group together. */
static json_t *groups(const dfx_tensors *set) {
    size_t shared = shared_words(set), group_bytes = 0;
    const char *group = NULL;
    tensor_sum so_far = {0};
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < dfx_tensors_count(set); i++) {
        const dfx_tensor *tensor = dfx_tensors_at(set, i);
        size_t name_bytes = shared + strcspn(tensor->name + shared, ".");
        if (group && (name_bytes != group_bytes || memcmp(group, tensor->name, name_bytes) != 0)) {
            good = append_group(array, group, group_bytes, &so_far);
            so_far = (tensor_sum){0};
        }
        group = tensor->name;
        group_bytes = name_bytes;
        count(&so_far, tensor);
    }
    if (good && group)
        good = append_group(array, group, group_bytes, &so_far);
    return give_or_drop(array, good);
}

static json_t *list(const dfx_tensors *set) {
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < dfx_tensors_count(set); i++) {
        const dfx_tensor *tensor = dfx_tensors_at(set, i);
        json_t *shape = json_array();
        good = shape != NULL;
        for (int d = 0; good && d < tensor->rank; d++)
            good = append(shape, json_integer(tensor->shape[d]));
        good = append(array, json_pack("{s:s, s:s, s:o, s:I}", "name", tensor->name, "dtype",
                                       dfx_dtype_name(tensor->dtype), "shape", good ? shape : NULL,
                                       "bytes", (json_int_t)tensor->bytes));
    }
    return give_or_drop(array, good);
}

json_t *dfx_inspect_table(const dfx_tensors *set, bool listed) {
    char kind[DFX_KIND_TEXT_BYTES];
    tensor_sum all = {0};
    for (size_t i = 0; i < dfx_tensors_count(set); i++)
        count(&all, dfx_tensors_at(set, i));
    dfx_kind_text(set, kind);
    json_t *table =
        json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "kind", kind, "tensors",
                  (json_int_t)all.n_tensors, "parameters", (json_int_t)all.n_parameters, "bytes",
                  (json_int_t)all.n_bytes, "dtypes", dtypes(set), "groups", groups(set));
    if (table && listed && json_object_set_new(table, "list", list(set)) != 0) {
        json_decref(table);
        table = NULL;
    }
    return table;
}
