/* Writing sentencepiece models for tests: just enough protocol buffers, by hand. */
#ifndef DFX_TESTS_SPIECE_WRITER_H
#define DFX_TESTS_SPIECE_WRITER_H

#include "tests/tmpdir.h"

/* Bytes of a message while it is written; free(msg.data) at the end. */
typedef struct pb_writer {
    unsigned char *data;
    size_t n, cap;
} pb_writer;

void pb_raw(pb_writer *msg, const void *data, size_t bytes);
void pb_varint(pb_writer *msg, uint64_t value); /* a bare varint */
void pb_int(pb_writer *msg, unsigned field, uint64_t value);
void pb_float(pb_writer *msg, unsigned field, float value);
void pb_bytes(pb_writer *msg, unsigned field, const void *data, size_t bytes);

/* A SentencePiece in field 1; type 0 leaves it out (NORMAL). */
void pb_piece(pb_writer *model, const char *text, size_t bytes, float score, unsigned type);

/* Write dir/spiece.model with the first `n_max` pieces of a tokenizer.json, <pad> and </s> as
 * control pieces, <unk> as the unknown one, and its precompiled map, if any. */
void spiece_from_json(const tmpdir *dir, const char *json_path, size_t n_max);

#endif
