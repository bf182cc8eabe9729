/* LoRA files: every style of names gives the same change, alpha in every form, fused and split layers, metadata. The numbers A, B
 * and what they give are those of acceptance cases C01 to C07 and B06. */
#include "tests/lora_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A [2, 2], B [6, 2], B A [6, 2]. */
static const float A[] = {1, 2, 3, 4};
static const float B[] = {1, 0, 0, 1, 2, 0, 0, 2, 1, 1, 1, -1};
static const float DQ[] = {1, 2, 3, 4}, DK[] = {2, 4, 6, 8}, DV[] = {4, 6, -2, -2};

static void add_fused(lora_file *f, const char *down, const char *up) {
    lora_file_add(f, down, 2, 2, A);
    lora_file_add(f, up, 6, 2, B);
}

/* The same change, written for three layers. */
static void add_split(lora_file *f, const char *before, const char *down, const char *up) {
    static const char *const layers[] = {"q", "k", "v"};
    char name[256];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "%s%s%s", before, layers[i], down);
        lora_file_add(f, name, 2, 2, A);
        snprintf(name, sizeof(name), "%s%s%s", before, layers[i], up);
        lora_file_add(f, name, 2, 2, B + 4 * i);
    }
}

static void is_delta_of_block_0(const dfx_lora *lora) {
    assert_int_equal(dfx_lora_n_parts(lora), 3);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_q", 4, DQ);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_k", 4, DK);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_v", 4, DV);
}

static void lora_every_style_gives_the_same_change(void **state) {
    static const struct {
        const char *before, *down, *up; /* `before` NULL: fused */
        dfx_lora_style style;
    } table[] = {
        {NULL, "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
         "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight", DFX_LORA_KOHYA},
        {NULL, "diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight",
         "diffusion_model.double_blocks.0.img_attn.qkv.lora_B.weight", DFX_LORA_BFL},
        {NULL, "model.diffusion_model.double_blocks.0.img_attn.qkv.lora_down.weight",
         "model.diffusion_model.double_blocks.0.img_attn.qkv.lora_up.weight", DFX_LORA_BFL},
        {NULL, "double_blocks.0.img_attn.qkv.lora_A.weight",
         "double_blocks.0.img_attn.qkv.lora_B.weight", DFX_LORA_BFL},
        {NULL, "double_blocks.0.img_attn.qkv.lora_A", "double_blocks.0.img_attn.qkv.lora_B",
         DFX_LORA_BFL},
        {NULL, "base_model.model.double_blocks.0.img_attn.qkv.lora_A.weight",
         "base_model.model.double_blocks.0.img_attn.qkv.lora_B.weight", DFX_LORA_FAL},
        {NULL, "double_blocks.0.processor.qkv_lora1.down.weight",
         "double_blocks.0.processor.qkv_lora1.up.weight", DFX_LORA_XLABS},
        {NULL, "diffusion_model.double_blocks.0.processor.qkv_lora1.down.weight",
         "diffusion_model.double_blocks.0.processor.qkv_lora1.up.weight", DFX_LORA_XLABS},
        {"transformer.transformer_blocks.0.attn.to_", ".lora_A.weight", ".lora_B.weight",
         DFX_LORA_PEFT},
        {"transformer_blocks.0.attn.to_", ".lora_A.weight", ".lora_B.weight", DFX_LORA_PEFT},
        {"base_model.model.transformer_blocks.0.attn.to_", ".lora_A.weight", ".lora_B.weight",
         DFX_LORA_PEFT},
        {"transformer.transformer_blocks.0.attn.to_", ".lora_A.default.weight",
         ".lora_B.default.weight", DFX_LORA_PEFT},
        {"transformer.transformer_blocks.0.attn.to_", ".lora.down.weight", ".lora.up.weight",
         DFX_LORA_PEFT},
        {"transformer.transformer_blocks.0.attn.to_", "_lora.down.weight", "_lora.up.weight",
         DFX_LORA_PEFT},
        {"transformer.transformer_blocks.0.attn.to_", ".lora_linear_layer.down.weight",
         ".lora_linear_layer.up.weight", DFX_LORA_PEFT},
        {"lora_transformer_transformer_blocks_0_attn_to_", ".lora_down.weight", ".lora_up.weight",
         DFX_LORA_ONETRAINER},
        {"lycoris_transformer_blocks_0_attn_to_", ".lora_down.weight", ".lora_up.weight",
         DFX_LORA_LYCORIS},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        lora_file f;
        lora_file_begin(&f);
        if (table[i].before)
            add_split(&f, table[i].before, table[i].down, table[i].up);
        else
            add_fused(&f, table[i].down, table[i].up);
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        const dfx_lora_facts *facts = dfx_lora_facts_of(lora);
        is_delta_of_block_0(lora);
        assert_int_equal(facts->style, table[i].style);
        assert_int_equal(facts->n_modules, table[i].before ? 3 : 1);
        assert_int_equal(facts->n_matched, facts->n_modules);
        assert_int_equal(facts->n_unmatched, 0);
        said_words(&dir->log, DFX_INFO, table[i].before ? "3 of 3 modules" : "1 of 1 modules");
        said_nothing(&dir->log, DFX_WARN);
        dfx_lora_close(lora);
    }
}

static void lora_number_types_give_the_same_change(void **state) {
    static const dfx_dtype types[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F16,
                                      DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E5M2};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(types); i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_tensor(&f, "double_blocks.0.img_attn.qkv.lora_A.weight", types[i], 2,
                         (int64_t[]){2, 2}, A);
        /* of convolutions: sides of 1 are squeezed */
        lora_file_tensor(&f, "double_blocks.0.img_attn.qkv.lora_B.weight", types[i], 4,
                         (int64_t[]){6, 2, 1, 1}, B);
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        is_delta_of_block_0(lora);
        dfx_lora_close(lora);
    }
}

/* ---- alpha ---- */

static void one_scale(tmpdir *dir, dfx_dtype dtype, int rank, const float *alpha, float want) {
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    add_fused(&f, "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
              "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight");
    if (alpha)
        lora_file_tensor(&f, "lora_unet_double_blocks_0_img_attn_qkv.alpha", dtype, rank,
                         (int64_t[]){1, 1}, alpha);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    const float dv[] = {4 * want, 6 * want, -2 * want, -2 * want};
    const dfx_lora_part *part =
        dfx_lora_find(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_v");
    assert_true(part->scale == want && part->rank == 2);
    assert_true(part->alpha == (alpha ? *alpha : 2));
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_v", 4, dv);
    dfx_lora_close(lora);
}

static void lora_alpha_is_divided_by_the_rank(void **state) {
    tmpdir *dir = *state;
    float one = 1, two = 2, minus = -3;
    one_scale(dir, DFX_DTYPE_F32, 0, NULL, 1);
    one_scale(dir, DFX_DTYPE_F32, 0, &one, 0.5f);
    one_scale(dir, DFX_DTYPE_F32, 1, &one, 0.5f);
    one_scale(dir, DFX_DTYPE_F16, 0, &one, 0.5f);
    one_scale(dir, DFX_DTYPE_BF16, 1, &one, 0.5f);
    one_scale(dir, DFX_DTYPE_F32, 0, &two, 1);
    one_scale(dir, DFX_DTYPE_F32, 2, &minus, -1.5f);
}

static void lora_alpha_zero_has_no_effect(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    add_fused(&f, "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
              "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight");
    lora_file_scalar(&f, "lora_unet_double_blocks_0_img_attn_qkv.alpha", 0);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 0);
    assert_int_equal(dfx_lora_facts_of(lora)->n_zero, 3);
    said_words(&dir->log, DFX_WARN, "no effect");
    dfx_lora_close(lora);
}

static void lora_alpha_that_is_no_finite_number_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    const float values[] = {NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        lora_file f;
        lora_file_begin(&f);
        add_fused(&f, "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
                  "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight");
        if (i < 2)
            lora_file_scalar(&f, "lora_unet_double_blocks_0_img_attn_qkv.alpha", values[i]);
        else
            lora_file_add(&f, "lora_unet_double_blocks_0_img_attn_qkv.alpha", 1, 2, A);
        lora_file_write(&f, dir, lora_name);
        lora_rejects(dir, &configs,
                     i < 2 ? "img_attn_qkv.alpha: alpha is not finite" : "wanted one number");
    }
}

/* Ranks and alphas that differ; names that end alike. */
static void lora_each_layer_has_its_own_rank_and_alpha(void **state) {
    static const char *const layers[] = {"proj_out", "single_transformer_blocks.0.proj_out",
                                         "transformer_blocks.1.ff.net.2"};
    static const int n[] = {4, 2, 2}, k[] = {2, 10, 8}, rank[] = {4, 2, 16};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    float ones[160], names_alpha[] = {8, 1, 4};
    lora_file f;
    char name[128];
    for (size_t i = 0; i < DFX_COUNT(ones); i++)
        ones[i] = 1;
    lora_file_begin(&f);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "transformer.%s", layers[i]);
        lora_file_pair(&f, name, rank[i], k[i], ones, n[i], ones);
        strcat(name, ".alpha");
        lora_file_scalar(&f, name, names_alpha[i]);
    }
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 3);
    for (int i = 0; i < 3; i++) {
        const dfx_lora_part *p = dfx_lora_find(lora, DFX_TRANSFORMER, layers[i]);
        assert_non_null(p);
        assert_true(p->rank == rank[i] && p->n == n[i] && p->k == k[i]);
        assert_true(p->alpha == names_alpha[i]);
        assert_true(p->scale == names_alpha[i] / (float)rank[i]);
    }
    const dfx_lora_facts *facts = dfx_lora_facts_of(lora);
    assert_true(facts->rank_min == 2 && facts->rank_max == 16);
    assert_true(facts->alpha_min == 1 && facts->alpha_max == 8);
    assert_true(facts->scale_min == 0.25f && facts->scale_max == 2);
    assert_int_equal(facts->n_parts_of[DFX_TRANSFORMER], 3);
    dfx_lora_close(lora);
}

/* ---- PEFT's configuration ---- */

static dfx_lora *open_with_metadata(tmpdir *dir, const char *json) {
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "transformer.proj_out", 2, 2, A, 4, B);
    lora_file_pair(&f, "transformer.transformer_blocks.0.attn.to_q", 2, 2, A, 2, B);
    lora_file_pair(&f, "text_encoder.text_model.encoder.layers.0.self_attn.q_proj", 2, 2, A, 2, B);
    lora_file_metadata(&f, "lora_adapter_metadata", json);
    lora_file_write(&f, dir, lora_name);
    return lora_opens(dir, &configs);
}

static void scale_is(const dfx_lora *lora, dfx_component component, const char *layer, float want) {
    const dfx_lora_part *p = dfx_lora_find(lora, component, layer);
    assert_non_null(p);
    if (p->scale != want)
        fail_msg("%s: scale %g, wanted %g", layer, (double)p->scale, (double)want);
}

static void lora_metadata_of_peft_sets_the_scale(void **state) {
    tmpdir *dir = *state;
    dfx_lora *lora = open_with_metadata(
        dir, "{\"transformer.r\": 2, \"transformer.lora_alpha\": 4, "
             "\"transformer.alpha_pattern\": {\"transformer_blocks.0.attn.to_q\": 16}, "
             "\"transformer.rank_pattern\": {}, \"transformer.use_rslora\": false}");
    scale_is(lora, DFX_TRANSFORMER, "proj_out", 2);
    scale_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_q", 8);
    scale_is(lora, DFX_CLIP, "text_model.encoder.layers.0.self_attn.q_proj", 1);
    dfx_lora_close(lora);
    lora = open_with_metadata(
        dir,
        "{\"transformer.r\": 2, \"transformer.lora_alpha\": 4, \"text_encoder.lora_alpha\": 1, "
        "\"transformer.alpha_pattern\": {\"^transformer_blocks\\\\.0\\\\.attn\\\\.to_q$\": 6}, "
        "\"transformer.use_rslora\": true}");
    scale_is(lora, DFX_TRANSFORMER, "proj_out", (float)(4 / sqrt(2.0)));
    scale_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_q", (float)(6 / sqrt(2.0)));
    scale_is(lora, DFX_CLIP, "text_model.encoder.layers.0.self_attn.q_proj", 0.5f);
    dfx_lora_close(lora);
}

static void lora_alpha_pattern_of_an_ending_is_warned_of(void **state) {
    tmpdir *dir = *state;
    dfx_lora *lora = open_with_metadata(
        dir, "{\"transformer.lora_alpha\": 4, \"transformer.alpha_pattern\": {\"to_q\": 16}}");
    scale_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_q", 2);
    said_words(&dir->log, DFX_WARN, "alpha_pattern names to_q");
    dfx_lora_close(lora);
}

static void lora_broken_metadata_is_refused(void **state) {
    static const char *const texts[] = {"{", "[]", "{\"transformer.lora_alpha\": \"4\"}"};
    static const char *const words[] = {"lora_adapter_metadata", "wanted a JSON object",
                                        "alpha of proj_out: wanted a number"};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(texts); i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, "transformer.proj_out", 2, 2, A, 4, B);
        lora_file_metadata(&f, "lora_adapter_metadata", texts[i]);
        lora_file_write(&f, dir, lora_name);
        lora_rejects(dir, &configs, words[i]);
    }
}

static void lora_folder_of_peft_has_its_alpha_beside(void **state) {
    static const char *const names[] = {"peft/adapter_model.safetensors",
                                        "peft/pytorch_lora_weights.safetensors"};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        char path[TMPDIR_PATH];
        dfx_lora *lora;
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, "base_model.model.proj_out", 2, 2, A, 4, B);
        tmpdir_write_text(dir, "peft/adapter_config.json",
                          i == 0 ? "{\"r\": 2, \"lora_alpha\": 4, \"peft_type\": \"LORA\"}"
                                 : "{\"r\": 2, \"lora_alpha\": 8}");
        lora_file_write(&f, dir, names[i]);
        const char *from = i == 0 ? "peft" : names[i]; /* the folder, or the file in it */
        assert_int_equal(
            dfx_lora_open(tmpdir_join(dir, from, path), &configs, &dir->log.sink, &lora), DFX_OK);
        scale_is(lora, DFX_TRANSFORMER, "proj_out", i == 0 ? 2 : 4);
        dfx_lora_close(lora);
    }
}

static void lora_other_names_take_no_configuration_from_beside(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "proj_out", 2, 2, A, 4, B);
    tmpdir_write_text(dir, "adapter_config.json", "{\"r\": 2, \"lora_alpha\": 4}");
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    scale_is(lora, DFX_TRANSFORMER, "proj_out", 1);
    said_words(&dir->log, DFX_WARN, "adapter_config.json");
    dfx_lora_close(lora);
}

/* ---- fused layers ---- */

static void lora_linear1_is_cut_into_unequal_parts(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs(); /* D = 2: rows 2, 2, 2, 8 */
    float up[14];
    const float down[] = {1, 10};
    for (int i = 0; i < 14; i++)
        up[i] = (float)(i + 1);
    lora_file f;
    lora_file_begin(&f);
    lora_file_add(&f, "lora_unet_single_blocks_0_linear1.lora_down.weight", 1, 2, down);
    lora_file_add(&f, "lora_unet_single_blocks_0_linear1.lora_up.weight", 14, 1, up);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 4);
    lora_delta_is(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.attn.to_q", 4,
                  (float[]){1, 10, 2, 20});
    lora_delta_is(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.attn.to_k", 4,
                  (float[]){3, 30, 4, 40});
    lora_delta_is(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.attn.to_v", 4,
                  (float[]){5, 50, 6, 60});
    lora_delta_is(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.proj_mlp", 16,
                  (float[]){7, 70, 8, 80, 9, 90, 10, 100, 11, 110, 12, 120, 13, 130, 14, 140});
    dfx_lora_close(lora);
}

/* sd-scripts' split_qkv: three parts of rank 1, saved as one of rank 3, with the alpha of one. */
static void lora_block_diagonal_module_has_parts_of_their_own_rank(void **state) {
    static const float down[] = {1, 2, 3, 4, 5, 6};
    static const float up[] = {1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 5, 0, 0, 6};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    lora_file_add(&f, "lora_unet_double_blocks_0_txt_attn_qkv.lora_down.weight", 3, 2, down);
    lora_file_add(&f, "lora_unet_double_blocks_0_txt_attn_qkv.lora_up.weight", 6, 3, up);
    lora_file_scalar(&f, "lora_unet_double_blocks_0_txt_attn_qkv.alpha", 1.5f);
    lora_file_metadata(&f, "ss_network_args", "{\"split_qkv\": \"True\", \"x\": \"1\"}");
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    const dfx_lora_facts *facts = dfx_lora_facts_of(lora);
    assert_true(facts->rank_min == 1 && facts->rank_max == 1);
    assert_int_equal(facts->n_block_diagonal, 1);
    assert_true(facts->split_qkv);
    said_words(&dir->log, DFX_INFO, "split_qkv");
    /* alpha / rank of the file: 1.5 / 3 */
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.add_q_proj", 4,
                  (float[]){0.5f, 1, 1, 2});
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.add_k_proj", 4,
                  (float[]){4.5f, 6, 6, 8});
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.add_v_proj", 4,
                  (float[]){12.5f, 15, 15, 18});
    dfx_lora_close(lora);
}

static void lora_block_diagonal_but_for_one_value_is_dense(void **state) {
    static const float down[] = {1, 2, 3, 4, 5, 6};
    static const float up[] = {1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 5, 7, 0, 6};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "double_blocks.0.txt_attn.qkv", 3, 2, down, 6, up);
    lora_file_metadata(&f, "ss_network_args", "{\"split_qkv\": \"False\"}");
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_facts_of(lora)->n_block_diagonal, 0);
    assert_false(dfx_lora_facts_of(lora)->split_qkv);
    assert_int_equal(dfx_lora_facts_of(lora)->rank_max, 3);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.add_v_proj", 4,
                  (float[]){25, 30, 37, 50});
    dfx_lora_close(lora);
}

/* 1 is the image stream, 2 the text stream; single blocks: qkv is the first 3 D rows of linear1, proj all of linear2. */
static void lora_xlabs_names_the_right_stream(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    float ones[20];
    lora_file f;
    for (int i = 0; i < 20; i++)
        ones[i] = 1;
    lora_file_begin(&f);
    add_fused(&f, "double_blocks.1.processor.qkv_lora2.down.weight",
              "double_blocks.1.processor.qkv_lora2.up.weight");
    lora_file_add(&f, "double_blocks.0.processor.proj_lora1.down.weight", 2, 2, A);
    lora_file_add(&f, "double_blocks.0.processor.proj_lora1.up.weight", 2, 2, B);
    lora_file_add(&f, "double_blocks.1.processor.proj_lora2.down.weight", 2, 2, A);
    lora_file_add(&f, "double_blocks.1.processor.proj_lora2.up.weight", 2, 2, B);
    add_fused(&f, "single_blocks.0.processor.qkv_lora.down.weight",
              "single_blocks.0.processor.qkv_lora.up.weight");
    lora_file_add(&f, "single_blocks.0.processor.proj_lora.down.weight", 2, 10, ones);
    lora_file_add(&f, "single_blocks.0.processor.proj_lora.up.weight", 2, 2, B);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 9);
    assert_int_equal(dfx_lora_facts_of(lora)->style, DFX_LORA_XLABS);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.add_q_proj", 4, DQ);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.add_v_proj", 4, DV);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_out.0", 4, DQ);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.to_add_out", 4, DQ);
    lora_delta_is(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.attn.to_k", 4, DK);
    assert_null(dfx_lora_find(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.proj_mlp"));
    assert_int_equal(
        dfx_lora_find(lora, DFX_TRANSFORMER, "single_transformer_blocks.0.proj_out")->k, 10);
    dfx_lora_close(lora);
}

/* BFL: shift, scale; ours: scale, shift. */
static void lora_final_layer_of_bfl_is_swapped(void **state) {
    static const float down[] = {1, 2}, up[] = {1, 2, 3, 4}, swapped[] = {3, 6, 4, 8, 1, 2, 2, 4},
                       same[] = {1, 2, 2, 4, 3, 6, 4, 8};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (int bfl = 0; bfl < 2; bfl++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, bfl ? "final_layer.adaLN_modulation.1" : "norm_out.linear", 1, 2, down,
                       4, up);
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        lora_delta_is(lora, DFX_TRANSFORMER, "norm_out.linear", 8, bfl ? swapped : same);
        dfx_lora_close(lora);
    }
}

/* ---- text encoders ---- */

static void lora_text_encoder_names_are_known(void **state) {
    static const struct {
        const char *name;
        dfx_component component;
        const char *layer;
    } table[] = {
        {"lora_te1_text_model_encoder_layers_0_self_attn_k_proj", DFX_CLIP,
         "text_model.encoder.layers.0.self_attn.k_proj"},
        {"lora_te_text_model_encoder_layers_0_self_attn_k_proj", DFX_CLIP,
         "text_model.encoder.layers.0.self_attn.k_proj"},
        {"text_encoder.text_model.encoder.layers.0.self_attn.out_proj", DFX_CLIP,
         "text_model.encoder.layers.0.self_attn.out_proj"},
        {"text_encoders.clip_l.transformer.text_model.encoder.layers.0.self_attn.v_proj", DFX_CLIP,
         "text_model.encoder.layers.0.self_attn.v_proj"},
    };
    static const struct {
        const char *name, *layer;
    } t5[] = {
        {"lora_te3_encoder_block_0_layer_0_SelfAttention_q",
         "encoder.block.0.layer.0.SelfAttention.q"},
        {"lora_te2_encoder_block_0_layer_0_SelfAttention_k",
         "encoder.block.0.layer.0.SelfAttention.k"},
        {"text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.v",
         "encoder.block.0.layer.0.SelfAttention.v"},
        {"text_encoder_2.encoder.block.0.layer.0.SelfAttention.q",
         "encoder.block.0.layer.0.SelfAttention.q"},
    };
    static const float down3[] = {1, 2, 3}, up2[] = {1, 2}, want[] = {1, 2, 3, 2, 4, 6};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, table[i].name, 2, 2, A, 2, B);
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        lora_delta_is(lora, table[i].component, table[i].layer, 4, DQ);
        assert_int_equal(dfx_lora_facts_of(lora)->n_parts_of[DFX_CLIP], 1);
        dfx_lora_close(lora);
    }
    for (size_t i = 0; i < DFX_COUNT(t5); i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, t5[i].name, 1, 3, down3, 2, up2);
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        lora_delta_is(lora, DFX_T5, t5[i].layer, 6, want);
        assert_int_equal(dfx_lora_facts_of(lora)->n_parts_of[DFX_T5], 1);
        dfx_lora_close(lora);
    }
}

/* Savers write zeros for encoders that were not trained. */
static void lora_zero_parts_are_left_out_quietly(void **state) {
    static const float zero[12] = {0}, down3[] = {1, 2, 3};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "lora_te3_encoder_block_0_layer_1_DenseReluDense_wi_0", 1, 3, down3, 4,
                   zero);
    lora_file_pair(&f, "lora_unet_double_blocks_0_img_attn_proj", 2, 2, A, 2, B);
    lora_file_pair(&f, "lora_unet_double_blocks_1_img_attn_proj", 2, 2, zero, 2, B);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 1);
    assert_int_equal(dfx_lora_facts_of(lora)->n_zero, 2);
    assert_int_equal(dfx_lora_facts_of(lora)->n_matched, 3);
    said_nothing(&dir->log, DFX_WARN);
    dfx_lora_close(lora);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lora_every_style_gives_the_same_change),
        TEST(lora_number_types_give_the_same_change),
        TEST(lora_alpha_is_divided_by_the_rank),
        TEST(lora_alpha_zero_has_no_effect),
        TEST(lora_alpha_that_is_no_finite_number_is_refused),
        TEST(lora_each_layer_has_its_own_rank_and_alpha),
        TEST(lora_metadata_of_peft_sets_the_scale),
        TEST(lora_alpha_pattern_of_an_ending_is_warned_of),
        TEST(lora_broken_metadata_is_refused),
        TEST(lora_folder_of_peft_has_its_alpha_beside),
        TEST(lora_other_names_take_no_configuration_from_beside),
        TEST(lora_linear1_is_cut_into_unequal_parts),
        TEST(lora_block_diagonal_module_has_parts_of_their_own_rank),
        TEST(lora_block_diagonal_but_for_one_value_is_dense),
        TEST(lora_xlabs_names_the_right_stream),
        TEST(lora_final_layer_of_bfl_is_swapped),
        TEST(lora_text_encoder_names_are_known),
        TEST(lora_zero_parts_are_left_out_quietly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
