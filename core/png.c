/* Pictures through libpng, all of whose memory, errors and warnings are led through ours.
 *
 * libpng leaves its calls by longjmp, so each direction has one function that calls setjmp,
 * holds no local that changes afterwards, and keeps everything to be freed in the job; its caller
 * cleans up and tells the one sentence. An allocation that fails anywhere makes the whole call
 * fail, even one that libpng can do without: what is written never depends on the free memory.
 * Decoding ignores every ancillary chunk but tRNS: no colour management, and less for a hostile
 * file to play with. A wrong CRC is an error in those too. */
#include "core/png.h"

#include <inttypes.h>
#include <png.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <zlib.h>

static const char TAG[] = "png";
static const uint8_t SIGNATURE[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
static const uint64_t PIXELS_MAX = UINT64_C(1) << 28;

enum {
    COMPRESSION_LEVEL = 1,
    DEFLATE_RATIO_MAX = 1032,
    KEY_BYTES_MAX = 79,
    FAULT_BYTES = 200,
    RGB = 3,
    RGBA = 4,
};

typedef struct png_job {
    const dfx_sink *sink;
    const char *name; /* of the picture, for messages */
    png_structp png;
    png_infop info;
    dfx_status told;         /* a refusal that was already put in words, else DFX_OK */
    bool out_of_memory;      /* some allocation failed, whether libpng minded or not */
    char fault[FAULT_BYTES]; /* libpng's own words; they die with its longjmp */

    uint32_t width, height;
    uint8_t *out; /* owned: the encoded bytes, or the decoded pixels */
    size_t out_bytes, out_cap;

    const uint8_t *in; /* borrowed from the caller: pixels to encode, or bytes to decode */
    size_t in_bytes, in_at;
    const dfx_png_text *texts; /* borrowed from the caller */
    size_t n_texts;
} png_job;

static void *on_malloc(png_structp png, png_alloc_size_t bytes) {
    png_job *job = png_get_mem_ptr(png);
    void *ptr;
    if (dfx_alloc(NULL, bytes, TAG, &ptr) == DFX_OK)
        return ptr;
    job->out_of_memory = true;
    return NULL;
}

static void on_free(png_structp png, void *ptr) {
    dfx_free(ptr);
}

static void on_error(png_structp png, const char *text) {
    png_job *job = png_get_error_ptr(png);
    snprintf(job->fault, sizeof(job->fault), "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, const char *text) {
    const png_job *job = png_get_error_ptr(png);
    dfx_warn(job->sink, "%s: %s", job->name, text);
}

static void on_write(png_structp png, uint8_t *data, size_t bytes) {
    png_job *job = png_get_io_ptr(png);
    size_t end;
    if (!dfx_add_size(job->out_bytes, bytes, &end) ||
        dfx_grow(NULL, end, 1, TAG, &job->out_cap, (void **)&job->out) != DFX_OK) {
        job->out_of_memory = true;
        png_error(png, "out of memory");
    }
    memcpy(job->out + job->out_bytes, data, bytes);
    job->out_bytes = end;
}

static void on_flush(png_structp png) {}

static void on_read(png_structp png, uint8_t *dst, size_t bytes) {
    png_job *job = png_get_io_ptr(png);
    if (bytes > job->in_bytes - job->in_at)
        png_error(png, "the file ends early");
    memcpy(dst, job->in + job->in_at, bytes);
    job->in_at += bytes;
}

/* The status of a job that libpng left: one sentence, unless it was told already. */
static dfx_status tell_fault(const png_job *job, dfx_status status, const char *advice) {
    if (job->told != DFX_OK)
        return job->told;
    if (job->out_of_memory)
        return dfx_fail(job->sink, DFX_E_NOFIT,
                        "%s: out of memory for a picture of %" PRIu32 "x%" PRIu32 "; "
                        "close other programs or choose a smaller size",
                        job->name, job->width, job->height);
    return dfx_fail(job->sink, status, "%s: libpng says \"%s\"; %s", job->name, job->fault, advice);
}

/* Encoding. */

/* The PNG specification's rule for keywords, 11.3.4.2. */
static bool key_is_valid(const char *key) {
    size_t bytes = strlen(key);
    if (bytes < 1 || bytes > KEY_BYTES_MAX || key[0] == ' ' || key[bytes - 1] == ' ' ||
        strstr(key, "  "))
        return false;
    for (const char *p = key; *p; p++) {
        uint8_t c = (uint8_t)*p;
        if (c < 0x20 || (c > 0x7e && c < 0xa1))
            return false;
    }
    return true;
}

static bool is_ascii(const char *text) {
    while (*text && (uint8_t)*text < 0x80)
        text++;
    return !*text;
}

static dfx_status check_text(const dfx_sink *sink, const dfx_png_text *entry) {
    const uint8_t *text = (const uint8_t *)entry->text;
    size_t bytes = strlen(entry->text);
    if (!key_is_valid(entry->key))
        return dfx_fail(sink, DFX_E_USAGE,
                        "PNG text key \"%s\": wanted 1 to 79 printable Latin-1 characters without "
                        "spaces at the ends or in a row; rename it",
                        entry->key);
    if (bytes > PNG_UINT_31_MAX - 1024) /* a chunk has 31 bits for key and text */
        return dfx_fail(sink, DFX_E_USAGE,
                        "PNG text \"%s\": %zu bytes are more than a chunk holds; shorten it",
                        entry->key, bytes);
    for (size_t at = 0; at < bytes;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t step = utf8proc_iterate(text + at, (utf8proc_ssize_t)(bytes - at), &code);
        if (step < 1)
            return dfx_fail(sink, DFX_E_USAGE,
                            "PNG text \"%s\": byte 0x%02x at %zu is not UTF-8; give the text as "
                            "UTF-8",
                            entry->key, text[at], at);
        at += (size_t)step;
    }
    return DFX_OK;
}

static void add_text(png_job *job, const dfx_png_text *entry) {
    png_text text = {
        .compression =
            is_ascii(entry->text) ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE,
        .key = (char *)entry->key, /* libpng copies both */
        .text = (char *)entry->text,
    };
    png_set_text(job->png, job->info, &text, 1);
}

static bool encode_guarded(png_job *job) {
    if (setjmp(png_jmpbuf(job->png)))
        return false;
    png_set_write_fn(job->png, job, on_write, on_flush);
    png_set_user_limits(job->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    /* Differences of neighbours and their runs: a twelfth of the time of libpng's defaults, and pictures are no larger. */
    png_set_compression_level(job->png, COMPRESSION_LEVEL);
    png_set_compression_strategy(job->png, Z_RLE);
    png_set_filter(job->png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
    png_set_IHDR(job->png, job->info, job->width, job->height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    for (size_t i = 0; i < job->n_texts; i++)
        add_text(job, &job->texts[i]);
    png_write_info(job->png, job->info);
    for (size_t y = 0; y < job->height; y++)
        png_write_row(job->png, job->in + y * job->width * RGB);
    png_write_end(job->png, NULL);
    return !job->out_of_memory;
}

dfx_status dfx_png_encode(const dfx_sink *sink, const uint8_t *rgb, uint32_t width, uint32_t height,
                          const dfx_png_text *texts, size_t n_texts, uint8_t **out,
                          size_t *out_bytes) {
    png_job job = {.sink = sink,
                   .name = "PNG to write",
                   .width = width,
                   .height = height,
                   .in = rgb,
                   .texts = texts,
                   .n_texts = n_texts,
                   .fault = "version mismatch"};
    if (width < 1 || height < 1 || (uint64_t)width * height > PIXELS_MAX)
        return dfx_fail(sink, DFX_E_USAGE,
                        "a PNG of %" PRIu32 "x%" PRIu32 " pixels: wanted at least 1 on each side "
                        "and 2^28 pixels at most; choose another size",
                        width, height);
    for (size_t i = 0; i < n_texts; i++)
        DFX_TRY(check_text(sink, &texts[i]));

    job.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning, &job,
                                        on_malloc, on_free);
    if (job.png)
        job.info = png_create_info_struct(job.png);
    bool done = job.info && encode_guarded(&job);
    png_destroy_write_struct(&job.png, &job.info);
    if (!done) {
        dfx_free(job.out);
        return tell_fault(&job, DFX_E_INTERNAL, "please report this");
    }
    *out = job.out;
    *out_bytes = job.out_bytes;
    return DFX_OK;
}

/* Decoding. */

/* After the header and before anything as large as the picture. A file too short for its picture
 * even at deflate's best ratio is a claim on memory, not a picture. */
static dfx_status check_size(const png_job *job) {
    if ((uint64_t)job->width * job->height > PIXELS_MAX)
        return dfx_fail(job->sink, DFX_E_FORMAT,
                        "%s: a picture of %" PRIu32 "x%" PRIu32 " has more than 2^28 pixels; "
                        "use a smaller one",
                        job->name, job->width, job->height);
    uint64_t packed_bytes = (uint64_t)png_get_rowbytes(job->png, job->info) * job->height;
    if (packed_bytes / DEFLATE_RATIO_MAX > job->in_bytes)
        return dfx_fail(job->sink, DFX_E_FORMAT,
                        "%s: %zu bytes cannot hold the %" PRIu32 "x%" PRIu32 " pixels that the "
                        "header announces; the file is cut or damaged",
                        job->name, job->in_bytes, job->width, job->height);
    return DFX_OK;
}

/* Whatever the file holds becomes 8-bit RGBA. */
static void ask_for_rgba(png_job *job) {
    png_set_expand(job->png); /* palette, grey of 1, 2 or 4 bits, and tRNS */
    png_set_scale_16(job->png);
    png_set_gray_to_rgb(job->png);
    png_set_add_alpha(job->png, 0xff, PNG_FILLER_AFTER);
}

static bool decode_guarded(png_job *job) {
    if (setjmp(png_jmpbuf(job->png)))
        return false;
    png_set_read_fn(job->png, job, on_read);
    png_set_user_limits(job->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_crc_action(job->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_keep_unknown_chunks(job->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(job->png, job->info);
    job->width = png_get_image_width(job->png, job->info);
    job->height = png_get_image_height(job->png, job->info);
    job->told = check_size(job);
    if (job->told != DFX_OK)
        return false;

    ask_for_rgba(job);
    int n_passes = png_set_interlace_handling(job->png);
    png_read_update_info(job->png, job->info);
    job->told =
        dfx_alloc_array(job->sink, (size_t)job->width * job->height, RGBA, TAG, (void **)&job->out);
    if (job->told != DFX_OK)
        return false;
    for (int pass = 0; pass < n_passes; pass++)
        for (size_t y = 0; y < job->height; y++)
            png_read_row(job->png, job->out + y * job->width * RGBA, NULL);
    png_read_end(job->png, NULL); /* to the last CRC */
    return !job->out_of_memory;
}

/* Alpha over white, in place: a pixel is read before the bytes it becomes, which lie no later. */
static void flatten(uint8_t *pixels, size_t n_pixels) {
    for (size_t i = 0; i < n_pixels; i++) {
        unsigned alpha = pixels[i * RGBA + 3];
        for (size_t c = 0; c < RGB; c++)
            pixels[i * RGB + c] =
                (uint8_t)((pixels[i * RGBA + c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
}

dfx_status dfx_png_decode(const dfx_sink *sink, const char *name, const uint8_t *data, size_t bytes,
                          uint8_t **rgb, uint32_t *width, uint32_t *height) {
    png_job job = {
        .sink = sink, .name = name, .in = data, .in_bytes = bytes, .fault = "version mismatch"};
    if (bytes < sizeof(SIGNATURE) || memcmp(data, SIGNATURE, sizeof(SIGNATURE)) != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: not a PNG picture, its first 8 bytes are not the PNG signature; "
                        "give a PNG file",
                        name);
    job.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning, &job,
                                       on_malloc, on_free);
    if (job.png)
        job.info = png_create_info_struct(job.png);
    bool done = job.info && decode_guarded(&job);
    png_destroy_read_struct(&job.png, &job.info, NULL);
    if (!done) {
        dfx_free(job.out);
        return tell_fault(&job, DFX_E_FORMAT, "the file is cut or damaged");
    }
    flatten(job.out, (size_t)job.width * job.height);
    *rgb = job.out;
    *width = job.width;
    *height = job.height;
    return DFX_OK;
}
