/* The generator of the tiny models against stored files of the same rule, so that a wrong model is
 * never blamed on the code that runs it. */
#include "tests/tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/safetensors.h"
#include "tests/tmpdir.h"

/* Every tensor of a stored file equals the rule's values. */
static void same_as_stored(void **state, const char *component) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    snprintf(path, sizeof(path), "tests/golden/%s/model.safetensors", component);
    dfx_tensors *set;
    assert_int_equal(dfx_tensors_open_file(path, &dir->log.sink, &set), DFX_OK);
    assert_true(dfx_tensors_count(set) > 20);
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        const dfx_tensor *tensor = dfx_tensors_at(set, i);
        float *want = calloc(tensor->n_elements, sizeof(*want));
        float *got = calloc(tensor->n_elements, sizeof(*got));
        assert_non_null(want);
        assert_non_null(got);
        assert_int_equal(dfx_tensors_read_f32(set, tensor, &dir->log.sink, want), DFX_OK);
        assert_int_equal(tiny_fill(component, tensor->name, got, tensor->n_elements), DFX_OK);
        assert_memory_equal(got, want, tensor->n_elements * sizeof(*want));
        free(want);
        free(got);
    }
    dfx_tensors_close(set);
}

static void tiny_fill_equals_stored_t5(void **state) {
    same_as_stored(state, "t5_small_vocab");
}

static void tiny_fill_equals_stored_clip(void **state) {
    same_as_stored(state, "clip_small_vocab");
}

static void tiny_fill_refuses_unknown_tensor_and_wrong_count(void **state) {
    float value[2];
    assert_int_equal(tiny_fill("vae", "no.such.weight", value, 2), DFX_E_USAGE);
    assert_int_equal(tiny_fill("vae", "decoder.conv_out.bias", value, 2), DFX_E_USAGE);
}

/* FNV-1a-64 of the file that diffusers and safetensors wrote from the same weights. */
static uint64_t hash_file(const tmpdir *dir, const char *name, size_t *out_bytes) {
    char *data = tmpdir_slurp(dir, name, out_bytes);
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < *out_bytes; i++)
        h = (h ^ (unsigned char)data[i]) * UINT64_C(0x100000001B3);
    free(data);
    return h;
}

static void tiny_write_model_equals_files_of_diffusers(void **state) {
    static const struct {
        const char *name;
        size_t bytes;
        uint64_t hash;
    } files[] = {
        {"text_encoder/model.safetensors", 6472336, UINT64_C(0x2DE588BE51430E77)},
        {"text_encoder_2/model.safetensors", 4279344, UINT64_C(0xC0DDAB60C612A8D7)},
        {"transformer/diffusion_pytorch_model.safetensors", 14480536, UINT64_C(0xA0CF072E56408BBB)},
        {"vae/diffusion_pytorch_model.safetensors", 2561806, UINT64_C(0x4D769CAD9E10C620)},
    };
    tmpdir *dir = *state;
    assert_int_equal(tiny_write_model(dir->path, TINY_DEV), DFX_OK);
    for (size_t i = 0; i < DFX_COUNT(files); i++) {
        size_t bytes;
        uint64_t hash = hash_file(dir, files[i].name, &bytes);
        assert_int_equal(bytes, files[i].bytes);
        assert_true(hash == files[i].hash);
    }
}

static void tiny_write_schnell_leaves_guidance_out(void **state) {
    tmpdir *dir = *state;
    assert_int_equal(tiny_write_component(dir->path, TINY_SCHNELL, "transformer"), DFX_OK);
    char path[TMPDIR_PATH];
    dfx_tensors *set;
    assert_int_equal(dfx_tensors_open_dir(tmpdir_join(dir, "transformer", path),
                                          "diffusion_pytorch_model", &dir->log.sink, &set),
                     DFX_OK);
    assert_int_equal(dfx_tensors_count(set), 112 - 4); /* two linears with their biases */
    assert_null(dfx_tensors_find(set, "time_text_embed.guidance_embedder.linear_1.weight"));
    assert_non_null(dfx_tensors_find(set, "time_text_embed.timestep_embedder.linear_1.weight"));
    dfx_tensors_close(set);
    char *config = tmpdir_slurp(dir, "transformer/config.json", NULL);
    assert_non_null(strstr(config, "\"guidance_embeds\": false"));
    free(config);
}

static void tiny_write_vae_sets_norm_groups(void **state) {
    tmpdir *dir = *state;
    assert_int_equal(tiny_write_vae(dir->path, 8), DFX_OK);
    char *config = tmpdir_slurp(dir, "vae/config.json", NULL);
    assert_non_null(strstr(config, "\"norm_num_groups\": 8"));
    free(config);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(tiny_fill_equals_stored_t5),
        IN_TMPDIR(tiny_fill_equals_stored_clip),
        IN_TMPDIR(tiny_fill_refuses_unknown_tensor_and_wrong_count),
        IN_TMPDIR(tiny_write_model_equals_files_of_diffusers),
        IN_TMPDIR(tiny_write_schnell_leaves_guidance_out),
        IN_TMPDIR(tiny_write_vae_sets_norm_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
