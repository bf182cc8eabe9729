/* LoRA against other programs: one adapter that they wrote in three styles is one adapter here, every layer of the original model
 * has the name that diffusers gives it, and weights with our deltas added compute what diffusers computes with the adapters.
 *
 * tests/golden/lora: adapter a in PEFT names, and block diagonal in kohya's and BFL's; adapter b, dense, of rank 4 and alpha 2, with
 * modulations. tests/golden/lora.safetensors: outputs of diffusers' transformer (the weights of tests/tiny.h) with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/lora_layers.h"
#include "tests/lora_file.h"
#include "tests/model_rig.h"
#include "tests/tiny.h"

enum { D = 256, E = 128, C = 64, TEXT = 64, POOLED = 64 };

static dfx_configs tiny_configs(const dfx_sink *sink) {
    dfx_bundle bundle = folder_bundle("tests/golden/tiny-dev");
    dfx_configs configs;
    assert_int_equal(dfx_configs_load(&bundle, sink, &configs), DFX_OK);
    return configs;
}

static dfx_lora *open_golden(const dfx_sink *sink, const char *name) {
    dfx_configs configs = tiny_configs(sink);
    char path[128];
    dfx_lora *lora;
    snprintf(path, sizeof(path), "tests/golden/lora/%s.safetensors", name);
    assert_int_equal(dfx_lora_open(path, &configs, sink, &lora), DFX_OK);
    assert_int_equal(dfx_lora_facts_of(lora)->n_unmatched, 0);
    return lora;
}

static void lora_goldens_in_three_styles_are_one_adapter(void **state) {
    model_rig *r = *state;
    dfx_lora *peft = open_golden(&r->sink, "peft"),
             *kohya = open_golden(&r->sink, "kohya_blockdiag"),
             *bfl = open_golden(&r->sink, "bfl_blockdiag");
    assert_int_equal(dfx_lora_n_parts(peft), 2 * 12 + 2 * 5);
    assert_int_equal(dfx_lora_facts_of(peft)->style, DFX_LORA_PEFT);
    assert_int_equal(dfx_lora_facts_of(kohya)->style, DFX_LORA_KOHYA);
    assert_int_equal(dfx_lora_facts_of(bfl)->style, DFX_LORA_BFL);
    /* qkv of both streams of two double blocks, linear1 of two single ones; a rank of their own: that of PEFT's */
    assert_int_equal(dfx_lora_facts_of(kohya)->n_block_diagonal, 6);
    assert_int_equal(dfx_lora_facts_of(bfl)->n_block_diagonal, 6);
    dfx_lora *all[] = {peft, kohya, bfl};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dfx_lora_facts_of(all[i])->rank_min, 4);
        assert_int_equal(dfx_lora_facts_of(all[i])->rank_max, 4);
        lora_deltas_equal(peft, all[i]);
    }
    for (int i = 0; i < 3; i++)
        dfx_lora_close(all[i]);
}

/* bfl_map.json: for each tensor of the original model those of diffusers whose rows it has. */
static void lora_names_are_those_of_the_golden_map(void **state) {
    model_rig *r = *state;
    dfx_configs configs = tiny_configs(&r->sink);
    dfx_lora_layers layers;
    const char *name;
    json_t *entry, *map = json_load_file("tests/golden/lora/bfl_map.json", 0, NULL);
    size_t n_checked = 0;
    assert_non_null(map);
    assert_int_equal(dfx_lora_layers_init(&layers, &configs, &r->sink), DFX_OK);
    json_object_foreach(json_object_get(map, "transformer"), name, entry) {
        const json_t *cat = json_object_get(entry, "cat");
        const char *ending = strrchr(name, '.');
        dfx_lora_style style;
        if (strcmp(ending, ".weight") != 0)
            continue;
        const dfx_lora_alias *a =
            dfx_lora_layers_find(&layers, name, (size_t)(ending - name), &style);
        if (!a)
            fail_msg("%s is not known", name);
        assert_int_equal(a->n_cuts, json_array_size(cat));
        assert_int_equal(a->halves_swapped, json_object_get(entry, "op") != NULL);
        for (int c = 0; c < a->n_cuts; c++) {
            char ours[128];
            snprintf(ours, sizeof(ours), "%s.weight", layers.layers[a->layers[c]].name);
            assert_string_equal(ours, json_string_value(json_array_get(cat, (size_t)c)));
        }
        n_checked++;
    }
    assert_int_equal(n_checked, 10 + 2 * 10 + 2 * 3);
    dfx_lora_layers_fini(&layers);
    json_decref(map);
}

/* Every matrix of the tiny model's three parts is a layer that a LoRA can change, with its shape, or an embedding. */
static void lora_layers_are_the_matrices_of_the_model(void **state) {
    static const char *const parts[] = {"transformer", "text_encoder", "text_encoder_2"};
    model_rig *r = *state;
    dfx_configs configs = tiny_configs(&r->sink);
    dfx_lora_layers layers;
    json_t *spec, *root = json_load_file("tests/golden/weights.json", 0, NULL);
    size_t n_found = 0;
    assert_non_null(root);
    assert_int_equal(dfx_lora_layers_init(&layers, &configs, &r->sink), DFX_OK);
    for (size_t p = 0; p < DFX_COUNT(parts); p++) {
        const char *name;
        json_object_foreach(json_object_get(json_object_get(root, "components"), parts[p]), name,
                            spec) {
            const json_t *shape = json_object_get(spec, "shape");
            dfx_lora_style style;
            if (json_array_size(shape) != 2 || strstr(name, "embedding.") ||
                strstr(name, "shared") || strstr(name, "relative_attention_bias") ||
                strstr(name, "embed_tokens"))
                continue;
            const dfx_lora_alias *a =
                dfx_lora_layers_find(&layers, name, strlen(name) - strlen(".weight"), &style);
            if (!a)
                fail_msg("%s: %s is not known", parts[p], name);
            assert_int_equal(a->n, json_integer_value(json_array_get(shape, 0)));
            assert_int_equal(a->k, json_integer_value(json_array_get(shape, 1)));
            n_found++;
        }
    }
    assert_int_equal(n_found, layers.n_layers);
    dfx_lora_layers_fini(&layers);
    json_decref(root);
}

/* ---- what diffusers computes ---- */

/* weights += strength * delta of the layer `tensor` is the weight of. */
static void add_delta(const dfx_lora *lora, float strength, const dfx_tensor *tensor, float *w) {
    char layer[128];
    snprintf(layer, sizeof(layer), "%.*s", (int)(strlen(tensor->name) - strlen(".weight")),
             tensor->name);
    if (!strstr(tensor->name, ".weight") || !dfx_lora_find(lora, DFX_TRANSFORMER, layer))
        return;
    float *delta = lora_delta(lora, DFX_TRANSFORMER, layer);
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        w[i] += strength * delta[i];
    free(delta);
}

typedef struct applied {
    const char *name;
    float strength;
} applied;

/* The tiny transformer with adapters merged, in f32, as <folder>/diffusion_pytorch_model.safetensors. */
static void write_merged(model_rig *r, const char *folder, const applied *list, int n_list) {
    const dfx_tensors *base = mrig_open(r, "transformer", "diffusion_pytorch_model");
    char path[TMPDIR_PATH], file[TMPDIR_PATH];
    json_t *header = json_object();
    uint64_t at = 0;
    dfx_lora *loras[2];
    for (int i = 0; i < n_list; i++)
        loras[i] = open_golden(&r->sink, list[i].name);
    for (size_t i = 0; i < dfx_tensors_count(base); i++) {
        const dfx_tensor *t = dfx_tensors_at(base, i);
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                                      "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + 4 * t->n_elements)));
        at += 4 * t->n_elements;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t text_bytes = strlen(text);
    tmpdir_mkdir(r->dir, folder);
    snprintf(file, sizeof(file), "%s/diffusion_pytorch_model.safetensors", folder);
    FILE *out = fopen(tmpdir_join(r->dir, file, path), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(&text_bytes, 8, 1, out), 1);
    assert_int_equal(fwrite(text, 1, text_bytes, out), text_bytes);
    for (size_t i = 0; i < dfx_tensors_count(base); i++) {
        const dfx_tensor *t = dfx_tensors_at(base, i);
        float *w = calloc(t->n_elements, sizeof(*w));
        assert_int_equal(dfx_tensors_read_f32(base, t, &r->sink, w), DFX_OK);
        for (int l = 0; l < n_list; l++)
            add_delta(loras[l], list[l].strength, t, w);
        assert_int_equal(fwrite(w, sizeof(*w), t->n_elements, out), t->n_elements);
        free(w);
    }
    assert_int_equal(fclose(out), 0);
    for (int i = 0; i < n_list; i++)
        dfx_lora_close(loras[i]);
    free(text);
    json_decref(header);
}

/* One evaluation of the transformer in `folder` on the golden inputs; the velocity. */
static const float *velocity(model_rig *r, const char *folder, const char *in, int64_t h, int64_t w,
                             int64_t n_text) {
    static const char file[] = "lora";
    dfx_configs configs = tiny_configs(&r->sink);
    dfx_build_env env = mrig_env(r, mrig_open(r, folder, "diffusion_pytorch_model"));
    int64_t n_image = h * w, L = n_text + n_image;
    float *txt = mrig_floats(r, n_text * D), *x = mrig_floats(r, n_image * C),
          *mod = mrig_floats(r, dfx_flux_mod_cols(&configs.flux)), *cos = mrig_floats(r, L * E / 2),
          *sin = mrig_floats(r, L * E / 2), *v = mrig_floats(r, n_image * C), dt = 1;
    dfx_program program;
    dfx_flux_rope(&configs.flux, n_text, h, w, cos, sin);
    assert_int_equal(dfx_flux_build_cond(&configs.flux, &env, n_text, 1, &program), DFX_OK);
    mrig_run(r, &program,
             (void *[]){(void *)mrig_golden(r, file, n_text * TEXT, "%s.encoder_hidden_states", in),
                        (void *)mrig_golden(r, file, POOLED, "%s.pooled_projections", in),
                        (void *)mrig_golden(r, file, 1, "%s.timestep", in),
                        (void *)mrig_golden(r, file, 1, "%s.guidance", in), txt, mod});
    dfx_program_fini(&program);
    memcpy(x, mrig_golden(r, file, n_image * C, "%s.hidden_states", in),
           (size_t)(n_image * C) * sizeof(*x));
    assert_int_equal(dfx_flux_build_step(&configs.flux, &env, n_text, n_image, &program), DFX_OK);
    mrig_run(r, &program, (void *[]){x, txt, mod, cos, sin, &dt, v});
    dfx_program_fini(&program);
    return v;
}

/* The tolerance is that of the transformer's own goldens; the adapters change the output by 0.09 and more. */
static void lora_merged_weights_compute_what_diffusers_does(void **state) {
    static const struct {
        const char *golden;
        applied list[2];
        int n_list;
        bool second; /* there is a golden for the second inputs, too */
    } table[] = {
        {"adapter_a.scale0.7.merged", {{"peft", 0.7f}}, 1, true},
        {"adapter_a.scale0.7.peft", {{"kohya_blockdiag", 0.7f}}, 1, true},
        {"adapter_a.scale1.0.merged", {{"bfl_blockdiag", 1}}, 1, true},
        {"adapter_b.scale0.7.merged", {{"kohya_dense", 0.7f}}, 1, true},
        {"adapter_a0.7_b0.25.merged", {{"peft", 0.7f}, {"kohya_dense", 0.25f}}, 2, false},
    };
    model_rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        char folder[32];
        snprintf(folder, sizeof(folder), "merged%zu", i);
        write_merged(r, folder, table[i].list, table[i].n_list);
        mrig_same(r, table[i].golden, velocity(r, folder, "in", 4, 4, 12),
                  mrig_golden(r, "lora", 16 * C, "%s.out", table[i].golden), 16 * C, 1e-4);
        if (table[i].second)
            mrig_same(r, table[i].golden, velocity(r, folder, "in2", 3, 5, 7),
                      mrig_golden(r, "lora", 15 * C, "%s.out2", table[i].golden), 15 * C, 1e-4);
    }
}

static int group_setup(void **state) {
    if (tmpdir_setup(state) != 0)
        return -1;
    tmpdir *dir = *state;
    return tiny_write_component(dir->path, TINY_DEV, "transformer") == DFX_OK ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lora_goldens_in_three_styles_are_one_adapter),
        TEST(lora_names_are_those_of_the_golden_map),
        TEST(lora_layers_are_the_matrices_of_the_model),
        TEST(lora_merged_weights_compute_what_diffusers_does),
    };
    return cmocka_run_group_tests(tests, group_setup, tmpdir_teardown);
}
