/* PNG pictures. What the encoder writes is taken apart by hand here, and what the decoder reads
 * is put together by hand, both after the PNG specification, so that libpng is not its own
 * witness. */
#include "tests/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/png.h"

static const uint8_t SIGNATURE[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

enum { GREY = 0, TRUECOLOUR = 2, PALETTE = 3, GREY_ALPHA = 4, TRUECOLOUR_ALPHA = 6 };

/* Writing by hand. */

typedef struct builder {
    uint8_t bytes[4096];
    size_t n;
} builder;

static uint32_t crc32_of(const uint8_t *data, size_t bytes) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

static uint32_t adler32_of(const uint8_t *data, size_t bytes) {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < bytes; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void put(builder *b, const void *data, size_t bytes) {
    assert_true(b->n + bytes <= sizeof(b->bytes));
    if (bytes)
        memcpy(b->bytes + b->n, data, bytes);
    b->n += bytes;
}

static void put_u32(builder *b, uint32_t x) {
    uint8_t big_endian[] = {(uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8), (uint8_t)x};
    put(b, big_endian, 4);
}

static void put_chunk(builder *b, const char *type, const void *data, size_t bytes) {
    put_u32(b, (uint32_t)bytes);
    size_t start = b->n;
    put(b, type, 4);
    put(b, data, bytes);
    put_u32(b, crc32_of(b->bytes + start, b->n - start));
}

static void put_header(builder *b, uint32_t width, uint32_t height, uint8_t depth, uint8_t colour,
                       uint8_t interlace) {
    builder ihdr = {.n = 0};
    uint8_t tail[] = {depth, colour, 0, 0, interlace};
    b->n = 0;
    put(b, SIGNATURE, sizeof(SIGNATURE));
    put_u32(&ihdr, width);
    put_u32(&ihdr, height);
    put(&ihdr, tail, sizeof(tail));
    put_chunk(b, "IHDR", ihdr.bytes, ihdr.n);
}

/* `raw` is filter bytes and packed pixels; one stored deflate block. */
static void put_pixels(builder *b, const uint8_t *raw, size_t bytes) {
    builder zlib = {.n = 0};
    uint8_t head[] = {
        0x78, 1, 1, (uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)~bytes, (uint8_t)(~bytes >> 8)};
    put(&zlib, head, sizeof(head));
    put(&zlib, raw, bytes);
    put_u32(&zlib, adler32_of(raw, bytes));
    put_chunk(b, "IDAT", zlib.bytes, zlib.n);
    put_chunk(b, "IEND", NULL, 0);
}

/* Reading by hand. */

typedef struct chunk {
    char type[5];
    const uint8_t *data;
    size_t bytes;
} chunk;

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static chunk chunk_at(const uint8_t *png, size_t bytes, size_t *at) {
    chunk c = {.bytes = 0};
    assert_true(*at + 12 <= bytes);
    c.bytes = get_u32(png + *at);
    assert_true(c.bytes <= bytes - *at - 12);
    memcpy(c.type, png + *at + 4, 4);
    c.data = png + *at + 8;
    assert_int_equal(get_u32(c.data + c.bytes), crc32_of(png + *at + 4, c.bytes + 4));
    *at += c.bytes + 12;
    return c;
}

/* The idx-th chunk of a type; data is NULL when there are fewer. */
static chunk chunk_find(const uint8_t *png, size_t bytes, const char *type, size_t idx) {
    for (size_t at = sizeof(SIGNATURE); at < bytes;) {
        chunk c = chunk_at(png, bytes, &at);
        if (strcmp(c.type, type) == 0 && idx-- == 0)
            return c;
    }
    return (chunk){.data = NULL};
}

/* The code under test. */

static uint8_t *make_pixels(size_t n_pixels) {
    uint8_t *rgb = malloc(n_pixels * 3);
    uint32_t x = 1;
    assert_non_null(rgb);
    for (size_t i = 0; i < n_pixels * 3; i++) {
        x = x * 1664525 + 1013904223;
        rgb[i] = i % 5 ? (uint8_t)(x >> 24) : (uint8_t)i;
    }
    return rgb;
}

static uint8_t *encode(tmpdir *dir, uint32_t width, uint32_t height, const dfx_png_text *texts,
                       size_t n_texts, size_t *bytes) {
    uint8_t *rgb = make_pixels((size_t)width * height), *png;
    assert_int_equal(
        dfx_png_encode(&dir->log.sink, rgb, width, height, texts, n_texts, &png, bytes), DFX_OK);
    assert_int_equal(dir->log.n_messages, 0);
    free(rgb);
    return png;
}

static void assert_decodes(tmpdir *dir, const builder *b, const uint8_t *want, uint32_t width,
                           uint32_t height) {
    uint8_t *rgb;
    uint32_t w, h;
    assert_int_equal(dfx_png_decode(&dir->log.sink, "a.png", b->bytes, b->n, &rgb, &w, &h), DFX_OK);
    assert_int_equal(w, width);
    assert_int_equal(h, height);
    assert_memory_equal(rgb, want, (size_t)width * height * 3);
    dfx_free(rgb);
}

/* Refused with one sentence that has the name and `words`, and nothing kept. */
static void assert_refused(tmpdir *dir, const uint8_t *png, size_t bytes, const char *words) {
    size_t held = dfx_mem_held_bytes();
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that ASan sees the first byte too many */
    uint8_t *rgb = NULL;
    uint32_t w, h;
    assert_non_null(exact);
    memcpy(exact, png, bytes);
    recorder_clear(&dir->log);
    assert_int_equal(dfx_png_decode(&dir->log.sink, "bad.png", exact, bytes, &rgb, &w, &h),
                     DFX_E_FORMAT);
    said_error(&dir->log, "bad.png: ");
    said_error(&dir->log, words);
    assert_null(rgb);
    assert_int_equal(dfx_mem_held_bytes(), held);
    free(exact);
}

static void png_encode_then_decode_gives_same_pixels(void **state) {
    tmpdir *dir = *state;
    static const uint32_t sizes[][2] = {{1, 1}, {3, 2}, {1, 300}, {1025, 3}, {256, 240}};
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        size_t bytes, n_pixels = (size_t)sizes[i][0] * sizes[i][1];
        uint8_t *want = make_pixels(n_pixels), *got;
        uint32_t w, h;
        uint8_t *png = encode(dir, sizes[i][0], sizes[i][1], NULL, 0, &bytes);
        assert_int_equal(dfx_png_decode(&dir->log.sink, "a.png", png, bytes, &got, &w, &h), DFX_OK);
        assert_int_equal(w, sizes[i][0]);
        assert_int_equal(h, sizes[i][1]);
        assert_memory_equal(got, want, n_pixels * 3);
        dfx_free(got);
        dfx_free(png);
        free(want);
    }
}

static void png_encode_without_text_writes_header_pixels_end_only(void **state) {
    size_t bytes, at = sizeof(SIGNATURE), n_idat = 0;
    uint8_t *png = encode(*state, 300, 7, NULL, 0, &bytes);
    static const uint8_t ihdr[] = {0, 0, 1, 44, 0, 0, 0, 7, 8, TRUECOLOUR, 0, 0, 0};
    assert_memory_equal(png, SIGNATURE, sizeof(SIGNATURE));
    chunk c = chunk_at(png, bytes, &at);
    assert_string_equal(c.type, "IHDR");
    assert_int_equal(c.bytes, sizeof(ihdr));
    assert_memory_equal(c.data, ihdr, sizeof(ihdr));
    for (c = chunk_at(png, bytes, &at); strcmp(c.type, "IDAT") == 0; c = chunk_at(png, bytes, &at))
        n_idat++;
    assert_true(n_idat > 0);
    assert_string_equal(c.type, "IEND");
    assert_int_equal(c.bytes, 0);
    assert_int_equal(at, bytes);
    dfx_free(png);
}

/* One text chunk, in front of the pixels: keyword, NUL, [iTXt: not compressed, method 0, no
 * language, no translated keyword,] text. */
static void assert_text_chunk(tmpdir *dir, const char *text, const char *type) {
    static const char key[] = "parameters";
    static const uint8_t itxt[] = {0, 0, 0, 0};
    dfx_png_text entry = {key, text};
    size_t bytes, plain_bytes, at = sizeof(SIGNATURE);
    uint8_t *png = encode(dir, 20, 10, &entry, 1, &bytes);
    uint8_t *plain = encode(dir, 20, 10, NULL, 0, &plain_bytes);
    chunk c = chunk_at(png, bytes, &at);
    assert_string_equal(c.type, "IHDR");
    c = chunk_at(png, bytes, &at);
    assert_string_equal(c.type, type);
    size_t head = sizeof(key) + (strcmp(type, "iTXt") == 0 ? sizeof(itxt) : 0);
    assert_int_equal(c.bytes, head + strlen(text));
    assert_memory_equal(c.data, key, sizeof(key));
    assert_memory_equal(c.data + sizeof(key), itxt, head - sizeof(key));
    assert_memory_equal(c.data + head, text, strlen(text));
    /* everything else is as without text */
    assert_int_equal(bytes, plain_bytes + 12 + c.bytes);
    assert_memory_equal(png + at, plain + sizeof(SIGNATURE) + 25, bytes - at);
    dfx_free(plain);
    dfx_free(png);
}

static void png_encode_ascii_text_is_text_chunk(void **state) {
    assert_text_chunk(*state, "a cat", "tEXt");
    assert_text_chunk(*state, "", "tEXt");
    assert_text_chunk(*state, "two\nlines", "tEXt");
}

static void png_encode_other_text_is_international_chunk(void **state) {
    assert_text_chunk(*state, "\xc3\xa9", "iTXt");                                  /* e acute */
    assert_text_chunk(*state, "\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "iTXt");      /* katakana */
    assert_text_chunk(*state, "\xf0\x9f\x98\x80 smiles\n\xf0\x9f\x90\x88", "iTXt"); /* emoji */
}

static void png_encode_long_text_is_whole(void **state) {
    static const size_t lengths[] = {100000, 3000000};
    for (size_t i = 0; i < DFX_COUNT(lengths); i++) {
        char *text = malloc(lengths[i] + 1);
        assert_non_null(text);
        for (size_t c = 0; c < lengths[i]; c++)
            text[c] = (char)('a' + c % 26);
        text[lengths[i]] = '\0';
        assert_text_chunk(*state, text, "tEXt");
        memcpy(text + lengths[i] - 2, "\xc3\xa9", 2);
        assert_text_chunk(*state, text, "iTXt");
        free(text);
    }
}

static void png_encode_several_texts_keeps_order(void **state) {
    const dfx_png_text texts[] = {
        {"Title", "one"}, {"parameters", "\xc3\xa9"}, {"Software", "dfx"}};
    size_t bytes;
    uint8_t *png = encode(*state, 4, 4, texts, DFX_COUNT(texts), &bytes);
    assert_memory_equal(chunk_find(png, bytes, "tEXt", 0).data, "Title\0one", 9);
    assert_memory_equal(chunk_find(png, bytes, "iTXt", 0).data, "parameters\0\0\0\0\0\xc3\xa9", 17);
    assert_memory_equal(chunk_find(png, bytes, "tEXt", 1).data, "Software\0dfx", 12);
    assert_null(chunk_find(png, bytes, "tEXt", 2).data);
    dfx_free(png);
}

static void assert_encode_usage(tmpdir *dir, uint32_t width, uint32_t height, const char *key,
                                const char *text, const char *words) {
    const uint8_t rgb[3] = {0};
    dfx_png_text entry = {key, text};
    uint8_t *png = NULL;
    size_t bytes;
    recorder_clear(&dir->log);
    assert_int_equal(dfx_png_encode(&dir->log.sink, rgb, width, height, &entry, 1, &png, &bytes),
                     DFX_E_USAGE);
    said_error(&dir->log, words);
    assert_null(png);
}

static void png_encode_bad_request_is_usage(void **state) {
    tmpdir *dir = *state;
    char key[81];
    memset(key, 'k', sizeof(key));
    key[80] = '\0';
    assert_encode_usage(dir, 1, 1, key, "80 bytes", "79");
    assert_encode_usage(dir, 1, 1, "", "t", "key");
    assert_encode_usage(dir, 1, 1, " a", "t", "key");
    assert_encode_usage(dir, 1, 1, "a ", "t", "key");
    assert_encode_usage(dir, 1, 1, "a  b", "t", "key");
    assert_encode_usage(dir, 1, 1, "a\nb", "t", "key");
    assert_encode_usage(dir, 1, 1, "a\x80", "t", "key");
    assert_encode_usage(dir, 1, 1, "a", "ab\xe9", "0xe9 at 2");           /* Latin-1 */
    assert_encode_usage(dir, 1, 1, "a", "\xed\xa0\x80", "at 0");          /* a surrogate */
    assert_encode_usage(dir, 1, 1, "a", "\xc0\xaf", "at 0");              /* overlong */
    assert_encode_usage(dir, 1, 1, "a", "tail\xf0\x9f\x98", "0xf0 at 4"); /* cut */
    assert_encode_usage(dir, 0, 1, "a", "t", "0x1");
    assert_encode_usage(dir, 1, 0, "a", "t", "1x0");
    assert_encode_usage(dir, 16385, 16384, "a", "t", "2^28");
    assert_encode_usage(dir, UINT32_MAX, UINT32_MAX, "a", "t", "2^28");
}

static void png_decode_grey_of_all_depths(void **state) {
    builder b;
    put_header(&b, 4, 1, 1, GREY, 0);
    put_pixels(&b, (uint8_t[]){0, 0xa0}, 2); /* 1010 */
    static const uint8_t two_levels[] = {255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0};
    assert_decodes(*state, &b, two_levels, 4, 1);

    put_header(&b, 4, 1, 2, GREY, 0);
    put_pixels(&b, (uint8_t[]){0, 0x1b}, 2); /* 0 1 2 3, times 85 */
    static const uint8_t four_levels[] = {0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255};
    assert_decodes(*state, &b, four_levels, 4, 1);

    put_header(&b, 2, 1, 4, GREY, 0);
    put_pixels(&b, (uint8_t[]){0, 0x3f}, 2); /* 3 15, times 17 */
    assert_decodes(*state, &b, (uint8_t[]){51, 51, 51, 255, 255, 255}, 2, 1);

    put_header(&b, 1, 2, 8, GREY, 0);
    put_pixels(&b, (uint8_t[]){0, 7, 0, 200}, 4);
    assert_decodes(*state, &b, (uint8_t[]){7, 7, 7, 200, 200, 200}, 1, 2);
}

/* 0x00ff / 257 = 0.99 and 0x8000 / 257 = 127.5: rounded, not cut. */
static void png_decode_16_bit_rounds(void **state) {
    builder b;
    put_header(&b, 1, 1, 16, TRUECOLOUR, 0);
    put_pixels(&b, (uint8_t[]){0, 0x00, 0xff, 0x80, 0x00, 0xff, 0xff}, 7);
    assert_decodes(*state, &b, (uint8_t[]){1, 128, 255}, 1, 1);
    put_header(&b, 1, 1, 16, GREY, 0);
    put_pixels(&b, (uint8_t[]){0, 0x12, 0x12}, 3);
    assert_decodes(*state, &b, (uint8_t[]){0x12, 0x12, 0x12}, 1, 1);
}

static void png_decode_palette_with_transparency(void **state) {
    static const uint8_t colours[] = {255, 0, 0, 0, 255, 0, 10, 20, 30};
    builder b;
    put_header(&b, 4, 1, 2, PALETTE, 0);
    put_chunk(&b, "PLTE", colours, sizeof(colours));
    put_chunk(&b, "tRNS", (uint8_t[]){255, 0}, 2); /* the second colour is not there */
    put_pixels(&b, (uint8_t[]){0, 0x18}, 2);       /* 0 1 2 0 */
    static const uint8_t want[] = {255, 0, 0, 255, 255, 255, 10, 20, 30, 255, 0, 0};
    assert_decodes(*state, &b, want, 4, 1);
}

/* c * a / 255 + 255 - a, rounded: a = 128 makes 127 of 0, 228 (227.89) of 201, 255 of 255. */
static void png_decode_alpha_lies_over_white(void **state) {
    builder b;
    put_header(&b, 3, 1, 8, TRUECOLOUR_ALPHA, 0);
    put_pixels(&b, (uint8_t[]){0, 1, 2, 3, 0, 1, 2, 3, 255, 0, 201, 255, 128}, 13);
    assert_decodes(*state, &b, (uint8_t[]){255, 255, 255, 1, 2, 3, 127, 228, 255}, 3, 1);
    put_header(&b, 2, 1, 8, GREY_ALPHA, 0);
    put_pixels(&b, (uint8_t[]){0, 0, 128, 90, 255}, 5);
    assert_decodes(*state, &b, (uint8_t[]){127, 127, 127, 90, 90, 90}, 2, 1);
    put_header(&b, 1, 1, 16, TRUECOLOUR_ALPHA, 0);
    put_pixels(&b, (uint8_t[]){0, 1, 1, 2, 2, 3, 3, 0, 0}, 9);
    assert_decodes(*state, &b, (uint8_t[]){255, 255, 255}, 1, 1);
    put_header(&b, 2, 1, 8, TRUECOLOUR, 0);
    put_chunk(&b, "tRNS", (uint8_t[]){0, 4, 0, 5, 0, 6}, 6); /* one colour means nothing there */
    put_pixels(&b, (uint8_t[]){0, 4, 5, 6, 4, 5, 7}, 7);
    assert_decodes(*state, &b, (uint8_t[]){255, 255, 255, 4, 5, 7}, 2, 1);
}

static void png_decode_interlaced_puts_pixels_in_place(void **state) {
    static const uint8_t adam7[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                        {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}; /* x y dx dy */
    enum { W = 11, H = 9 };
    uint8_t *want = make_pixels(W * H), raw[1024];
    size_t n = 0;
    builder b;
    for (size_t p = 0; p < 7; p++)
        for (size_t y = adam7[p][1]; y < H; y += adam7[p][3]) {
            raw[n++] = 0;
            for (size_t x = adam7[p][0]; x < W; x += adam7[p][2], n += 3)
                memcpy(raw + n, want + (y * W + x) * 3, 3);
        }
    put_header(&b, W, H, 8, TRUECOLOUR, 1);
    put_pixels(&b, raw, n);
    assert_decodes(*state, &b, want, W, H);
    free(want);
}

static void png_decode_cut_anywhere_is_refused(void **state) {
    const dfx_png_text text = {"parameters", "\xc3\xa9t\xc3\xa9"};
    size_t bytes;
    uint8_t *png = encode(*state, 40, 30, &text, 1, &bytes);
    for (size_t cut = 0; cut < bytes; cut += 7)
        assert_refused(*state, png, cut, "");
    assert_refused(*state, png, bytes - 1, "ends early");
    dfx_free(png);
}

/* Every byte of a PNG is under the signature or a CRC. */
static void png_decode_any_changed_byte_is_refused(void **state) {
    const dfx_png_text text = {"parameters", "a cat"};
    size_t bytes;
    uint8_t *png = encode(*state, 16, 12, &text, 1, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t bit = (uint8_t)(1 << i % 8);
        png[i] ^= bit;
        assert_refused(*state, png, bytes, "");
        png[i] ^= bit;
    }
    dfx_free(png);
}

static void png_decode_wrong_crc_of_pixels_is_named(void **state) {
    builder b;
    put_header(&b, 1, 1, 8, TRUECOLOUR, 0);
    put_pixels(&b, (uint8_t[]){0, 1, 2, 3}, 4);
    b.bytes[b.n - 12 - 1] ^= 1; /* IEND is 12 bytes */
    assert_refused(*state, b.bytes, b.n, "CRC");
}

static void png_decode_other_files_are_refused(void **state) {
    assert_refused(*state, (const uint8_t *)"", 0, "not a PNG");
    assert_refused(*state, (const uint8_t *)"\xff\xd8\xff\xe0\0\x10JFIF", 10, "not a PNG");
    assert_refused(*state, SIGNATURE, sizeof(SIGNATURE), "ends early");
}

/* By the header alone: the counter of the most ever held must not move by more than libpng's own
 * state. */
static void png_decode_huge_claims_are_refused_before_allocation(void **state) {
    static const uint32_t sizes[][2] = {
        {16385, 16384}, {65536, 65536}, {0x7fffffff, 0x7fffffff}, {1u << 28, 2}};
    size_t held = dfx_mem_held_bytes(), peak = dfx_mem_peak_bytes();
    builder b;
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        put_header(&b, sizes[i][0], sizes[i][1], 8, TRUECOLOUR, 0);
        put_pixels(&b, (uint8_t[]){0, 1, 2, 3}, 4);
        assert_refused(*state, b.bytes, b.n, "2^28");
    }
    put_header(&b, 16384, 16384, 8, TRUECOLOUR, 0); /* 2^28 pixels, in 73 bytes */
    put_pixels(&b, (uint8_t[]){0, 1, 2, 3}, 4);
    assert_refused(*state, b.bytes, b.n, "cannot hold");
    put_header(&b, 0, 5, 8, TRUECOLOUR, 0);
    put_pixels(&b, (uint8_t[]){0}, 1);
    assert_refused(*state, b.bytes, b.n, "IHDR");
    assert_true(dfx_mem_peak_bytes() <= (peak > held + 1000000 ? peak : held + 1000000));
}

static void png_decode_too_few_pixels_are_refused(void **state) {
    builder b;
    put_header(&b, 2, 2, 8, TRUECOLOUR, 0);
    put_pixels(&b, (uint8_t[]){0, 1, 2, 3, 4, 5, 6}, 7); /* one row of two */
    assert_refused(*state, b.bytes, b.n, "image data");
}

/* libpng's own words reach the sink and never the standard error stream. */
static void png_decode_speaks_to_sink_only(void **state) {
    tmpdir *dir = *state;
    builder b;
    int stderr_fd = dup(STDERR_FILENO), pipe_fds[2];
    char caught[64];
    assert_true(stderr_fd >= 0);
    assert_int_equal(pipe(pipe_fds), 0);
    fflush(stderr);
    dup2(pipe_fds[1], STDERR_FILENO);
    close(pipe_fds[1]);

    put_header(&b, 1, 1, 8, TRUECOLOUR, 0);
    put_pixels(&b, (uint8_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, 9); /* more than the picture needs */
    uint8_t *rgb = NULL;
    uint32_t w, h;
    dfx_status status = dfx_png_decode(&dir->log.sink, "long.png", b.bytes, b.n, &rgb, &w, &h);
    dfx_png_decode(NULL, "cut.png", b.bytes, b.n - 20, &rgb, &w, &h);

    fflush(stderr);
    dup2(stderr_fd, STDERR_FILENO); /* closes the pipe's last writer */
    close(stderr_fd);
    ssize_t n_caught = read(pipe_fds[0], caught, sizeof(caught));
    close(pipe_fds[0]);
    assert_int_equal(n_caught, 0);
    assert_int_equal(status, DFX_OK);
    said_words(&dir->log, DFX_WARN, "long.png: ");
    assert_memory_equal(rgb, ((uint8_t[]){1, 2, 3}), 3);
    dfx_free(rgb);
}

static void png_encode_out_of_memory_anywhere_fails_cleanly(void **state) {
    tmpdir *dir = *state;
    const dfx_png_text texts[] = {{"parameters", "a cat"}, {"Comment", "\xc3\xa9"}};
    uint8_t *rgb = make_pixels(64 * 48), *png = NULL;
    size_t bytes, held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 0;
    while (status != DFX_OK) {
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(++nth);
        status = dfx_png_encode(&dir->log.sink, rgb, 64, 48, texts, 2, &png, &bytes);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK)
            break;
        assert_int_equal(status, DFX_E_NOFIT);
        said_error(&dir->log, "memory");
        assert_null(png);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_true(nth > 8);
    assert_non_null(chunk_find(png, bytes, "tEXt", 0).data);
    assert_non_null(chunk_find(png, bytes, "iTXt", 0).data);
    dfx_free(png);
    free(rgb);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void png_decode_out_of_memory_anywhere_fails_cleanly(void **state) {
    tmpdir *dir = *state;
    size_t bytes;
    uint8_t *png = encode(dir, 64, 48, NULL, 0, &bytes), *rgb = NULL;
    uint32_t w, h;
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 0;
    while (status != DFX_OK) {
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(++nth);
        status = dfx_png_decode(&dir->log.sink, "a.png", png, bytes, &rgb, &w, &h);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK)
            break;
        assert_int_equal(status, DFX_E_NOFIT);
        said_error(&dir->log, "memory");
        assert_null(rgb);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_true(nth > 4);
    dfx_free(rgb);
    assert_int_equal(dfx_mem_held_bytes(), held);
    dfx_free(png);
}

#define PNG_TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        PNG_TEST(png_encode_then_decode_gives_same_pixels),
        PNG_TEST(png_encode_without_text_writes_header_pixels_end_only),
        PNG_TEST(png_encode_ascii_text_is_text_chunk),
        PNG_TEST(png_encode_other_text_is_international_chunk),
        PNG_TEST(png_encode_long_text_is_whole),
        PNG_TEST(png_encode_several_texts_keeps_order),
        PNG_TEST(png_encode_bad_request_is_usage),
        PNG_TEST(png_decode_grey_of_all_depths),
        PNG_TEST(png_decode_16_bit_rounds),
        PNG_TEST(png_decode_palette_with_transparency),
        PNG_TEST(png_decode_alpha_lies_over_white),
        PNG_TEST(png_decode_interlaced_puts_pixels_in_place),
        PNG_TEST(png_decode_cut_anywhere_is_refused),
        PNG_TEST(png_decode_any_changed_byte_is_refused),
        PNG_TEST(png_decode_wrong_crc_of_pixels_is_named),
        PNG_TEST(png_decode_other_files_are_refused),
        PNG_TEST(png_decode_huge_claims_are_refused_before_allocation),
        PNG_TEST(png_decode_too_few_pixels_are_refused),
        PNG_TEST(png_decode_speaks_to_sink_only),
        PNG_TEST(png_encode_out_of_memory_anywhere_fails_cleanly),
        PNG_TEST(png_decode_out_of_memory_anywhere_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
