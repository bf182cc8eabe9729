#include "tests/spiece_writer.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

void pb_raw(pb_writer *msg, const void *data, size_t bytes) {
    if (msg->n + bytes > msg->cap) {
        msg->cap = 2 * (msg->n + bytes);
        msg->data = realloc(msg->data, msg->cap);
        assert_non_null(msg->data);
    }
    if (bytes > 0)
        memcpy(msg->data + msg->n, data, bytes);
    msg->n += bytes;
}

void pb_varint(pb_writer *msg, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        pb_raw(msg, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
    pb_raw(msg, &(unsigned char){(unsigned char)value}, 1);
}

void pb_int(pb_writer *msg, unsigned field, uint64_t value) {
    pb_varint(msg, field << 3);
    pb_varint(msg, value);
}

void pb_float(pb_writer *msg, unsigned field, float value) {
    pb_varint(msg, field << 3 | 5);
    pb_raw(msg, &value, sizeof(value)); /* little-endian, as the machines we test on */
}

void pb_bytes(pb_writer *msg, unsigned field, const void *data, size_t bytes) {
    pb_varint(msg, field << 3 | 2);
    pb_varint(msg, bytes);
    pb_raw(msg, data, bytes);
}

void pb_piece(pb_writer *model, const char *text, size_t bytes, float score, unsigned type) {
    pb_writer piece = {0};
    pb_bytes(&piece, 1, text, bytes);
    pb_float(&piece, 2, score);
    if (type != 0)
        pb_int(&piece, 3, type);
    pb_bytes(model, 1, piece.data, piece.n);
    free(piece.data);
}

/* Only digits and padding; the test's own decoder, so that the library's is not its own judge. */
static void decode_base64(const char *text, pb_writer *out) {
    uint32_t bits = 0;
    int n_bits = 0;
    for (; *text && *text != '='; text++) {
        uint32_t value = *text >= 'a'   ? (uint32_t)(*text - 'a' + 26)
                         : *text >= 'A' ? (uint32_t)(*text - 'A')
                         : *text >= '0' ? (uint32_t)(*text - '0' + 52)
                         : *text == '+' ? 62
                                        : 63;
        bits = bits << 6 | value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            pb_raw(out, &(unsigned char){(unsigned char)(bits >> n_bits)}, 1);
        }
    }
}

static void add_normalizer_spec(pb_writer *model, const json_t *root) {
    pb_writer spec = {0}, map = {0};
    const json_t *first =
        json_array_get(json_object_get(json_object_get(root, "normalizer"), "normalizers"), 0);
    const char *base64 = json_string_value(json_object_get(first, "precompiled_charsmap"));
    pb_bytes(&spec, 1, "nmt_nfkc", 8);
    if (base64)
        decode_base64(base64, &map);
    pb_bytes(&spec, 2, map.data, map.n);
    for (unsigned field = 3; field <= 5; field++)
        pb_int(&spec, field, 1);
    pb_bytes(model, 3, spec.data, spec.n);
    free(spec.data);
    free(map.data);
}

static unsigned type_of(const char *piece) {
    if (strcmp(piece, "<unk>") == 0)
        return 2;
    return strcmp(piece, "<pad>") == 0 || strcmp(piece, "</s>") == 0 ? 3 : 0;
}

void spiece_from_json(const tmpdir *dir, const char *json_path, size_t n_max) {
    json_error_t error;
    json_t *root = json_load_file(json_path, 0, &error);
    pb_writer model = {0}, trainer = {0};
    assert_non_null(root);
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    for (size_t i = 0; i < json_array_size(vocab) && i < n_max; i++) {
        const json_t *entry = json_array_get(vocab, i), *piece = json_array_get(entry, 0);
        pb_piece(&model, json_string_value(piece), json_string_length(piece),
                 (float)json_number_value(json_array_get(entry, 1)),
                 type_of(json_string_value(piece)));
    }
    pb_int(&trainer, 3, 1);
    pb_int(&trainer, 35, 0);
    pb_bytes(&model, 2, trainer.data, trainer.n);
    add_normalizer_spec(&model, root);
    tmpdir_write(dir, "spiece.model", model.data, model.n);
    json_decref(root);
    free(trainer.data);
    free(model.data);
}
