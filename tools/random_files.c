#include "tools/random_files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_write.h"

/* Name and defaults. */
static json_t *defaults(const dfx_architecture *a) {
    json_t *json = json_object();
    char name[64];
    snprintf(name, sizeof(name), "%s, random weights", a->name);
    json_object_set_new(json, "name", json_string(name));
    json_object_set_new(json, "steps", json_integer(a->steps));
    json_object_set_new(json, "width", json_integer(a->side));
    json_object_set_new(json, "height", json_integer(a->side));
    return json;
}

static json_t *model_index(const dfx_architecture *a) {
    return dfx_config_write_index();
}

static json_t *scheduler(const dfx_architecture *a) {
    return dfx_config_write_scheduler(&a->configs.sigmas);
}

static json_t *transformer(const dfx_architecture *a) {
    return dfx_config_write_flux(&a->configs.flux);
}

static json_t *clip(const dfx_architecture *a) {
    return dfx_config_write_clip(&a->configs.clip, a->n_clip_pieces);
}

static json_t *t5(const dfx_architecture *a) {
    return dfx_config_write_t5(&a->configs.t5);
}

static json_t *vae(const dfx_architecture *a) {
    return dfx_config_write_vae(&a->configs.vae, a->side ? a->side : 1024);
}

/* ---- tokenizers ---- */

enum { PIECE_BYTES = 24 };

/* A code point as UTF-8. */
static void utf8(unsigned code, char text[4]) {
    if (code < 0x80)
        snprintf(text, 4, "%c", (int)code);
    else
        snprintf(text, 4, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
}

/* CLIP writes a byte that is no visible character as one above U+0100, in their order. */
static unsigned byte_letter(unsigned byte) {
    unsigned n_hidden = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool visible = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        if (b == byte)
            return visible ? byte : 0x100 + n_hidden;
        n_hidden += !visible;
    }
    return byte;
}

static void filler(int i, char text[PIECE_BYTES]) {
    snprintf(text, PIECE_BYTES, "filler%05d", i);
}

/* The vocabulary, or NULL when memory did not do for all of it. */
static json_t *whole(json_t *vocabulary, size_t n, int wanted) {
    if (n == (size_t)wanted)
        return vocabulary;
    json_decref(vocabulary);
    return NULL;
}

static json_t *clip_vocabulary(const dfx_architecture *a) {
    json_t *json = json_object();
    char letter[4], piece[PIECE_BYTES];
    int id = 0;
    for (int end = 0; end < 2; end++)
        for (unsigned byte = 0; byte < 256; byte++) {
            utf8(byte_letter(byte), letter);
            snprintf(piece, sizeof(piece), "%s%s", letter, end ? "</w>" : "");
            json_object_set_new(json, piece, json_integer(id++));
        }
    for (; id < a->n_clip_pieces - 2; id++) {
        filler(id, piece);
        json_object_set_new(json, piece, json_integer(id));
    }
    json_object_set_new(json, "<|startoftext|>", json_integer(id++));
    json_object_set_new(json, "<|endoftext|>", json_integer(id++));
    return whole(json, json_object_size(json), a->n_clip_pieces);
}

static json_t *clip_tokenizer_config(const dfx_architecture *a) {
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "bos_token", "<|startoftext|>", "eos_token",
                     "<|endoftext|>", "pad_token", "<|endoftext|>", "unk_token", "<|endoftext|>",
                     "model_max_length", (int)a->configs.clip.n_positions, "tokenizer_class",
                     "CLIPTokenizer");
}

static json_t *t5_pieces(const dfx_architecture *a) {
    static const char *const special[] = {"<pad>", "</s>", "<unk>", "\xe2\x96\x81"};
    json_t *list = json_array();
    char piece[PIECE_BYTES];
    int n = 0;
    for (; n < 4; n++)
        json_array_append_new(list, json_pack("[s, f]", special[n], n == 3 ? -6.0 : 0.0));
    for (int c = 0x21; c < 0x7f; c++, n++) {
        snprintf(piece, sizeof(piece), "%c", c);
        json_array_append_new(list, json_pack("[s, f]", piece, -8.0));
    }
    for (; n < a->n_t5_pieces; n++) {
        filler(n, piece);
        json_array_append_new(list, json_pack("[s, f]", piece, -99.0));
    }
    return whole(list, json_array_size(list), a->n_t5_pieces);
}

static json_t *t5_tokenizer(const dfx_architecture *a) {
    static const char *const special[] = {"<pad>", "</s>", "<unk>"};
    json_t *added = json_array();
    for (int i = 0; i < 3; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                               "content", special[i], "single_word", 0, "lstrip", 0,
                                               "rstrip", 0, "normalized", 0, "special", 1));
    json_t *splitter =
        json_pack("{s:s, s:[{s:s}, {s:s, s:s, s:s, s:b}]}", "type", "Sequence", "pretokenizers",
                  "type", "WhitespaceSplit", "type", "Metaspace", "replacement", "\xe2\x96\x81",
                  "prepend_scheme", "always", "split", 1);
    json_t *ending =
        json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}",
                  "type", "TemplateProcessing", "single", "Sequence", "id", "A", "type_id", 0,
                  "SpecialToken", "id", "</s>", "type_id", 0, "pair", "special_tokens", "</s>",
                  "id", "</s>", "ids", 1, "tokens", "</s>");
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:{s:s, s:i, s:o, s:b}}", "version",
                     "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     "pre_tokenizer", splitter, "post_processor", ending, "model", "type",
                     "Unigram", "unk_id", 2, "vocab", t5_pieces(a), "byte_fallback", 0);
}

static json_t *t5_tokenizer_config(const dfx_architecture *a) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:s}", "eos_token", "</s>", "pad_token", "<pad>",
                     "unk_token", "<unk>", "extra_ids", 0, "model_max_length", a->text_length,
                     "tokenizer_class", "T5TokenizerFast");
}

/* ---- all of them ---- */

/* make NULL: the text is `text`. */
static const struct {
    const char *path;
    json_t *(*make)(const dfx_architecture *arch);
    const char *text;
} FILES[DFX_RANDOM_FILES] = {
    {"dfx.json", defaults, NULL},
    {"scheduler/scheduler_config.json", scheduler, NULL},
    {"text_encoder/config.json", clip, NULL},
    {"text_encoder_2/config.json", t5, NULL},
    {"tokenizer/merges.txt", NULL, "#version: 0.2\n"},
    {"tokenizer/tokenizer_config.json", clip_tokenizer_config, NULL},
    {"tokenizer/vocab.json", clip_vocabulary, NULL},
    {"tokenizer_2/tokenizer.json", t5_tokenizer, NULL},
    {"tokenizer_2/tokenizer_config.json", t5_tokenizer_config, NULL},
    {"transformer/config.json", transformer, NULL},
    {"vae/config.json", vae, NULL},
    {"model_index.json", model_index, NULL},
};

static dfx_status make_text(char **out, json_t *(*make)(const dfx_architecture *arch),
                            const char *text, const dfx_architecture *arch, const dfx_sink *sink) {
    json_t *json = make ? make(arch) : NULL;
    char *dumped = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (dumped || text)
        *out = dfx_strdup(dumped ? dumped : text, "random model");
    free(dumped);
    json_decref(json);
    return *out ? DFX_OK : dfx_fail(sink, DFX_E_NOFIT, "random-model: out of memory");
}

dfx_status dfx_random_files_init(dfx_random_files *files, const dfx_architecture *arch,
                                 const dfx_sink *sink) {
    dfx_status status = DFX_OK;
    *files = (dfx_random_files){0};
    for (size_t i = 0; i < DFX_COUNT(FILES) && status == DFX_OK; i++) {
        files->paths[i] = FILES[i].path;
        status = make_text(&files->texts[i], FILES[i].make, FILES[i].text, arch, sink);
    }
    if (status != DFX_OK)
        dfx_random_files_fini(files);
    return status;
}

void dfx_random_files_fini(dfx_random_files *files) {
    for (int i = 0; i < DFX_RANDOM_FILES; i++)
        dfx_free(files->texts[i]);
    *files = (dfx_random_files){0};
}
