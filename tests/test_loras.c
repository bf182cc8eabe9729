/* LoRAs of requests: pictures of the bundled model, whose first blocks are as wide as those of the goldens' adapters. That the
 * values are right is the goldens' to say (golden_lora.c); here LoRAs come and go. Goldens/lora/peft has rank 4. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "tests/draw_rig.h"
#include "tests/lora_file.h"

#define PEFT "tests/golden/lora/peft.safetensors"
#define KOHYA "tests/golden/lora/kohya_blockdiag.safetensors"
#define DENSE "tests/golden/lora/kohya_dense.safetensors"

static dfx_request with(const draw_rig *r, const dfx_lora_use *loras, int n) {
    dfx_request request = draw_request(r, 7);
    request.loras = loras;
    request.n_loras = n;
    return request;
}

static void room(draw_rig *r, int rank, int n) {
    r->lora_max_rank = rank;
    r->lora_max = n;
}

static dfx_image picture(draw_rig *r, const dfx_lora_use *loras, int n) {
    dfx_request request = with(r, loras, n);
    return draw(r, &request);
}

static void same_and_free(dfx_image *a, dfx_image *b) {
    draw_same(a, b);
    dfx_image_free(b);
}

static void lora_changes_the_picture_and_strength_0_does_not(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_image plain = picture(r, NULL, 0);
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image none = picture(r, NULL, 0), zero = picture(r, &(dfx_lora_use){PEFT, 0}, 1),
              minus_zero = picture(r, &(dfx_lora_use){PEFT, -0.0f}, 1),
              full = picture(r, &(dfx_lora_use){PEFT, 1}, 1),
              less = picture(r, &(dfx_lora_use){PEFT, -1}, 1);
    draw_differ(&plain, &full);
    draw_differ(&full, &less);
    draw_differ(&plain, &less);
    same_and_free(&plain, &none);
    same_and_free(&plain, &zero);
    same_and_free(&plain, &minus_zero);
    dfx_image_free(&full);
    dfx_image_free(&less);
    dfx_image_free(&plain);
}

static void key_styles_of_one_lora_give_one_picture(void **state) {
    draw_rig *r = *state;
    room(r, 12, 1);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image peft = picture(r, &(dfx_lora_use){PEFT, 0.8f}, 1),
              kohya = picture(r, &(dfx_lora_use){KOHYA, 0.8f}, 1);
    same_and_free(&peft, &kohya);
    dfx_image_free(&peft);
}

static void several_add_up_in_any_order(void **state) {
    draw_rig *r = *state;
    room(r, 4, 3);
    draw_open(r, DRAW_SCENES, 0);
    const dfx_lora_use ab[] = {{PEFT, 0.7f}, {DENSE, 0.5f}}, ba[] = {{DENSE, 0.5f}, {PEFT, 0.7f}},
                       twice[] = {{PEFT, 0.5f}, {PEFT, 0.5f}}, once[] = {{PEFT, 1}};
    dfx_image a = picture(r, ab, 2), b = picture(r, ba, 2), c = picture(r, twice, 2),
              d = picture(r, once, 1);
    for (int i = 0; i < a.width * a.height * 3; i++) {
        assert_true(abs(a.rgb[i] - b.rgb[i]) <= 1);
        assert_true(abs(c.rgb[i] - d.rgb[i]) <= 1);
    }
    draw_differ(&a, &d);
    dfx_image_free(&a);
    dfx_image_free(&b);
    dfx_image_free(&c);
    dfx_image_free(&d);
}

/* Fault of others: the picture drifts with each change, or the LoRA vanishes beside quantized weights. */
static void swapped_there_and_back(draw_rig *r, int n_times) {
    const dfx_lora_use first = {PEFT, 1}, second = {DENSE, 0.5f};
    dfx_image plain = picture(r, NULL, 0), with_first = picture(r, &first, 1),
              with_second = picture(r, &second, 1);
    draw_differ(&plain, &with_first);
    draw_differ(&with_first, &with_second);
    size_t held = 0; /* after the first round, and so after each */
    for (int i = 0; i < n_times; i++) {
        dfx_image again = picture(r, &first, 1);
        same_and_free(&with_first, &again);
        again = picture(r, &second, 1);
        same_and_free(&with_second, &again);
        again = picture(r, NULL, 0);
        same_and_free(&plain, &again);
        held = i == 0 ? dfx_mem_held_bytes() : held;
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    dfx_image_free(&plain);
    dfx_image_free(&with_first);
    dfx_image_free(&with_second);
}

static void swapping_a_hundred_times_changes_nothing(void **state) {
    draw_rig *r = *state;
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    swapped_there_and_back(r, 100);
}

static void swapping_beside_quantized_weights_changes_nothing(void **state) {
    draw_rig *r = *state;
    static const char *const quants[] = {"int8", "int8wo", "fp8"};
    for (size_t i = 0; i < DFX_COUNT(quants); i++) {
        r->quant = quants[i];
        room(r, 4, 1);
        draw_open(r, DRAW_SCENES, 0);
        swapped_there_and_back(r, 3);
    }
}

static void the_same_bits_at_any_budget(void **state) {
    draw_rig *r = *state;
    const dfx_lora_use use = {DENSE, 0.5f};
    static const char *const offloads[] = {"ram", "nvme"};
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image full = picture(r, &use, 1);
    for (size_t i = 0; i < DFX_COUNT(offloads); i++) {
        r->offload = offloads[i];
        draw_open(r, DRAW_SCENES, 8 << 20);
        dfx_image streamed = picture(r, &use, 1);
        assert_true(streamed.copied_bytes > 0);
        assert_true(streamed.peak_device_bytes <= 8 << 20);
        same_and_free(&full, &streamed);
    }
    dfx_image_free(&full);
}

/* A LoRA of rank 1 on one layer of an encoder of the bundled model, and one on the transformer, since a file without any is
 * refused as one for another model. */
static const char *text_lora(const draw_rig *r, const char *layer, int width,
                             char path[TMPDIR_PATH]) {
    lora_file f;
    float down[256], up[256];
    for (int i = 0; i < 256; i++) {
        down[i] = (float)(i % 7 - 3);
        up[i] = (float)(i % 5 - 2);
    }
    lora_file_begin(&f);
    lora_file_pair(&f, layer, 1, width, down, width, up);
    memset(up, 0, sizeof(up));
    up[0] = 0x1p-20f;
    lora_file_pair(&f, "transformer.transformer_blocks.0.attn.to_q", 1, 256, down, 256, up);
    lora_file_write(&f, r->dir, "text.safetensors");
    return tmpdir_join(r->dir, "text.safetensors", path);
}

static void layers_of_the_text_encoders_are_changed_too(void **state) {
    static const struct {
        const char *layer;
        int width;
    } cases[] = {{"text_encoder.text_model.encoder.layers.0.self_attn.v_proj", 64},
                 {"text_encoder_2.encoder.block.0.layer.0.SelfAttention.v", 128}};
    draw_rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        char path[TMPDIR_PATH];
        const dfx_lora_use use = {text_lora(r, cases[i].layer, cases[i].width, path), 4};
        r->loras = &use.path;
        r->n_loras = 1;
        draw_open(r, DRAW_SCENES, 0);
        dfx_image plain = picture(r, NULL, 0), with_it = picture(r, &use, 1),
                  without = picture(r, NULL, 0);
        draw_differ(&plain, &with_it);
        same_and_free(&plain, &without);
        dfx_image_free(&plain);
        dfx_image_free(&with_it);
    }
}

/* The encoders have run when the text stage has done its first step. */
static void count_encodings(void *user, const dfx_progress *progress) {
    *(int *)user += progress->stage == DFX_STAGE_TEXT && progress->step == 1;
}

static int encodings(draw_rig *r, const dfx_lora_use *loras, int n) {
    int count = 0;
    dfx_request request = with(r, loras, n);
    request.progress = count_encodings;
    request.user = &count;
    dfx_image image = draw(r, &request);
    dfx_image_free(&image);
    return count;
}

static void a_text_is_encoded_again_only_for_loras_of_encoders(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    const dfx_lora_use of_clip = {
        text_lora(r, "text_encoder.text_model.encoder.layers.0.self_attn.v_proj", 64, path), 4};
    const dfx_lora_use other = {PEFT, 1};
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(encodings(r, NULL, 0), 1);
    assert_int_equal(encodings(r, &other, 1), 0);
    assert_int_equal(encodings(r, NULL, 0), 0);
    assert_int_equal(encodings(r, &of_clip, 1), 1);
    assert_int_equal(encodings(r, &of_clip, 1), 0);
    assert_int_equal(encodings(r, &other, 1), 1);
    assert_int_equal(encodings(r, NULL, 0), 0);
}

static void layers_of_t5_without_room_are_left_out_with_a_warning(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    const dfx_lora_use use = {
        text_lora(r, "text_encoder_2.encoder.block.0.layer.0.SelfAttention.v", 128, path), 4};
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image image = picture(r, &use, 1);
    said_words(r->log, DFX_WARN, "a LoRA changes 1 layers of T5, which has no room for it");
    dfx_image_free(&image);
}

static void what_there_is_no_room_for_is_refused(void **state) {
    draw_rig *r = *state;
    const dfx_lora_use two[] = {{PEFT, 1}, {DENSE, 1}, {PEFT, 1}, {DENSE, 1}, {PEFT, 1}};
    dfx_request request;
    draw_open(r, DRAW_SCENES, 0);
    request = with(r, two, 1);
    draw_fails(r, &request, DFX_E_USAGE, "opened without room for LoRAs; give --lora-max-rank");
    room(r, 4, 1); /* what is reserved is a multiple of 16 */
    draw_open(r, DRAW_SCENES, 0);
    request = with(r, two, 5);
    draw_fails(r, &request, DFX_E_USAGE, "wants rank 20 in all, and there is room for 16");
    request = with(r, &(dfx_lora_use){PEFT, NAN}, 1);
    draw_fails(r, &request, DFX_E_USAGE, "wanted a number as strength");
    request = with(r, &(dfx_lora_use){"nowhere.safetensors", 1}, 1);
    draw_fails(r, &request, DFX_E_IO, "nowhere.safetensors");
    room(r, 513, 1);
    draw_open_fails(r, DRAW_SCENES, DFX_E_USAGE, "from 0 to 512, found 513");
    room(r, 200, 3);
    draw_open_fails(r, DRAW_SCENES, DFX_E_USAGE, "ranks of 512 in all beside a layer, found 600");
}

static void room_is_made_for_the_files_that_are_named(void **state) {
    draw_rig *r = *state;
    static const char *const named[] = {PEFT, DENSE, PEFT, DENSE, PEFT};
    const dfx_lora_use uses[] = {{PEFT, 1}, {DENSE, 1}, {PEFT, 1}, {DENSE, 1}, {PEFT, 1}};
    r->loras = named;
    r->n_loras = 5;
    draw_open(r, DRAW_SCENES, 0);
    dfx_image image = picture(r, uses, 5);
    dfx_image_free(&image);
}

/* Five in one list want rank 20; in two lists of three and two, 12: one grain of 16. */
static void room_is_made_for_the_list_that_needs_most(void **state) {
    draw_rig *r = *state;
    static const char *const named[] = {PEFT, DENSE, PEFT, NULL, DENSE, PEFT};
    const dfx_lora_use uses[] = {{PEFT, 1}, {DENSE, 1}, {PEFT, 1}, {DENSE, 1}, {PEFT, 1}};
    r->loras = named;
    r->n_loras = 6;
    draw_open(r, DRAW_SCENES, 0);
    dfx_image image = picture(r, uses, 3);
    dfx_image_free(&image);
    dfx_request request = with(r, uses, 5);
    draw_fails(r, &request, DFX_E_USAGE, "wants rank 20 in all, and there is room for 16");
}

static void the_picture_names_its_loras(void **state) {
    draw_rig *r = *state;
    const dfx_lora_use uses[] = {{PEFT, 0.8f}, {DENSE, 0}};
    room(r, 4, 1);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image image = picture(r, uses, 2);
    assert_non_null(strstr(image.parameters, "<lora:peft:0.8>"));
    assert_null(strstr(image.parameters, "kohya_dense"));
    assert_non_null(strstr(image.json, "\"loras\":[{\"name\":\"peft\",\"strength\":0.8}]"));
    dfx_image_free(&image);
}

#define DRAWS(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        DRAWS(lora_changes_the_picture_and_strength_0_does_not),
        DRAWS(key_styles_of_one_lora_give_one_picture),
        DRAWS(several_add_up_in_any_order),
        DRAWS(swapping_a_hundred_times_changes_nothing),
        DRAWS(swapping_beside_quantized_weights_changes_nothing),
        DRAWS(the_same_bits_at_any_budget),
        DRAWS(layers_of_the_text_encoders_are_changed_too),
        DRAWS(a_text_is_encoded_again_only_for_loras_of_encoders),
        DRAWS(layers_of_t5_without_room_are_left_out_with_a_warning),
        DRAWS(what_there_is_no_room_for_is_refused),
        DRAWS(room_is_made_for_the_files_that_are_named),
        DRAWS(room_is_made_for_the_list_that_needs_most),
        DRAWS(the_picture_names_its_loras),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
