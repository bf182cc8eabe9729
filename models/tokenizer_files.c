#include "models/tokenizer_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "models/cache.h"
#include "models/configs.h"
#include "models/tok_clip.h"
#include "models/tok_t5.h"

enum { FILE_BYTES_MAX = 64 << 20 };

static const char FOLDER[] = "tokenizers"; /* in the cache */

bool dfx_tokenizer_file_is(const char *path) {
    return strncmp(path, "tokenizer/", 10) == 0 || strncmp(path, "tokenizer_2/", 12) == 0;
}

static bool is_complete(const dfx_bundle *b) {
    return (dfx_bundle_has(b, "tokenizer/tokenizer.json") ||
            (dfx_bundle_has(b, "tokenizer/vocab.json") &&
             dfx_bundle_has(b, "tokenizer/merges.txt"))) &&
           (dfx_bundle_has(b, "tokenizer_2/tokenizer.json") ||
            dfx_bundle_has(b, "tokenizer_2/spiece.model"));
}

static dfx_bundle folder_bundle(const char *folder) {
    return (dfx_bundle){.folder = folder, .name = folder};
}

#define WANTED                                                                                  \
    "tokenizer/vocab.json and tokenizer/merges.txt (CLIP), tokenizer_2/tokenizer.json or "      \
    "tokenizer_2/spiece.model (T5), all of them in the folder of FLUX.1-dev or FLUX.1-schnell " \
    "where the weights are published"

static dfx_status find_given(const char *given, const dfx_sink *sink, dfx_tokenizer_files *out) {
    bool packed = false, is_dir = dfx_file_is_dir(given);
    if (!is_dir && dfx_file_exists(given))
        DFX_TRY(dfx_packed_ask(given, sink, &packed));
    if (!is_dir && !packed)
        return dfx_fail(
            sink, dfx_file_exists(given) ? DFX_E_FORMAT : DFX_E_IO,
            "--tokenizer %s: wanted a folder with tokenizer/ and tokenizer_2/ in it, or "
            "a packed model, found %s",
            given, dfx_file_exists(given) ? "another file" : "nothing there");
    if (packed)
        DFX_TRY(dfx_packed_open(given, sink, &out->packed));
    if (strlen(given) >= sizeof(out->folder))
        return dfx_fail(sink, DFX_E_USAGE, "--tokenizer: a path of %zu bytes", strlen(given));
    strcpy(out->folder, given);
    out->bundle = packed ? dfx_packed_bundle(out->packed) : folder_bundle(out->folder);
    return is_complete(&out->bundle)
               ? DFX_OK
               : dfx_fail(sink, DFX_E_FORMAT, "--tokenizer %s: wanted in it " WANTED, given);
}

static dfx_status find_cached(const dfx_sink *sink, dfx_tokenizer_files *out) {
    char cache[DFX_PATH_BYTES];
    bool there = dfx_cache_find(cache) && dfx_path_join(NULL, cache, FOLDER, out->folder) == DFX_OK;
    out->bundle = folder_bundle(out->folder);
    out->from_cache = true;
    if (there && is_complete(&out->bundle))
        return DFX_OK;
    return dfx_fail(sink, DFX_E_IO,
                    "no tokenizers: single files have none; get " WANTED ", and put both folders "
                    "into %s, or name the folder that they are in with --tokenizer",
                    there ? out->folder : "the cache folder");
}

dfx_status dfx_tokenizer_files_find(const char *given, const dfx_sink *sink,
                                    dfx_tokenizer_files *out) {
    *out = (dfx_tokenizer_files){0};
    dfx_status status = given ? find_given(given, sink, out) : find_cached(sink, out);
    if (status != DFX_OK)
        dfx_tokenizer_files_close(out);
    return status;
}

void dfx_tokenizer_files_close(dfx_tokenizer_files *files) {
    dfx_packed_close(files->packed);
    files->packed = NULL;
}

/* ---- the copy ---- */

static bool makes(const dfx_tokens *got, const int32_t *ids, size_t n) {
    return got->n == n && memcmp(got->ids, ids, n * sizeof(*ids)) == 0;
}

/* Ids of FLUX's vocabularies for "a cat". */
static bool are_those_of_flux(const dfx_bundle *bundle) {
    static const int32_t clip_ids[] = {49406, 320, 2368, 49407}, t5_ids[] = {3, 9, 1712, 1};
    static const char text[] = "a cat";
    const dfx_sink quiet = {0};
    dfx_tok_clip *clip = NULL;
    dfx_tok_t5 *t5 = NULL;
    dfx_tokens a = {0}, b = {0};
    bool same = dfx_tok_clip_open(bundle, "tokenizer", &quiet, &clip) == DFX_OK &&
                dfx_tok_t5_open(bundle, "tokenizer_2", &quiet, &t5) == DFX_OK &&
                dfx_tok_clip_encode(clip, text, strlen(text), 8, &quiet, &a) == DFX_OK &&
                dfx_tok_t5_encode(t5, text, strlen(text), 8, &quiet, &b) == DFX_OK &&
                makes(&a, clip_ids, DFX_COUNT(clip_ids)) && makes(&b, t5_ids, DFX_COUNT(t5_ids));
    dfx_tokens_free(&a);
    dfx_tokens_free(&b);
    dfx_tok_clip_close(clip);
    dfx_tok_t5_close(t5);
    return same;
}

static dfx_status make_folder(const char *path, const dfx_sink *sink) {
    if (mkdir(path, 0755) == 0 || errno == EEXIST)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_IO, "%s: the folder cannot be made: %s", path, strerror(errno));
}

static dfx_status copy_file(const dfx_bundle *from, const char *folder, const char *path,
                            const dfx_sink *sink) {
    char to[DFX_PATH_BYTES], *text;
    size_t bytes;
    dfx_file_writer writer;
    DFX_TRY(dfx_path_join(sink, folder, path, to));
    DFX_TRY(dfx_bundle_slurp(from, path, sink, FILE_BYTES_MAX, &text, &bytes));
    dfx_status status = dfx_file_write_begin(to, sink, &writer);
    if (status == DFX_OK) {
        status = dfx_file_write(&writer, sink, text, bytes);
        if (status == DFX_OK)
            status = dfx_file_write_commit(&writer, sink);
        else
            dfx_file_write_abort(&writer);
    }
    dfx_free(text);
    return status;
}

static dfx_status copy_all(const dfx_bundle *from, const dfx_sink *sink,
                           char folder[DFX_PATH_BYTES], bool *copied) {
    char cache[DFX_PATH_BYTES];
    char sub[DFX_PATH_BYTES];
    DFX_TRY(dfx_cache_folder(sink, cache));
    DFX_TRY(dfx_path_join(sink, cache, FOLDER, folder));
    dfx_bundle there = folder_bundle(folder);
    if (is_complete(&there))
        return DFX_OK;
    DFX_TRY(make_folder(folder, sink));
    DFX_TRY(dfx_path_join(sink, folder, "tokenizer", sub));
    DFX_TRY(make_folder(sub, sink));
    DFX_TRY(dfx_path_join(sink, folder, "tokenizer_2", sub));
    DFX_TRY(make_folder(sub, sink));
    for (size_t i = dfx_n_model_files; i-- > 0;) /* vocabularies last: then it is complete */
        if (dfx_tokenizer_file_is(dfx_model_files[i]) && dfx_bundle_has(from, dfx_model_files[i]))
            DFX_TRY(copy_file(from, folder, dfx_model_files[i], sink));
    *copied = true;
    return DFX_OK;
}

static void say_as_warning(void *user, dfx_level level, const char *text) {
    if (level == DFX_ERROR)
        dfx_warn(user, "the tokenizers were not remembered: %s", text);
}

void dfx_tokenizer_files_remember(const dfx_tokenizer_files *files, const dfx_sink *sink) {
    const dfx_sink faults = {.say = say_as_warning, .user = (void *)sink};
    char to[DFX_PATH_BYTES];
    bool copied = false;
    if (files->from_cache || !are_those_of_flux(&files->bundle))
        return;
    if (copy_all(&files->bundle, &faults, to, &copied) == DFX_OK && copied)
        dfx_info(sink, "tokenizers copied to %s: --tokenizer is not needed again", to);
}
