/* See algo_file.h. */
#include "kernels/algo_file.h"

#include <string.h>

#include "core/checksum.h"
#include "core/file.h"

static const char MAGIC[8] = "DFXALGOS";

typedef struct head {
    char magic[8];
    uint32_t version, n;
    uint64_t checksum; /* of the bytes behind it */
    char heading[DFX_ALGOS_HEADING_BYTES];
} head;

enum { HEADING_AT = 24, FILE_BYTES_MAX = sizeof(head) + DFX_ALGOS_MAX * sizeof(dfx_algo) };

_Static_assert(offsetof(head, heading) == HEADING_AT && sizeof(head) == 408, "as the header says");
_Static_assert(sizeof(dfx_algo) == 160, "as the header says");

void dfx_algos_fini(dfx_algos *algos) {
    dfx_free(algos->list);
    *algos = (dfx_algos){0};
}

static dfx_algo *find(const dfx_algos *algos, const void *key) {
    for (size_t i = 0; i < algos->n; i++)
        if (memcmp(algos->list[i].key, key, DFX_ALGO_KEY_BYTES) == 0)
            return &algos->list[i];
    return NULL;
}

const void *dfx_algos_find(const dfx_algos *algos, const void *key) {
    const dfx_algo *found = find(algos, key);
    return found ? found->algo : NULL;
}

dfx_status dfx_algos_put(dfx_algos *algos, const void *key, const void *algo,
                         const dfx_sink *sink) {
    dfx_algo *entry = find(algos, key);
    if (!entry && algos->n == DFX_ALGOS_MAX) {
        memmove(algos->list, algos->list + 1, (DFX_ALGOS_MAX - 1) * sizeof(*algos->list));
        entry = &algos->list[DFX_ALGOS_MAX - 1];
    } else if (!entry) {
        DFX_TRY(dfx_grow(sink, algos->n + 1, sizeof(*algos->list), "algorithms", &algos->cap,
                         (void **)&algos->list));
        entry = &algos->list[algos->n++];
    }
    memcpy(entry->key, key, sizeof(entry->key));
    memcpy(entry->algo, algo, sizeof(entry->algo));
    return DFX_OK;
}

static void set_heading(head *h, const char *heading) {
    memset(h->heading, 0, sizeof(h->heading));
    memcpy(h->heading, heading, strnlen(heading, sizeof(h->heading) - 1));
}

dfx_status dfx_algos_encode(const dfx_algos *algos, const char *heading, const dfx_sink *sink,
                            void **out, size_t *out_bytes) {
    size_t list_bytes = algos->n * sizeof(*algos->list), bytes = sizeof(head) + list_bytes;
    head h = {.version = DFX_ALGOS_VERSION, .n = (uint32_t)algos->n};
    void *block;
    DFX_TRY(dfx_alloc(sink, bytes, "algorithms", &block));
    memcpy(h.magic, MAGIC, sizeof(MAGIC));
    set_heading(&h, heading);
    memcpy(block, &h, sizeof(h));
    if (list_bytes)
        memcpy((char *)block + sizeof(h), algos->list, list_bytes);
    h.checksum = dfx_xxh3((char *)block + HEADING_AT, bytes - HEADING_AT);
    memcpy(block, &h, sizeof(h));
    *out = block;
    *out_bytes = bytes;
    return DFX_OK;
}

const char *dfx_algos_decode(const void *bytes, size_t n_bytes, const char *heading,
                             dfx_algos *out) {
    head h, wanted;
    dfx_algo entry;
    if (n_bytes < sizeof(h))
        return "it is too short";
    memcpy(&h, bytes, sizeof(h));
    set_heading(&wanted, heading);
    if (memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0)
        return "it is a file of another kind";
    if (h.version != DFX_ALGOS_VERSION)
        return "it is of another version";
    if (h.n > DFX_ALGOS_MAX || n_bytes != sizeof(h) + h.n * sizeof(entry))
        return "its size does not fit its contents";
    if (h.checksum != dfx_xxh3((const char *)bytes + HEADING_AT, n_bytes - HEADING_AT))
        return "it is damaged";
    if (memcmp(h.heading, wanted.heading, sizeof(h.heading)) != 0)
        return "it is of another device, driver or library";
    for (uint32_t i = 0; i < h.n; i++) {
        memcpy(&entry, (const char *)bytes + sizeof(h) + i * sizeof(entry), sizeof(entry));
        if (find(out, entry.key) || dfx_algos_put(out, entry.key, entry.algo, NULL) != DFX_OK) {
            dfx_algos_fini(out);
            return "an entry is there twice, or there is no memory";
        }
    }
    return NULL;
}

/* What would be an error elsewhere is a detail here. `user` is the caller's sink. */
static void say_as_detail(void *user, dfx_level level, const char *text) {
    dfx_debug(user, "%s", text);
}

void dfx_algos_load(const char *path, const char *heading, const dfx_sink *sink, dfx_algos *out) {
    dfx_sink quiet = {.say = say_as_detail, .user = (void *)sink};
    char *bytes;
    size_t n_bytes;
    if (!dfx_file_exists(path) ||
        dfx_file_slurp(path, &quiet, FILE_BYTES_MAX, &bytes, &n_bytes) != DFX_OK)
        return;
    const char *fault = dfx_algos_decode(bytes, n_bytes, heading, out);
    dfx_free(bytes);
    if (fault)
        dfx_debug(sink, "%s: algorithms are not taken from it: %s", path, fault);
}

/* The choices of others go behind ours, and are the first to go when the list is full. */
static void take_others(const char *path, const char *heading, dfx_algos *algos,
                        const dfx_sink *quiet) {
    dfx_algos others = {0};
    dfx_algos_load(path, heading, quiet, &others);
    for (size_t i = 0; i < others.n && algos->n < DFX_ALGOS_MAX; i++)
        if (!find(algos, others.list[i].key))
            dfx_algos_put(algos, others.list[i].key, others.list[i].algo, quiet);
    dfx_algos_fini(&others);
}

void dfx_algos_store(const char *path, const char *heading, dfx_algos *algos,
                     const dfx_sink *sink) {
    dfx_sink quiet = {.say = say_as_detail, .user = (void *)sink};
    dfx_file_writer file;
    void *bytes;
    size_t n_bytes;
    take_others(path, heading, algos, &quiet);
    if (dfx_algos_encode(algos, heading, &quiet, &bytes, &n_bytes) != DFX_OK)
        return;
    if (dfx_file_write_begin(path, &quiet, &file) == DFX_OK) {
        if (dfx_file_write(&file, &quiet, bytes, n_bytes) == DFX_OK)
            dfx_file_write_commit(&file, &quiet);
        else
            dfx_file_write_abort(&file);
    }
    dfx_free(bytes);
}
