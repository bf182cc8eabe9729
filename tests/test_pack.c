/* Packing whole models: pages follow from the architecture alone, and what is packed is what programs read. */
#include <stdio.h>
#include <string.h>

#include "models/architecture.h"
#include "models/pack.h"
#include "tests/tmpdir.h"

static const char SCENES[] = "models/scenes";

enum { N_PROGRAMS = DFX_PACK_PROGRAMS };

/* The programs of the bundled model for a size of picture and a number of steps. sets: by component, or NULL. */
static void build(const dfx_tensors *const sets[4], int64_t n_text, int64_t latent, int64_t n_steps,
                  dfx_dtype act, const dfx_sink *sink, dfx_program out[N_PROGRAMS]) {
    const dfx_configs *c = &dfx_architecture_find("scenes")->configs;
    int64_t n_image = latent / 2 * (latent / 2);
    dfx_build_env e[DFX_N_COMPONENTS];
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        e[i] = (dfx_build_env){.tensors = sets[i], .act_dtype = act, .sink = sink};
    assert_int_equal(dfx_clip_build_table(&c->clip, &e[DFX_CLIP], &out[0]), DFX_OK);
    assert_int_equal(dfx_t5_build_table(&c->t5, &e[DFX_T5], &out[1]), DFX_OK);
    assert_int_equal(dfx_clip_build(&c->clip, &e[DFX_CLIP], n_steps, &out[2]), DFX_OK);
    assert_int_equal(dfx_t5_build(&c->t5, &e[DFX_T5], n_text, &out[3]), DFX_OK);
    assert_int_equal(dfx_flux_build_cond(&c->flux, &e[DFX_TRANSFORMER], n_text, n_steps, &out[4]),
                     DFX_OK);
    assert_int_equal(dfx_flux_build_step(&c->flux, &e[DFX_TRANSFORMER], n_text, n_image, &out[5]),
                     DFX_OK);
    assert_int_equal(dfx_vae_build_decoder(&c->vae, &e[DFX_VAE], latent, latent, &out[6]), DFX_OK);
    assert_int_equal(dfx_vae_build_encoder(&c->vae, &e[DFX_VAE], latent, latent, &out[7]), DFX_OK);
}

static void pages_do_not_depend_on_size_steps_or_text(void **state) {
    tmpdir *dir = *state;
    static const dfx_tensors *const none[4];
    dfx_program a[N_PROGRAMS], b[N_PROGRAMS];
    build(none, 1, 2, 1, DFX_DTYPE_F32, &dir->log.sink, a);
    build(none, 64, 32, 16, DFX_DTYPE_BF16, &dir->log.sink, b);
    for (int p = 0; p < N_PROGRAMS; p++) {
        assert_int_equal(a[p].n_pages, b[p].n_pages);
        assert_int_equal(a[p].n_weights, b[p].n_weights);
        for (uint32_t i = 0; i < a[p].n_pages; i++) {
            assert_string_equal(a[p].pages[i].name, b[p].pages[i].name);
            assert_int_equal(a[p].pages[i].bytes, b[p].pages[i].bytes);
            assert_int_equal(a[p].pages[i].first_weight, b[p].pages[i].first_weight);
        }
        for (uint32_t i = 0; i < a[p].n_weights; i++) {
            assert_string_equal(a[p].weights[i].name, b[p].weights[i].name);
            assert_int_equal(a[p].weights[i].off, b[p].weights[i].off);
        }
        dfx_program_fini(&a[p]);
        dfx_program_fini(&b[p]);
    }
}

static void check_all_pages(const dfx_packed *packed, const dfx_sink *sink) {
    static const char *const components[] = {"text_encoder", "text_encoder_2", "transformer",
                                             "vae"};
    const dfx_tensors *sets[4];
    dfx_program programs[N_PROGRAMS];
    size_t n_pages = 0;
    for (int i = 0; i < 4; i++)
        assert_non_null(sets[i] = dfx_packed_tensors(packed, components[i]));
    build(sets, 64, 32, 16, DFX_DTYPE_F32, sink, programs);
    for (int p = 0; p < N_PROGRAMS; p++) {
        for (uint32_t i = 0; i < programs[p].n_pages; i++, n_pages++) {
            assert_int_equal(dfx_packed_check_page(packed, &programs[p], i, sink), DFX_OK);
            assert_int_equal(dfx_packed_page_of(packed, &programs[p], i), (int64_t)n_pages);
        }
        dfx_program_fini(&programs[p]);
    }
    assert_int_equal(dfx_packed_n_pages(packed), n_pages);
}

static void pack_bundled_model_is_what_programs_read(void **state) {
    tmpdir *dir = *state;
    static const dfx_qformat formats[] = {DFX_Q_INT8, DFX_Q_FP8, DFX_Q_STORED};
    char path[TMPDIR_PATH];
    tmpdir_join(dir, "scenes.safetensors", path);
    for (size_t i = 0; i < DFX_COUNT(formats); i++) {
        dfx_pack_options o = {.quant = formats[i], .compress = formats[i] == DFX_Q_STORED};
        dfx_pack_report report;
        dfx_packed *packed;
        assert_int_equal(dfx_model_pack(&(dfx_model_paths){.model = SCENES}, false, &o, path,
                                        &dir->log.sink, &report),
                         DFX_OK);
        said_nothing(&dir->log, DFX_WARN);
        assert_int_equal(dfx_packed_open(path, &dir->log.sink, &packed), DFX_OK);
        assert_string_equal(dfx_packed_source(packed), SCENES);
        assert_int_equal(dfx_packed_source_bytes(packed), report.source_bytes);
        check_all_pages(packed, &dir->log.sink);
        dfx_bundle bundle = dfx_packed_bundle(packed);
        assert_true(dfx_bundle_has(&bundle, "model_index.json"));
        assert_true(dfx_bundle_has(&bundle, "tokenizer/vocab.json"));
        assert_true(dfx_bundle_has(&bundle, "tokenizer_2/tokenizer.json"));
        assert_true(dfx_bundle_has(&bundle, "scheduler/scheduler_config.json"));
        /* 2 double blocks of 14 matrices less 2 of modulation, 3 single ones of 6 less 1, 2 T5 blocks of 7 */
        if (dfx_q_has_row_scale(formats[i]))
            assert_int_equal(report.n_quantized, 2 * 12 + 3 * 5 + 2 * 7);
        dfx_packed_close(packed);
    }
}

static void pack_of_what_is_no_folder_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_pack_report report;
    dfx_pack_options o = {.quant = DFX_Q_INT8};
    char path[TMPDIR_PATH];
    tmpdir_join(dir, "none", path);
    assert_int_equal(
        dfx_model_pack(&(dfx_model_paths){.model = path}, false, &o, NULL, &dir->log.sink, &report),
        DFX_E_IO);
    said_error(&dir->log, "none: cannot open");
    recorder_clear(&dir->log);
    tmpdir_write_text(dir, "model_index.json", "{\"_class_name\": \"StableDiffusionPipeline\"}");
    assert_int_equal(dfx_model_pack(&(dfx_model_paths){.model = dir->path}, false, &o, NULL,
                                    &dir->log.sink, &report),
                     DFX_E_FORMAT);
    said_error(&dir->log, "StableDiffusionPipeline");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pages_do_not_depend_on_size_steps_or_text),
        TEST(pack_bundled_model_is_what_programs_read),
        TEST(pack_of_what_is_no_folder_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
