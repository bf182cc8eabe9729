/* Opening a model: parts that do not belong together, tensors that are missing, misshapen or unknown, packed files and the
 * cache of them, allocations that fail one after the other. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "models/cache.h"
#include "models/configs.h"
#include "models/model.h"
#include "models/pack.h"
#include "tests/draw_rig.h"

static const char TRANSFORMER[] = "transformer/diffusion_pytorch_model.safetensors";

/* An empty cache for this test alone. */
static void use_own_cache(draw_rig *r) {
    char path[TMPDIR_PATH];
    tmpdir_mkdir(r->dir, "cache");
    assert_int_equal(setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "cache", path), 1), 0);
}

static size_t n_cached(const draw_rig *r) {
    char path[TMPDIR_PATH];
    return dfx_file_is_dir(tmpdir_join(r->dir, "cache/dfx-edge", path))
               ? tmpdir_count_entries(r->dir, "cache/dfx-edge")
               : 0;
}

/* The packed file that the open model runs from; borrowed from the model. */
static const char *packed_path(const draw_rig *r) {
    dfx_model_info info;
    dfx_model_describe(r->model, &info);
    return info.path;
}

static void open_of_bundled_model_says_what_it_is(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    said_nothing(r->log, DFX_WARN);
    dfx_model_info info;
    dfx_model_describe(r->model, &info);
    assert_string_equal(info.name, "scenes");
    assert_string_equal(info.kind, "FLUX.1 schnell");
    assert_string_equal(info.device, "cpu");
    assert_true(info.steps == 16 && info.width == 256 && info.height == 256);
    assert_true(info.text_length >= 1 && info.text_length <= info.max_text_length);
    assert_true(info.weight_bytes == 2 * info.n_parameters); /* all bf16 */
    dfx_request request;
    dfx_request_init(r->model, &request);
    assert_string_equal(request.prompt, "");
    assert_true(request.steps == 16 && request.width == 256 && request.seed == 0);
}

static void open_of_nothing_or_a_file_is_refused(void **state) {
    draw_rig *r = *state;
    draw_open_fails(r, "no/such/folder", DFX_E_IO, "no/such/folder");
    draw_open_fails(r, "models/scenes/dfx.json", DFX_E_FORMAT, "dfx.json");
    draw_open_fails(r, "models/scenes/transformer/diffusion_pytorch_model.safetensors",
                    DFX_E_FORMAT, "no CLIP text encoder, no T5 encoder, no VAE in this file");
}

static void open_with_unknown_quant_is_refused(void **state) {
    draw_rig *r = *state;
    r->quant = "int4";
    draw_open_fails(r, DRAW_SCENES, DFX_E_USAGE, "wanted auto, bf16, int8, int8wo or fp8");
}

static void open_of_another_pipeline_is_refused(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_text(r, "model_index.json", "FluxPipeline", "StableDiffusion3Pipeline");
    draw_open_fails(r, path, DFX_E_FORMAT, "StableDiffusion3Pipeline");
}

static void open_of_another_part_class_is_refused(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_text(r, "model_index.json", "AutoencoderKL", "AutoencoderTiny");
    draw_open_fails(r, path, DFX_E_FORMAT, "AutoencoderTiny");
}

/* One number of one configuration changed, so that it belongs to a part of another model. */
static void open_of_parts_of_different_models_is_refused(void **state) {
    static const struct {
        const char *file, *old, *text, *words;
    } swaps[] = {
        {"transformer/config.json", "\"joint_attention_dim\": 128", "\"joint_attention_dim\": 4096",
         "joint_attention_dim is 4096 but the T5 encoder's d_model is 128"},
        {"transformer/config.json", "\"pooled_projection_dim\": 64",
         "\"pooled_projection_dim\": 768",
         "pooled_projection_dim is 768 but the CLIP encoder's hidden_size is 64"},
        {"vae/config.json", "\"latent_channels\": 16", "\"latent_channels\": 4",
         "in_channels is 64 but 4 x the VAE's latent_channels is 16"},
        {"text_encoder/config.json", "\"vocab_size\": 843", "\"vocab_size\": 842",
         "CLIP tokenizer's vocabulary is 843 but the CLIP encoder's vocab_size is 842"},
        {"text_encoder_2/config.json", "\"vocab_size\": 195", "\"vocab_size\": 100",
         "the T5 encoder's vocab_size is 100"},
    };
    for (size_t i = 0; i < DFX_COUNT(swaps); i++) {
        void *fresh;
        fresh = *state;
        assert_int_equal(draw_setup(&fresh), 0);
        draw_rig *r = fresh;
        const char *path = draw_copy(r);
        use_own_cache(r);
        draw_edit_text(r, swaps[i].file, swaps[i].old, swaps[i].text);
        draw_open_fails(r, path, DFX_E_FORMAT, swaps[i].words);
        assert_int_equal(n_cached(r), 0);
        draw_teardown(&fresh);
    }
}

/* Found before gigabytes are packed. */
static void open_without_tokenizer_is_refused_and_packs_nothing(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    const char *model = draw_copy(r);
    use_own_cache(r);
    assert_int_equal(unlink(tmpdir_join(r->dir, "tokenizer_2/tokenizer.json", path)), 0);
    draw_open_fails(r, model, DFX_E_IO, "tokenizer_2");
    assert_int_equal(n_cached(r), 0);
}

static void rename_tensor(json_t *header, size_t data_bytes) {
    json_t *entry = json_incref(json_object_get(header, "norm_out.linear.bias"));
    json_object_del(header, "norm_out.linear.bias");
    json_object_set_new(header, "norm_out.linear.other", entry);
}

static void open_with_missing_tensor_names_it(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_header(r, TRANSFORMER, rename_tensor, 0);
    draw_open_fails(r, path, DFX_E_FORMAT, "norm_out.linear.bias is missing");
}

static void turn_tensor(json_t *header, size_t data_bytes) {
    json_object_set_new(json_object_get(header, "x_embedder.weight"), "shape",
                        json_pack("[ii]", 64, 256));
}

static void open_with_wrong_shape_names_wanted_and_found(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_header(r, TRANSFORMER, turn_tensor, 0);
    draw_open_fails(r, path, DFX_E_FORMAT, "x_embedder.weight is BF16 [64, 256]; wanted 256 x 64");
}

static void add_tensor(json_t *header, size_t data_bytes) {
    json_object_set_new(header, "lora.extra",
                        json_pack("{s:s, s:[i], s:[I,I]}", "dtype", "F32", "shape", 1,
                                  "data_offsets", (json_int_t)data_bytes,
                                  (json_int_t)data_bytes + 4));
}

static void open_with_extra_tensor_warns(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_header(r, TRANSFORMER, add_tensor, 4);
    draw_open(r, path, 0);
    said_words(r->log, DFX_WARN,
               "transformer: 1 tensor is left out that no program reads, the first is lora.extra");
}

static void open_with_weight_that_is_not_finite_names_it_and_keeps_nothing(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    use_own_cache(r);
    draw_poke(r, TRANSFORMER, "norm_out.linear.weight", DRAW_BF16_NAN, 1);
    draw_open_fails(r, path, DFX_E_NUMERIC, "transformer.norm_out.linear.weight");
    assert_int_equal(n_cached(r), 0);
}

static void open_packs_a_folder_once(void **state) {
    draw_rig *r = *state;
    use_own_cache(r);
    draw_open(r, DRAW_SCENES, 0);
    said_words(r->log, DFX_INFO, "packing models/scenes into");
    assert_true(dfx_packed_is(packed_path(r)));
    draw_open(r, DRAW_SCENES, 0);
    said_nothing(r->log, DFX_INFO);
    assert_int_equal(n_cached(r), 1);
    r->quant = "bf16"; /* another format is another file */
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(n_cached(r), 2);
}

/* Before the device is known two files may be meant, if both are there: the first is begun, and left where it is not the one. */
static void open_takes_the_packed_file_of_its_device(void **state) {
    draw_rig *r = *state;
    char other[DFX_PATH_BYTES];
    dfx_device_facts facts;
    dfx_checkpoint_options from = {
        .paths = {.model = DRAW_SCENES}, .quant = DFX_Q_STORED, .automatic = true};
    use_own_cache(r);
    draw_open(r, DRAW_SCENES, 0);
    r->model->backend->vt->describe(r->model->backend, &facts);
    from.without_fp8 = facts.has_fp8; /* what another device has */
    assert_int_equal(dfx_cache_path(&from, &r->log->sink, other), DFX_OK);
    dfx_request request = draw_request(r, 3);
    dfx_image want = draw(r, &request);
    uint64_t read_bytes = want.read_bytes;
    char *mine = strdup(packed_path(r));
    assert_non_null(mine);
    assert_string_not_equal(mine, other);
    for (int i = 0; i < 2; i++) {
        draw_open(r, DRAW_SCENES, 0);
        assert_string_equal(packed_path(r), mine);
        dfx_image image = draw(r, &request);
        draw_same(&want, &image);
        assert_true(image.read_bytes == read_bytes); /* each page once, early or not */
        dfx_image_free(&image);
        said_nothing(r->log, DFX_INFO);
        assert_int_equal(i == 0 ? link(mine, other) : 0, 0); /* both are there the second time */
    }
    free(mine);
    dfx_image_free(&want);
}

/* By itself, from any place, and under its own name. */
static void open_of_packed_file_gives_bytes_of_its_folder(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 3);
    dfx_image want = draw(r, &request);
    char *cached = strdup(packed_path(r));
    assert_non_null(cached);
    const char *const paths[] = {cached,
                                 draw_pack(r, "other.safetensors", DFX_Q_STORED, false, path)};
    for (size_t i = 0; i < DFX_COUNT(paths); i++) {
        draw_open(r, paths[i], 0);
        said_nothing(r->log, DFX_INFO);
        dfx_image image = draw(r, &request);
        draw_same(&want, &image);
        dfx_image_free(&image);
    }
    free(cached);
    dfx_image_free(&want);
}

/* Compressed pages are the same pages; the tables of embeddings, whose rows are looked up, are left as they are. */
static void open_of_compressed_file_gives_bytes_of_its_folder(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    dfx_packed *packed;
    size_t n_compressed = 0;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 3);
    dfx_image want = draw(r, &request);
    draw_pack(r, "compressed.safetensors", DFX_Q_STORED, true, path);
    assert_int_equal(dfx_packed_open(path, &r->log->sink, &packed), DFX_OK);
    for (size_t i = 0; i < dfx_packed_n_pages(packed); i++)
        n_compressed += dfx_packed_page_at(packed, i)->codec != DFX_CODEC_RAW;
    assert_true(n_compressed > 5);
    dfx_packed_close(packed);
    draw_open(r, path, 0);
    dfx_image image = draw(r, &request);
    draw_same(&want, &image);
    assert_true(image.read_bytes < image.copied_bytes);
    dfx_image_free(&image);
    dfx_image_free(&want);
}

static void open_of_changed_folder_packs_anew(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    use_own_cache(r);
    draw_open(r, path, 0);
    dfx_request request = draw_request(r, 3);
    dfx_image before = draw(r, &request);
    assert_int_equal(n_cached(r), 1);
    draw_poke(r, TRANSFORMER, "proj_out.bias", 0x3F80, 1); /* 1.0 */
    draw_open(r, path, 0);
    assert_int_equal(n_cached(r), 2);
    dfx_image after = draw(r, &request);
    draw_differ(&before, &after);
    draw_edit_text(r, "dfx.json", "\"steps\": 16", "\"steps\": 5");
    draw_open(r, path, 0);
    assert_int_equal(n_cached(r), 3);
    dfx_request_init(r->model, &request);
    assert_int_equal(request.steps, 5);
    dfx_image_free(&before);
    dfx_image_free(&after);
}

static void open_of_damaged_cached_file_is_told_by_the_picture(void **state) {
    draw_rig *r = *state;
    dfx_packed *packed;
    use_own_cache(r);
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(dfx_packed_open(packed_path(r), &r->log->sink, &packed), DFX_OK);
    int64_t page_idx = dfx_packed_find_page(packed, "step", "x_embedder");
    assert_true(page_idx >= 0);
    uint64_t off = dfx_packed_page_at(packed, (size_t)page_idx)->off + 1;
    dfx_packed_close(packed);
    int fd = open(packed_path(r), O_RDWR | O_CLOEXEC);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
    close(fd);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    draw_fails(r, &request, DFX_E_FORMAT, "page step/x_embedder has the checksum");
    draw_fails(r, &request, DFX_E_FORMAT, "the file is damaged, pack it again");
}

/* What is no packed model by its header is not taken for one. */
static void open_over_truncated_cached_file_packs_anew(void **state) {
    draw_rig *r = *state;
    use_own_cache(r);
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(truncate(packed_path(r), 100), 0);
    draw_open(r, DRAW_SCENES, 0);
    said_words(r->log, DFX_INFO, "packing");
    assert_int_equal(n_cached(r), 1);
    dfx_request request = draw_request(r, 1);
    dfx_image image = draw(r, &request);
    dfx_image_free(&image);
}

/* A file stands where the folder would be. */
static void open_with_cache_that_cannot_be_written_says_what_to_do(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    tmpdir_write_text(r->dir, "file", "");
    assert_int_equal(setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "file", path), 1), 0);
    draw_open_fails(r, DRAW_SCENES, DFX_E_IO, "set XDG_CACHE_HOME to a folder that can be written");
    assert_int_equal(setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "file/deeper", path), 1), 0);
    draw_open_fails(r, DRAW_SCENES, DFX_E_IO, "pack the model yourself");
}

typedef struct packing {
    bool cancel;
    uint64_t last_done, all;
} packing;

static void on_packing(void *user, uint64_t done_bytes, uint64_t all_bytes) {
    packing *p = user;
    assert_true(done_bytes >= p->last_done && done_bytes <= all_bytes);
    p->last_done = done_bytes;
    p->all = all_bytes;
}

static bool is_cancelled(void *user) {
    packing *p = user;
    return p->cancel && p->last_done > 1000000;
}

static dfx_status open_packing(draw_rig *r, packing *p) {
    dfx_open_options options = {.model_path = DRAW_SCENES,
                                .device = DFX_DEVICE_CPU,
                                .n_threads = 2,
                                .packing = on_packing,
                                .cancelled = is_cancelled,
                                .user = p,
                                .sink = r->log->sink};
    recorder_clear(r->log);
    return dfx_model_open(&options, &r->model);
}

static void open_cancelled_while_packing_keeps_nothing(void **state) {
    draw_rig *r = *state;
    packing p = {.cancel = true};
    use_own_cache(r);
    assert_int_equal(open_packing(r, &p), DFX_E_CANCELLED);
    assert_null(r->model);
    said_nothing(r->log, DFX_ERROR);
    assert_true(p.last_done > 0 && p.last_done < p.all);
    assert_int_equal(n_cached(r), 0);
    p = (packing){0};
    assert_int_equal(open_packing(r, &p), DFX_OK);
    assert_true(p.last_done == p.all && p.all > 10000000);
}

/* A program that reads nothing of the others' is no pipeline. */
static void open_of_packed_file_without_a_component_is_refused(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    dfx_tensors *weights;
    dfx_program program;
    assert_int_equal(
        dfx_tensors_open_dir("models/scenes/text_encoder_2", "model", &r->log->sink, &weights),
        DFX_OK);
    dfx_build_env env = {.tensors = weights, .act_dtype = DFX_DTYPE_F32, .sink = &r->log->sink};
    dfx_bundle bundle = {.folder = DRAW_SCENES, .name = DRAW_SCENES};
    dfx_t5_config config;
    assert_int_equal(dfx_t5_config_load(&bundle, "text_encoder_2", &r->log->sink, &config), DFX_OK);
    assert_int_equal(dfx_t5_build(&config, &env, 1, &program), DFX_OK);
    dfx_pack_source source = {.programs = (const dfx_program *[]){&program},
                              .components = (const char *[]){"text_encoder_2"},
                              .n_programs = 1,
                              .files = dfx_model_files,
                              .n_files = 1,
                              .bundle = &bundle};
    dfx_pack_report report;
    dfx_pack_options options = {.source = "test", .n_threads = 1};
    tmpdir_join(r->dir, "part.safetensors", path);
    assert_int_equal(dfx_pack_write(&source, &options, path, &r->log->sink, &report), DFX_OK);
    dfx_program_fini(&program);
    dfx_tensors_close(weights);
    draw_open_fails(r, path, DFX_E_FORMAT, "there are no weights of the text_encoder;");
}

static void close_of_null_is_fine(void **state) {
    (void)state;
    dfx_model_close(NULL);
}

/* Open the model and draw with the nth allocation failing. True when nothing failed. */
static bool survives_fault(draw_rig *r, const char *path, uint64_t nth) {
    dfx_open_options options = {
        .model_path = path, .device = DFX_DEVICE_CPU, .n_threads = 1, .sink = r->log->sink};
    dfx_image image = {0};
    size_t held = dfx_mem_held_bytes();
    recorder_clear(r->log);
    dfx_mem_fail_nth(nth);
    dfx_status status = dfx_model_open(&options, &r->model);
    if (status == DFX_OK) {
        dfx_request request = draw_request(r, 1);
        request.steps = 1;
        request.width = request.height = 16;
        status = dfx_generate(r->model, &request, &image);
    }
    dfx_mem_fail_nth(0);
    if (status != DFX_OK) {
        assert_int_equal(status, DFX_E_NOFIT);
        said_error(r->log, "");
        assert_null(image.rgb);
    }
    dfx_image_free(&image);
    dfx_model_close(r->model);
    r->model = NULL;
    assert_int_equal(dfx_mem_held_bytes(), held);
    return status == DFX_OK;
}

static void open_and_generate_survive_failing_allocations(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    char *path = strdup(packed_path(r));
    assert_non_null(path);
    dfx_model_close(r->model);
    r->model = NULL;
    uint64_t nth = 1;
    while (!survives_fault(r, path, nth))
        nth++;
    assert_true(nth > 200);
    free(path);
}

/* Each time into an empty cache, in which nothing stays but a whole file. */
static void open_survives_failing_allocations_while_packing(void **state) {
    draw_rig *r = *state;
    use_own_cache(r);
    uint64_t n_faults = 0;
    for (uint64_t nth = 1; n_cached(r) == 0; nth += 1 + nth / 8)
        n_faults += !survives_fault(r, DRAW_SCENES, nth);
    assert_true(n_faults > 20);
    draw_open(r, DRAW_SCENES, 0);
    said_nothing(r->log, DFX_INFO);
    dfx_request request = draw_request(r, 1);
    dfx_image image = draw(r, &request);
    dfx_image_free(&image);
}

/* The same model goes on after an allocation failed in the middle of a picture. */
static void generate_after_failed_allocation_gives_usual_bytes(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    request.steps = 1;
    dfx_image want = draw(r, &request);
    uint64_t n_faults = 0;
    for (uint64_t nth = 1;; nth += 1 + nth / 2) {
        dfx_image image = {0};
        draw_open(r, DRAW_SCENES, 0);
        dfx_mem_fail_nth(nth);
        dfx_status status = dfx_generate(r->model, &request, &image);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK) {
            draw_same(&want, &image);
            dfx_image_free(&image);
            break;
        }
        assert_int_equal(status, DFX_E_NOFIT);
        n_faults++;
        dfx_image again = draw(r, &request);
        draw_same(&want, &again);
        dfx_image_free(&again);
    }
    assert_true(n_faults > 10);
    dfx_image_free(&want);
}

/* The same where the failing picture needs more than the one before and the one after. */
static void generate_after_failed_larger_picture_gives_usual_bytes(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1), larger = request;
    request.steps = larger.steps = 1;
    larger.width = 64;
    dfx_image want = draw(r, &request);
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK; nth += 1 + nth / 2) {
        dfx_image image = {0};
        dfx_mem_fail_nth(nth);
        status = dfx_generate(r->model, &larger, &image);
        dfx_mem_fail_nth(0);
        dfx_image_free(&image);
        dfx_image again = draw(r, &request);
        draw_same(&want, &again);
        dfx_image_free(&again);
    }
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(open_of_bundled_model_says_what_it_is),
        WITH_DRAW_RIG(open_of_nothing_or_a_file_is_refused),
        WITH_DRAW_RIG(open_with_unknown_quant_is_refused),
        WITH_DRAW_RIG(open_of_another_pipeline_is_refused),
        WITH_DRAW_RIG(open_of_another_part_class_is_refused),
        cmocka_unit_test(open_of_parts_of_different_models_is_refused),
        WITH_DRAW_RIG(open_without_tokenizer_is_refused_and_packs_nothing),
        WITH_DRAW_RIG(open_with_missing_tensor_names_it),
        WITH_DRAW_RIG(open_with_wrong_shape_names_wanted_and_found),
        WITH_DRAW_RIG(open_with_extra_tensor_warns),
        WITH_DRAW_RIG(open_with_weight_that_is_not_finite_names_it_and_keeps_nothing),
        WITH_DRAW_RIG(open_packs_a_folder_once),
        WITH_DRAW_RIG(open_takes_the_packed_file_of_its_device),
        WITH_DRAW_RIG(open_of_packed_file_gives_bytes_of_its_folder),
        WITH_DRAW_RIG(open_of_compressed_file_gives_bytes_of_its_folder),
        WITH_DRAW_RIG(open_of_changed_folder_packs_anew),
        WITH_DRAW_RIG(open_of_damaged_cached_file_is_told_by_the_picture),
        WITH_DRAW_RIG(open_over_truncated_cached_file_packs_anew),
        WITH_DRAW_RIG(open_with_cache_that_cannot_be_written_says_what_to_do),
        WITH_DRAW_RIG(open_cancelled_while_packing_keeps_nothing),
        WITH_DRAW_RIG(open_of_packed_file_without_a_component_is_refused),
        cmocka_unit_test(close_of_null_is_fine),
        WITH_DRAW_RIG(open_and_generate_survive_failing_allocations),
        WITH_DRAW_RIG(open_survives_failing_allocations_while_packing),
        WITH_DRAW_RIG(generate_after_failed_allocation_gives_usual_bytes),
        WITH_DRAW_RIG(generate_after_failed_larger_picture_gives_usual_bytes),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
