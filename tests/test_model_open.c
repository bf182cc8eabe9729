/* Opening a folder: parts that do not belong together, tensors that are missing, misshapen or unknown, allocations that
 * fail one after the other. */
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "tests/draw_rig.h"

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
    draw_open_fails(r, "models/scenes/dfx.json", DFX_E_FORMAT, "diffusers folder");
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
        draw_setup(&fresh);
        draw_rig *r = fresh;
        const char *path = draw_copy(r);
        draw_edit_text(r, swaps[i].file, swaps[i].old, swaps[i].text);
        draw_open_fails(r, path, DFX_E_FORMAT, swaps[i].words);
        draw_teardown(&fresh);
    }
    (void)state;
}

static void rename_tensor(json_t *header, size_t data_bytes) {
    json_t *entry = json_incref(json_object_get(header, "norm_out.linear.bias"));
    json_object_del(header, "norm_out.linear.bias");
    json_object_set_new(header, "norm_out.linear.other", entry);
}

static void open_with_missing_tensor_names_it(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_header(r, "transformer/diffusion_pytorch_model.safetensors", rename_tensor, 0);
    draw_open_fails(r, path, DFX_E_FORMAT, "norm_out.linear.bias is missing");
}

static void turn_tensor(json_t *header, size_t data_bytes) {
    json_object_set_new(json_object_get(header, "x_embedder.weight"), "shape",
                        json_pack("[ii]", 64, 256));
}

static void open_with_wrong_shape_names_wanted_and_found(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_edit_header(r, "transformer/diffusion_pytorch_model.safetensors", turn_tensor, 0);
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
    draw_edit_header(r, "transformer/diffusion_pytorch_model.safetensors", add_tensor, 4);
    draw_open(r, path, 0);
    said_words(r->log, DFX_WARN,
               "1 tensors are not used by this architecture, the first is lora.extra");
}

static void open_on_cuda_is_refused(void **state) {
    draw_rig *r = *state;
    dfx_open_options options = {
        .model_path = DRAW_SCENES, .device = DFX_DEVICE_CUDA, .sink = r->log->sink};
    dfx_model *model = NULL;
    assert_int_equal(dfx_model_open(&options, &model), DFX_E_DEVICE);
    said_error(r->log, "--device cpu");
}

static void close_of_null_is_fine(void **state) {
    (void)state;
    dfx_model_close(NULL);
}

/* Open the model and draw with the nth allocation failing. True when nothing failed. */
static bool survives_fault(draw_rig *r, uint64_t nth) {
    dfx_open_options options = {.model_path = DRAW_SCENES, .n_threads = 1, .sink = r->log->sink};
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
    uint64_t nth = 1;
    while (!survives_fault(r, nth))
        nth++;
    assert_true(nth > 200);
}

/* The same model goes on after an allocation failed in the middle of a picture. */
static void generate_after_failed_allocation_gives_usual_bytes(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    request.steps = 1;
    dfx_image want = draw(r, &request);
    uint64_t n_faults = 0;
    for (uint64_t nth = 1;; nth += 1 + nth / 3) {
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
    for (uint64_t nth = 1; status != DFX_OK; nth += 1 + nth / 3) {
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
        WITH_DRAW_RIG(open_of_another_pipeline_is_refused),
        WITH_DRAW_RIG(open_of_another_part_class_is_refused),
        cmocka_unit_test(open_of_parts_of_different_models_is_refused),
        WITH_DRAW_RIG(open_with_missing_tensor_names_it),
        WITH_DRAW_RIG(open_with_wrong_shape_names_wanted_and_found),
        WITH_DRAW_RIG(open_with_extra_tensor_warns),
        WITH_DRAW_RIG(open_on_cuda_is_refused),
        cmocka_unit_test(close_of_null_is_fine),
        WITH_DRAW_RIG(open_and_generate_survive_failing_allocations),
        WITH_DRAW_RIG(generate_after_failed_allocation_gives_usual_bytes),
        WITH_DRAW_RIG(generate_after_failed_larger_picture_gives_usual_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
