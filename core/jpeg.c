/* Pictures through libjpeg, whose errors and warnings are led through ours; what it allocates for itself it gets from malloc.
 *
 * libjpeg leaves its calls by our longjmp: decode_guarded holds no local that changes after setjmp, and its caller cleans up
 * and tells the one sentence. What libjpeg calls a warning is a damaged picture that it would go on with, in grey; here it is
 * an error, but for the few that do no harm. Colour profiles are not applied. */
#include "core/jpeg.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* Behind stdio.h, whose FILE it wants. */
#include <jpeglib.h>

#include <jerror.h>

#include "core/exif.h"

static const uint64_t PIXELS_MAX = UINT64_C(1) << 28;

/* Every scan of a progressive file goes over the whole picture, so that a small file could keep us busy for hours. */
enum { SCANS_MAX = 200, EXIF_MARKER = JPEG_APP0 + 1, EXIF_BYTES_MAX = 0xffff, RGB = 3 };

typedef struct jpeg_job {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf left;
    const dfx_sink *sink;
    const char *name;
    size_t bytes;
    dfx_status told;             /* a refusal that was already put in words, else DFX_OK */
    char fault[JMSG_LENGTH_MAX]; /* libjpeg's own words */
    uint8_t *out;                /* owned */
    int orientation;
} jpeg_job;

static void leave(jpeg_job *job) {
    longjmp(job->left, 1);
}

static void on_error(j_common_ptr jpeg) {
    jpeg_job *job = jpeg->client_data;
    jpeg->err->format_message(jpeg, job->fault);
    leave(job);
}

static bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
}

static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && !is_harmless(jpeg->err->msg_code))
        on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg) {
    jpeg_job *job = jpeg->client_data;
    if (job->jpeg.input_scan_number <= SCANS_MAX)
        return;
    snprintf(job->fault, sizeof(job->fault), "more than %d scans", SCANS_MAX);
    leave(job);
}

/* After the header and before anything as large as the picture. Of a block of 64 pixels the widest component has at least a bit of
 * Huffman code, so that a file too short for that is a claim on memory, not a picture. */
static dfx_status check_header(const jpeg_job *job) {
    const struct jpeg_decompress_struct *jpeg = &job->jpeg;
    uint64_t n_pixels = (uint64_t)jpeg->image_width * jpeg->image_height;
    if (n_pixels > PIXELS_MAX)
        return dfx_fail(job->sink, DFX_E_FORMAT,
                        "%s: a picture of %ux%u has more than 2^28 pixels; use a smaller one",
                        job->name, jpeg->image_width, jpeg->image_height);
    if (n_pixels / (64 * 8) > job->bytes)
        return dfx_fail(job->sink, DFX_E_FORMAT,
                        "%s: %zu bytes cannot hold the %ux%u pixels that the header announces; the "
                        "file is cut or damaged",
                        job->name, job->bytes, jpeg->image_width, jpeg->image_height);
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK)
        return dfx_fail(job->sink, DFX_E_FORMAT,
                        "%s: its colours are CMYK, for printing; save it as RGB first", job->name);
    return DFX_OK;
}

static int orientation_of(const struct jpeg_decompress_struct *jpeg) {
    for (const struct jpeg_marker_struct *m = jpeg->marker_list; m; m = m->next)
        if (m->marker == EXIF_MARKER && dfx_exif_is(m->data, m->data_length))
            return dfx_exif_orientation(m->data, m->data_length);
    return 1;
}

static bool decode_guarded(jpeg_job *job, const uint8_t *data, size_t bytes) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    if (setjmp(job->left))
        return false;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &job->progress;
    jpeg_mem_src(jpeg, data, bytes);
    jpeg_save_markers(jpeg, EXIF_MARKER, EXIF_BYTES_MAX);
    jpeg_read_header(jpeg, TRUE);
    job->told = check_header(job);
    if (job->told != DFX_OK)
        return false;
    job->orientation = orientation_of(jpeg);
    jpeg->out_color_space = JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW; /* the same pixels on every machine */
    job->told = dfx_alloc_array(job->sink, (size_t)jpeg->image_width * jpeg->image_height, RGB,
                                "jpeg", (void **)&job->out);
    if (job->told != DFX_OK)
        return false;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = job->out + (size_t)jpeg->output_scanline * jpeg->image_width * RGB;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
    return true;
}

bool dfx_jpeg_is(const uint8_t *data, size_t bytes) {
    static const uint8_t signature[] = {0xff, 0xd8, 0xff};
    return bytes >= sizeof(signature) && memcmp(data, signature, sizeof(signature)) == 0;
}

dfx_status dfx_jpeg_decode(const dfx_sink *sink, const char *name, const uint8_t *data,
                           size_t bytes, uint8_t **rgb, uint32_t *width, uint32_t *height,
                           int *orientation) {
    jpeg_job job = {.sink = sink, .name = name, .bytes = bytes};
    job.jpeg.err = jpeg_std_error(&job.errors);
    job.errors.error_exit = on_error;
    job.errors.emit_message = on_message;
    job.progress.progress_monitor = on_progress;
    job.jpeg.client_data = &job;
    bool done = decode_guarded(&job, data, bytes);
    *width = job.jpeg.image_width;
    *height = job.jpeg.image_height;
    jpeg_destroy_decompress(&job.jpeg);
    if (!done) {
        dfx_free(job.out);
        if (job.told != DFX_OK)
            return job.told;
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: libjpeg says \"%s\"; the file is cut or damaged, or not a JPEG that "
                        "it reads",
                        name, job.fault);
    }
    *rgb = job.out;
    *orientation = job.orientation;
    return DFX_OK;
}
