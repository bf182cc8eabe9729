/* Another size of a picture: first along rows, then along columns, in f32 between them. Every output value is a weighted mean of
 * the input values under the filter; beyond the picture there are none, and the weights of the others are the more. */
#include <math.h>

#include "core/detmath.h"
#include "core/pixels.h"

enum { LOBES = 3 };
static const double PI = 3.14159265358979323846;

/* sin(pi x) / (pi x). */
static double sinc(double x) {
    double sine, cosine;
    if (x == 0)
        return 1;
    dfx_det_sincos(PI * fmod(fabs(x), 2), &sine, &cosine);
    return sine / (PI * fabs(x));
}

static double lanczos(double x) {
    return fabs(x) < LOBES ? sinc(x) * sinc(x / LOBES) : 0;
}

/* Of one axis: output value i is that of input values [first[i], first[i] + n[i]) with weights [i * most ..]. */
typedef struct axis {
    uint32_t *first, *n; /* owned */
    float *weights;      /* owned */
    size_t most;
} axis;

static void axis_fini(axis *a) {
    dfx_free(a->first);
    dfx_free(a->n);
    dfx_free(a->weights);
}

static void weigh(axis *a, size_t i, double centre, double width, uint32_t n_in) {
    double support = LOBES * width, sum = 0;
    double begin = fmax(floor(centre - support + 0.5), 0),
           end = fmin(floor(centre + support + 0.5), n_in);
    float *weights = a->weights + i * a->most;
    a->first[i] = (uint32_t)begin;
    a->n[i] = (uint32_t)(end - begin);
    for (uint32_t k = 0; k < a->n[i]; k++)
        sum += lanczos((begin + k + 0.5 - centre) / width);
    for (uint32_t k = 0; k < a->n[i]; k++)
        weights[k] = (float)(lanczos((begin + k + 0.5 - centre) / width) / sum);
}

/* `scale`: input values in an output value; the first of the n_out begins at input value `off`. */
static dfx_status axis_init(axis *a, uint32_t n_in, uint32_t n_out, double scale, double off,
                            const dfx_sink *sink) {
    double width = fmax(scale, 1);
    a->most = (size_t)(2 * LOBES * width) + 2;
    DFX_TRY(dfx_new_array(sink, n_out, "resample", &a->first));
    DFX_TRY(dfx_new_array(sink, n_out, "resample", &a->n));
    DFX_TRY(
        dfx_alloc_array(sink, n_out, a->most * sizeof(float), "resample", (void **)&a->weights));
    for (uint32_t i = 0; i < n_out; i++)
        weigh(a, i, off + (i + 0.5) * scale, width, n_in);
    return DFX_OK;
}

/* All rows of the input, each of as many values as the output has. */
static void along_rows(const axis *a, const dfx_pixels *in, uint32_t width, float *out) {
    size_t channels = (size_t)in->n_channels;
    for (size_t y = 0; y < in->height; y++)
        for (size_t x = 0; x < width; x++) {
            const uint8_t *from = in->values + (y * in->width + a->first[x]) * channels;
            const float *weights = a->weights + x * a->most;
            float sum[3] = {0};
            for (size_t k = 0; k < a->n[x]; k++)
                for (size_t c = 0; c < channels; c++)
                    sum[c] += weights[k] * from[k * channels + c];
            for (size_t c = 0; c < channels; c++)
                out[(y * width + x) * channels + c] = sum[c];
        }
}

/* `sums`: room for a row. */
static void along_columns(const axis *a, const float *in, float *sums, dfx_pixels *out) {
    size_t n = (size_t)out->width * (size_t)out->n_channels;
    for (size_t y = 0; y < out->height; y++) {
        const float *weights = a->weights + y * a->most;
        for (size_t i = 0; i < n; i++)
            sums[i] = 0;
        for (size_t k = 0; k < a->n[y]; k++)
            for (size_t i = 0; i < n; i++)
                sums[i] += weights[k] * in[(a->first[y] + k) * n + i];
        for (size_t i = 0; i < n; i++)
            out->values[y * n + i] = (uint8_t)nearbyintf(fminf(fmaxf(sums[i], 0), 255));
    }
}

static dfx_status resample(const dfx_pixels *in, double scale, const dfx_sink *sink,
                           dfx_pixels *out) {
    axis x = {0}, y = {0};
    float *rows = NULL, *sums = NULL;
    size_t row = (size_t)out->width * (size_t)out->n_channels;
    double left = floor((in->width - out->width * scale) / 2),
           top = floor((in->height - out->height * scale) / 2);
    dfx_status status;
    DFX_TRY_OUT(status, axis_init(&x, in->width, out->width, scale, fmax(left, 0), sink));
    DFX_TRY_OUT(status, axis_init(&y, in->height, out->height, scale, fmax(top, 0), sink));
    DFX_TRY_OUT(status, dfx_new_array(sink, row, "resample", &sums));
    DFX_TRY_OUT(status,
                dfx_alloc_array(sink, in->height, row * sizeof(float), "resample", (void **)&rows));
    along_rows(&x, in, out->width, rows);
    along_columns(&y, rows, sums, out);
out:
    axis_fini(&x);
    axis_fini(&y);
    dfx_free(rows);
    dfx_free(sums);
    return status;
}

dfx_status dfx_pixels_fit(const dfx_pixels *in, uint32_t width, uint32_t height,
                          const dfx_sink *sink, dfx_pixels *out) {
    dfx_pixels fit = {.width = width, .height = height, .n_channels = in->n_channels};
    double scale = fmin((double)in->width / width, (double)in->height / height);
    DFX_TRY(dfx_alloc_array(sink, (size_t)width * height, (size_t)in->n_channels, "pixels",
                            (void **)&fit.values));
    dfx_status status = resample(in, scale, sink, &fit);
    if (status == DFX_OK)
        *out = fit;
    else
        dfx_pixels_free(&fit);
    return status;
}
