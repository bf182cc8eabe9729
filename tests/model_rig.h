/* What tests of the models share: a way to run one program on the CPU or on another device, the output of each op by its label,
 * and goldens to compare with.
 *
 *     static void clip_layer_equals_transformers(void **state) {
 *         model_rig *r = *state;
 *         dfx_build_env env = mrig_env(r, weights);
 *         ... dfx_clip_build(&config, &env, n_tokens, &program) ...
 *         mrig_run(r, &program, (void *[]){x, out});
 *         mrig_same(r, "layer0", mrig_output(r, "text_model.encoder.layers.0.mlp.fc2")->values, want, n, 1e-5);
 *     }
 *     cmocka_unit_test_setup_teardown(clip_layer_equals_transformers, mrig_setup, mrig_teardown)
 *
 * The group's fixture may leave a tmpdir in *state; tests find it in r->dir. The helpers fail the running test.
 *
 * On a device whose memory the host does not see (mrig_open_on), activations have the device's type and values are converted on
 * the way, so that tests see F32. There a comparison that is off is counted and told to `off`, and all go on. */
#ifndef DFX_TESTS_MODEL_RIG_H
#define DFX_TESTS_MODEL_RIG_H

#include "core/bundle.h"
#include "offload/builder.h"
#include "offload/executor.h"
#include "tests/cpu_rig.h"

/* One op's output, packed. */
typedef struct op_output {
    const char *label; /* borrowed from the rig */
    int64_t rows, cols;
    float *values;
} op_output;

enum { MRIG_TENSORS_MAX = 16 };

typedef struct model_rig {
    rig *mem;    /* operands, goldens, messages; dies with the test */
    tmpdir *dir; /* borrowed: the group's folder, or NULL */
    dfx_sink sink;
    dfx_backend *backend; /* owned, unless it was given to mrig_open_on */
    op_output *outputs;   /* owned; of the last run, in order */
    size_t n_outputs;
    double worst; /* greatest relative error seen by mrig_same */
    const char *worst_of;
    size_t n_compared; /* by mrig_same */
    /* On another device: what computed values may be off by, in place of the tests' tolerances; they are for F32. */
    double tolerance;
    void (*off)(void *user, const char *what, double error, double tolerance);
    void *off_user;
    /* Writes the adapter block of a program that has one: program->adapter_bytes, zeroed, of the backend's type. */
    void (*fill_adapters)(void *user, const dfx_program *program, dfx_dtype dtype, void *block);
    void *fill_user;
    dfx_tensors *tensors[MRIG_TENSORS_MAX]; /* owned; opened by mrig_open */
    size_t n_tensors;
} model_rig;

int mrig_setup(void **state);
int mrig_teardown(void **state); /* prints the worst relative error */

/* The same without cmocka's state, for a device: `backend` and `dir` are borrowed. */
model_rig *mrig_open_on(dfx_backend *backend, const dfx_sink *sink, tmpdir *dir);
void mrig_close(model_rig *r);
/* Activations are F32, so every value must be the golden's but for the order of sums. */
static inline bool mrig_is_f32(const model_rig *r) {
    return r->backend->act_dtype == DFX_DTYPE_F32;
}

/* A component's weights: the group's folder / name, or a folder of this tree when there is no such. */
const dfx_tensors *mrig_open(model_rig *r, const char *folder, const char *stem);

/* What a model's programs are built from: these weights, activations of the backend's type. */
dfx_build_env mrig_env(const model_rig *r, const dfx_tensors *weights);

/* The files of a folder; `path` is borrowed. */
static inline dfx_bundle folder_bundle(const char *path) {
    return (dfx_bundle){.folder = path, .name = path};
}

/* f32 of the rig's, NaN: what no op writes shows. */
float *mrig_floats(model_rig *r, int64_t n);

/* All values of a golden; there must be n. */
const float *mrig_golden(model_rig *r, const char *file, int64_t n, const char *fmt, ...)
    DFX_PRINTF(4, 5);
/* The same as ids. */
int32_t *mrig_golden_ids(model_rig *r, const char *file, int64_t n, const char *name);

/* ids looked up in a program of tables: its weight 0, plus its weight 1 where `with_position`. [n, width], the rig's. */
float *mrig_embed(model_rig *r, const dfx_program *tables, bool with_position, const int32_t *ids,
                  int64_t n, int64_t width);

/* Run all ops; on the CPU with each page in memory between its pin and its unpin and no longer, so that a stray access shows
 * under ASan. Externs are F32, packed. Outputs are kept for mrig_output. Fini of the program is the caller's. */
void mrig_run(model_rig *r, const dfx_program *program, void *const *externs);

/* The output of the op with this label (the last, if there are more). */
const op_output *mrig_output(const model_rig *r, const char *label);

/* ||got - want|| / ||want|| <= tolerance, over n values; a tolerance of 0 is so on every device. */
void mrig_same(model_rig *r, const char *what, const float *got, const float *want, int64_t n,
               double tolerance);
/* An op's output with a golden of the same rows and columns. */
void mrig_same_output(model_rig *r, const char *label, const float *want, int64_t rows,
                      int64_t cols, double tolerance);

/* Reference pictures are [C, h*w], ours [h*w, C]: to ours. */
const float *mrig_channels_last(model_rig *r, const float *planes, int64_t channels,
                                int64_t n_pixels);
/* Latents [C, h, w] to tokens [h/2 * w/2, 4 C], each value v as (v - shift) * scaling. */
float *mrig_pack(model_rig *r, const float *latents, int64_t channels, int64_t h, int64_t w,
                 float shift, float scaling);

/* At least 99.9 % of n 8-bit values are the same or one apart. `want` as f32, from a golden. */
void mrig_same_pixels(const uint8_t *got, const float *want, size_t n);

#endif
