/* See mlp_trial.h. */
#include "tests/mlp_trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "tests/device_program.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, F = MLP_F, N = MLP_N };

void mlp_decode(const dfx_mat *codes, const dfx_mat *scales, double *values) {
    for (int64_t i = 0; i < codes->rows * codes->cols; i++) {
        int64_t t = i / codes->cols;
        uint8_t code = ((const uint8_t *)codes->ptr)[t * codes->ld + i % codes->cols];
        values[i] = (double)dfx_e4m3_to_f32(code) * (double)((const float *)scales->ptr)[t];
    }
}

void mlp_look(void *trial, const dfx_op *op, const dfx_op_call *call) {
    mlp_made *seen = &((mlp_trial *)trial)->seen;
    const dfx_mat *m = call->m;
    int given = dfx_op_y_scale_given(op->kind);
    if (op->kind == DFX_OP_LAYERNORM)
        mlp_decode(&m[0], &m[DFX_NORM_Y_SCALE], seen->x);
    if (op->kind == DFX_OP_BOUND)
        memcpy(seen->bounds, m[0].ptr, (size_t)m[0].cols * sizeof(float));
    if (op->kind == DFX_OP_QUANTIZE)
        mlp_decode(&m[0], &m[DFX_QUANTIZE_Y_SCALE], seen->first);
    if (!given || !m[given].ptr)
        return;
    mlp_decode(&m[0], &m[given], op->kind == DFX_OP_LINEAR ? seen->mlp : seen->first);
    memcpy(seen->scales, m[given].ptr, (size_t)m[0].rows * sizeof(float));
}

void mlp_trial_run(mlp_trial *r, const dfx_program *p, dfx_probe_fn look) {
    static float values[T * D];
    dfx_backend *backend;
    device_program d;
    dfx_rng rng;
    dfx_rng_seed(&rng, 11);
    assert_int_equal(
        dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 2}, &r->dir->log.sink, &backend),
        DFX_OK);
    device_program_open(&d, backend, p, &r->dir->log.sink);
    dfx_rng_normal(&rng, values, T * D);
    device_program_put(&d, MLP_X, values);
    dfx_rng_normal(&rng, values, 2 * D);
    device_program_put(&d, MLP_SCALE, values);
    device_program_put(&d, MLP_SHIFT, values + D);
    dfx_rng_normal(&rng, r->first, T * A);
    for (int i = 0; i < T * A; i++)
        r->first[i] *= i / A % 5 == 4 ? 0 : ldexpf(1, i / A % 5 * 6 - 8);
    device_program_put(&d, MLP_FIRST, r->first);
    device_program_run(&d, NULL, look, r);
    device_program_get(&d, MLP_Y, r->y);
    device_program_close(&d);
    backend->vt->close(backend);
}

static float *read_f32(const mlp_trial *r, const char *of, const char *name, size_t n) {
    char full[64];
    snprintf(full, sizeof(full), "block.%s.%s", of, name);
    const dfx_tensor *tensor = dfx_tensors_find(r->set, full);
    float *values = malloc(n * sizeof(*values));
    if (!tensor || !values || tensor->n_elements != n)
        fail_msg("%s is not there", full);
    assert_int_equal(dfx_tensors_read_f32(r->set, tensor, &r->dir->log.sink, values), DFX_OK);
    return values;
}

mlp_weights mlp_weights_read(const mlp_trial *r, const char *of, int n, int k) {
    mlp_weights l = {read_f32(r, of, "weight", (size_t)(n * k)), read_f32(r, of, "bias", (size_t)n),
                     k};
    float *scales = read_f32(r, of, "weight_scale", (size_t)n);
    for (int i = 0; i < n * k; i++)
        l.w[i] *= scales[i / k];
    free(scales);
    return l;
}

void mlp_weights_free(mlp_weights *l) {
    free(l->w);
    free(l->b);
}

double mlp_product_at(const mlp_weights *l, const double *x, int n, double *size) {
    double sum = (double)l->b[n];
    *size = fabs(sum);
    for (int i = 0; i < l->k; i++) {
        sum += x[i] * (double)l->w[n * l->k + i];
        *size += fabs(x[i] * (double)l->w[n * l->k + i]);
    }
    return sum;
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double mlp_half_step(double value, double scale) {
    return fmax(fabs(value) / 16, scale * 0x1p-10) * (1 + 0x1p-15);
}

/* f32 sums are off by D + 16 roundings of the magnitudes at most, and GELU's slope is below 1.2. */
void mlp_check_mlp(const mlp_trial *r) {
    mlp_weights in = mlp_weights_read(r, "in", F, D);
    for (int i = 0; i < r->n_tokens * F; i++) {
        int t = i / F;
        double size, scale = (double)r->seen.scales[t];
        double want = gelu(mlp_product_at(&in, &r->seen.x[t * D], i % F, &size));
        double off = mlp_half_step(want, scale) + 1.2 * (D + 16) * 0x1p-24 * size;
        assert_true(fabs(want) < 448 * scale);
        if (!(fabs(r->seen.mlp[i] - want) <= off))
            fail_msg("row %d column %d: got %g, want %g to %g", t, i % F, r->seen.mlp[i], want,
                     off);
    }
    mlp_weights_free(&in);
}

void mlp_check_y(const mlp_trial *r, const char *of, int n_cols) {
    mlp_weights out = mlp_weights_read(r, of, N, n_cols);
    for (int i = 0; i < r->n_tokens * N; i++) {
        double row[A + F], size;
        int t = i / N, n_first = n_cols - F;
        memcpy(row, &r->seen.first[t * A], (size_t)n_first * sizeof(*row));
        memcpy(row + n_first, &r->seen.mlp[t * F], F * sizeof(*row));
        double want = mlp_product_at(&out, row, i % N, &size);
        assert_true(fabs((double)r->y[i] - want) <= (A + F + 16) * 0x1p-24 * size);
    }
    mlp_weights_free(&out);
}
