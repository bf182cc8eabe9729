/* LoRA files that are refused, and with which words; those that match in part or not at all; what is ignored because it is zero.
 * Acceptance cases C08, C09, C11, C13, C15, J11. */
#include "tests/lora_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/architecture.h"
#include "tests/ggfile.h"

static const float A[] = {1, 2, 3, 4};
static const float B[] = {1, 0, 0, 1, 2, 0, 0, 2, 1, 1, 1, -1};
static const float ZERO[64] = {0};

typedef struct piece {
    const char *name;
    int rows, cols;
    const float *values;
} piece;

/* A file of up to six tensors (the first without a name ends them). */
static void write_file(const tmpdir *dir, const piece *pieces) {
    lora_file f;
    lora_file_begin(&f);
    for (int i = 0; i < 6 && pieces[i].name; i++)
        lora_file_add(&f, pieces[i].name, pieces[i].rows, pieces[i].cols, pieces[i].values);
    lora_file_write(&f, dir, lora_name);
}

static void lora_broken_pairs_are_refused(void **state) {
    static const float nan_a[] = {1, NAN, 3, 4}, inf_b[] = {1, 2, 3, INFINITY};
    static const struct {
        piece pieces[6];
        const char *words;
    } table[] = {
        {{{"proj_out.lora_A.weight", 2, 2, A}}, "proj_out.lora_A.weight stands alone"},
        {{{"proj_out.lora_B.weight", 4, 2, B}}, "proj_out.lora_B.weight stands alone"},
        {{{"proj_out.lora_A.weight", 2, 2, A}, {"proj_out.lora_B.weight", 4, 1, B}},
         "proj_out.lora_B.weight has 1 columns, proj_out.lora_A.weight has 2 rows"},
        {{{"proj_out.lora_A.weight", 1, 4, A}, {"proj_out.lora_B.weight", 4, 1, B}},
         "proj_out.lora_A.weight: wanted 2 columns (in features), as the layer proj_out"},
        {{{"proj_out.lora_A.weight", 2, 2, A}, {"proj_out.lora_B.weight", 6, 2, B}},
         "proj_out.lora_B.weight: wanted 4 rows (out features)"},
        {{{"proj_out.lora_A.weight", 2, 2, nan_a}, {"proj_out.lora_B.weight", 4, 2, B}},
         "proj_out.lora_A.weight: a value is not finite"},
        {{{"proj_out.lora_A.weight", 1, 2, A}, {"proj_out.lora_B.weight", 4, 1, inf_b}},
         "proj_out.lora_B.weight: a value is not finite"},
        {{{"proj_out.lora_A.weight", 0, 2, A}, {"proj_out.lora_B.weight", 4, 0, B}},
         "proj_out.lora_A.weight: wanted a matrix of floats, not empty, found F32 [0, 2]"},
        {{{"proj_out.alpha", 1, 1, A}}, "proj_out: only an alpha"},
        /* single-block proj_lora on the attention half alone */
        {{{"single_blocks.0.processor.proj_lora.down.weight", 1, 2, A},
          {"single_blocks.0.processor.proj_lora.up.weight", 2, 1, A}},
         "proj_lora.down.weight: wanted 10 columns"},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        write_file(dir, table[i].pieces);
        lora_rejects(dir, &configs, table[i].words);
    }
}

static void lora_factors_that_are_no_matrices_of_floats_are_refused(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    static const struct {
        dfx_dtype dtype;
        int rank;
        int64_t shape[4];
    } table[] = {{DFX_DTYPE_I8, 2, {2, 2}},
                 {DFX_DTYPE_F32, 1, {4}},
                 {DFX_DTYPE_F32, 3, {1, 2, 2}},
                 {DFX_DTYPE_F32, 4, {1, 2, 1, 2}}};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_tensor(&f, "proj_out.lora_A.weight", table[i].dtype, table[i].rank,
                         table[i].shape, A);
        lora_file_add(&f, "proj_out.lora_B.weight", 4, 2, B);
        lora_file_write(&f, dir, lora_name);
        lora_rejects(dir, &configs, "proj_out.lora_A.weight: wanted a matrix of floats");
    }
}

static void lora_two_sources_of_one_layer_are_refused(void **state) {
    static const struct {
        piece pieces[6];
        const char *words;
    } table[] = {
        /* fused and split */
        {{{"double_blocks.0.img_attn.qkv.lora_A.weight", 2, 2, A},
          {"double_blocks.0.img_attn.qkv.lora_B.weight", 6, 2, B},
          {"transformer_blocks.0.attn.to_k.lora_A.weight", 2, 2, A},
          {"transformer_blocks.0.attn.to_k.lora_B.weight", 2, 2, B}},
         "both change the layer transformer_blocks.0.attn.to_k"},
        /* two spellings */
        {{{"double_blocks.0.img_attn.proj.lora_A.weight", 2, 2, A},
          {"double_blocks.0.img_attn.proj.lora_B.weight", 2, 2, B},
          {"transformer_blocks.0.attn.to_out.0.lora_A.weight", 2, 2, A},
          {"transformer_blocks.0.attn.to_out.0.lora_B.weight", 2, 2, B}},
         "both change the layer transformer_blocks.0.attn.to_out.0"},
        /* two prefixes */
        {{{"proj_out.lora_A.weight", 2, 2, A},
          {"proj_out.lora_B.weight", 4, 2, B},
          {"transformer.proj_out.lora_A.weight", 2, 2, A}},
         "proj_out.lora_A.weight and transformer.proj_out.lora_A.weight are the same tensor"},
        /* two endings */
        {{{"proj_out.lora_A.weight", 2, 2, A},
          {"proj_out.lora_B.weight", 4, 2, B},
          {"proj_out.lora_down.weight", 2, 2, A}},
         "are the same tensor of the layer proj_out"},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        write_file(dir, table[i].pieces);
        lora_rejects(dir, &configs, table[i].words);
    }
}

/* ---- what matches ---- */

static void lora_that_matches_nothing_is_refused(void **state) {
    static const struct {
        piece pieces[6];
        const char *words;
    } table[] = {
        {{{NULL, 0, 0, NULL}}, "wanted a LoRA, found no tensors"},
        /* SDXL's U-Net */
        {{{"lora_unet_input_blocks_4_1_proj_in.lora_down.weight", 2, 2, A},
          {"lora_unet_input_blocks_4_1_proj_in.lora_up.weight", 4, 2, B}},
         "0 of 1 modules match this model"},
        /* ... with its first text encoder, which is FLUX's CLIP */
        {{{"lora_unet_input_blocks_4_1_proj_in.lora_down.weight", 2, 2, A},
          {"lora_unet_input_blocks_4_1_proj_in.lora_up.weight", 4, 2, B},
          {"lora_te1_text_model_encoder_layers_0_self_attn_k_proj.lora_down.weight", 2, 2, A},
          {"lora_te1_text_model_encoder_layers_0_self_attn_k_proj.lora_up.weight", 2, 2, B}},
         "0 of 1 modules match the transformer of this model, only text encoders do"},
        /* a second CLIP is not T5, a model's weight is no LoRA */
        {{{"lora_te2_text_model_encoder_layers_0_self_attn_k_proj.lora_down.weight", 2, 2, A},
          {"lora_te2_text_model_encoder_layers_0_self_attn_k_proj.lora_up.weight", 2, 2, B}},
         "0 of 1 modules match"},
        {{{"transformer_blocks.0.attn.to_q.weight", 2, 2, A}}, "0 of 1 modules match"},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        write_file(dir, table[i].pieces);
        lora_rejects(dir, &configs, table[i].words);
    }
}

static void lora_that_matches_in_part_is_warned_of(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    char name[64];
    lora_file_begin(&f);
    lora_file_pair(&f, "transformer.proj_out", 2, 2, A, 4, B);
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof(name), "transformer.renamed_%d", i);
        lora_file_pair(&f, name, 2, 2, A, 4, B);
    }
    lora_file_add(&f, "transformer.proj_out.something", 1, 1, A);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    const dfx_lora_facts *facts = dfx_lora_facts_of(lora);
    assert_int_equal(dfx_lora_n_parts(lora), 1);
    assert_int_equal(facts->n_modules, 9);
    assert_int_equal(facts->n_matched, 1);
    assert_int_equal(facts->n_unmatched, 8);
    assert_int_equal(facts->n_named, 5);
    assert_string_equal(facts->unmatched[0], "transformer.proj_out.something");
    assert_string_equal(facts->unmatched[4], "transformer.renamed_3");
    said_words(&dir->log, DFX_WARN,
               "8 of 9 modules name no layer of this model and are left out: "
               "transformer.proj_out.something, transformer.renamed_0, transformer.renamed_1, "
               "transformer.renamed_2, transformer.renamed_3, ...");
    dfx_lora_close(lora);
}

static void lora_can_be_looked_at_when_nothing_matches(void **state) {
    static const piece pieces[6] = {{"x.lora_A.weight", 2, 2, A}, {"x.lora_B.weight", 2, 2, B}};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    char path[TMPDIR_PATH];
    dfx_lora *lora;
    write_file(dir, pieces);
    assert_int_equal(
        dfx_lora_look(tmpdir_join(dir, lora_name, path), &configs, &dir->log.sink, &lora), DFX_OK);
    said_nothing(&dir->log, DFX_ERROR);
    assert_string_equal(dfx_lora_facts_of(lora)->unmatched[0], "x");
    assert_int_equal(dfx_lora_check_matched(lora, &dir->log.sink), DFX_E_FORMAT);
    said_error(&dir->log, "0 of 1 modules");
    dfx_lora_close(lora);
}

/* guidance_in is a layer of dev and none of schnell; of a text encoder alone there is enough. */
static void lora_of_dev_on_schnell_lacks_guidance(void **state) {
    static const float down[256] = {1}, up[] = {1, 2};
    tmpdir *dir = *state;
    dfx_configs dev = lora_configs(), schnell = lora_configs();
    schnell.flux.has_guidance = false;
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "guidance_in.in_layer", 1, 256, down, 2, up);
    lora_file_pair(&f, "double_blocks.0.img_attn.proj", 2, 2, A, 2, B);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &dev);
    assert_non_null(
        dfx_lora_find(lora, DFX_TRANSFORMER, "time_text_embed.guidance_embedder.linear_1"));
    dfx_lora_close(lora);
    lora = lora_opens(dir, &schnell);
    assert_int_equal(dfx_lora_n_parts(lora), 1);
    said_words(&dir->log, DFX_WARN, "guidance_in.in_layer");
    dfx_lora_close(lora);
}

/* ---- what has no low rank ---- */

static void lora_other_changes_are_refused_unless_zero(void **state) {
    static const struct {
        const char *name;
        int rows, cols;
        const char *words;
    } table[] = {
        {"double_blocks.0.img_attn.proj.diff", 2, 2, "img_attn.proj.diff changes a full matrix"},
        {"double_blocks.0.img_attn.proj.diff_b", 1, 2, "img_attn.proj.diff_b changes a bias"},
        {"double_blocks.0.img_attn.proj.lora_B.bias", 1, 2, "lora_B.bias changes a bias"},
        {"double_blocks.0.img_attn.norm.query_norm.scale", 1, 2,
         "query_norm.scale changes a norm's weight"},
        {"transformer_blocks.0.attn.norm_k.w_norm", 1, 2, "w_norm changes a norm's weight"},
        {"double_blocks.0.img_attn.proj.set_weight", 2, 2, "set_weight changes a whole weight"},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        for (int zero = 0; zero < 2; zero++) {
            lora_file f;
            lora_file_begin(&f);
            lora_file_pair(&f, "double_blocks.0.txt_attn.proj", 2, 2, A, 2, B);
            lora_file_add(&f, table[i].name, table[i].rows, table[i].cols, zero ? ZERO : A);
            lora_file_write(&f, dir, lora_name);
            if (!zero) {
                lora_rejects(dir, &configs, table[i].words);
                continue;
            }
            dfx_lora *lora = lora_opens(dir, &configs);
            assert_int_equal(dfx_lora_facts_of(lora)->n_ignored_zeros, 1);
            assert_int_equal(dfx_lora_n_parts(lora), 1);
            said_nothing(&dir->log, DFX_WARN);
            dfx_lora_close(lora);
        }
    }
}

static void lora_of_norms_alone_is_refused(void **state) {
    static const piece pieces[6] = {{"double_blocks.0.img_attn.norm.query_norm.scale", 1, 2, A}};
    static const piece zeros[6] = {{"double_blocks.0.img_attn.norm.query_norm.scale", 1, 2, ZERO}};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    write_file(dir, pieces);
    lora_rejects(dir, &configs, "query_norm.scale changes a norm's weight");
    write_file(dir, zeros);
    lora_rejects(dir, &configs, "wanted a LoRA");
}

static void lora_control_lora_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = dfx_architecture_find("flux-dev")->configs;
    float *down = calloc(128, sizeof(float)), *up = calloc(3072, sizeof(float));
    assert_true(down && up);
    down[0] = up[0] = 1;
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "img_in", 1, 128, down, 3072, up);
    lora_file_add(&f, "double_blocks.0.img_attn.norm.query_norm.scale", 1, 128, down);
    lora_file_write(&f, dir, lora_name);
    lora_rejects(dir, &configs, "control LoRA needs 128 input channels, this model has 64");
    free(down);
    free(up);
}

static void lora_kinds_that_are_not_applied_are_refused(void **state) {
    static const char *const names[] = {"proj_out.oft_blocks", "proj_out.a1.weight",
                                        "proj_out.lora_mid.weight", "proj_out.hada_t1"};
    static const char *const words[] = {"proj_out.oft_blocks is of OFT", "is of GLoRA",
                                        "is of a Tucker", "is of a Tucker"};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        const piece pieces[6] = {{names[i], 2, 2, A}};
        write_file(dir, pieces);
        lora_rejects(dir, &configs, words[i]);
    }
}

static void lora_reshape_to_the_same_shape_is_nothing(void **state) {
    static const float same[] = {4, 2}, wider[] = {4, 3};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (int i = 0; i < 2; i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, "proj_out", 2, 2, A, 4, B);
        lora_file_add(&f, "proj_out.reshape_weight", 1, 2, i ? wider : same);
        lora_file_write(&f, dir, lora_name);
        if (i)
            lora_rejects(dir, &configs, "proj_out.reshape_weight: the LoRA wants");
        else
            dfx_lora_close(lora_opens(dir, &configs));
    }
}

/* ---- files and memory ---- */

static void lora_missing_and_damaged_files_are_told(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    dfx_lora *lora = NULL;
    char path[TMPDIR_PATH];
    assert_int_equal(dfx_lora_open(tmpdir_join(dir, "none", path), &configs, &dir->log.sink, &lora),
                     DFX_E_IO);
    tmpdir_mkdir(dir, "folder");
    recorder_clear(&dir->log);
    assert_int_equal(
        dfx_lora_open(tmpdir_join(dir, "folder", path), &configs, &dir->log.sink, &lora),
        DFX_E_FORMAT);
    said_error(&dir->log, "adapter_model.safetensors");
    tmpdir_write(dir, lora_name, "", 0);
    lora_rejects(dir, &configs, "empty");
    assert_null(lora);
}

/* A GGUF file opens as tensors do; block types are no factors, and no bytes of theirs are taken for something else. */
static void lora_of_block_types_is_refused(void **state) {
    enum { F32 = 0, Q8_0 = 8 };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    static const char *const names[] = {"proj_out.diff", "proj_out.lora_B.weight",
                                        "proj_out.dora_scale"};
    static const char *const words[] = {"proj_out.diff: wanted plain numbers, found Q8_0",
                                        "proj_out.lora_B.weight: wanted a matrix of floats",
                                        "proj_out.dora_scale: wanted a DoRA magnitude"};
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        dfx_tensors *set;
        ggfile f = {0};
        char from[TMPDIR_PATH], to[TMPDIR_PATH];
        ggfile_head(&f, 3, 3, 0);
        ggfile_tensor(&f, "proj_out.lora_A.weight", F32, 0, 2, (uint64_t[]){2, 1});
        ggfile_tensor(&f, i == 1 ? "x" : "proj_out.lora_B.weight", F32, 32, 2, (uint64_t[]){1, 4});
        ggfile_tensor(&f, names[i], Q8_0, 64, 1, (uint64_t[]){32});
        ggfile_data(&f, 32, 98);
        assert_int_equal(ggfile_open(dir, &f, &set), DFX_OK);
        dfx_tensors_close(set);
        assert_int_equal(
            rename(tmpdir_join(dir, ggfile_name, from), tmpdir_join(dir, lora_name, to)), 0);
        lora_rejects(dir, &configs, words[i]);
    }
}

/* Every allocation fails once; nothing leaks, and the sink hears of it. */
static void lora_survives_every_failing_allocation(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    char path[TMPDIR_PATH];
    float down[64], up[64];
    size_t held = dfx_mem_held_bytes();
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "double_blocks.0.img_attn.qkv", 2, 2, A, 6, B);
    lora_file_add(&f, "proj_out.hada_w1_a", 4, 1, B);
    lora_file_add(&f, "proj_out.hada_w1_b", 1, 2, A);
    lora_file_add(&f, "proj_out.hada_w2_a", 4, 1, A);
    lora_file_add(&f, "proj_out.hada_w2_b", 1, 2, A);
    lora_file_add(&f, "nowhere.lora_A.weight", 1, 2, A);
    lora_file_write(&f, dir, lora_name);
    tmpdir_join(dir, lora_name, path);
    bool clean = false;
    for (uint64_t n = 1; !clean; n++) {
        dfx_lora *lora = NULL;
        assert_true(n < 1000);
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(n);
        dfx_status status = dfx_lora_open(path, &configs, &dir->log.sink, &lora);
        for (size_t i = 0; status == DFX_OK && i < dfx_lora_n_parts(lora); i++)
            status = dfx_lora_factors(lora, dfx_lora_part_at(lora, i), &dir->log.sink, down, up);
        dfx_mem_fail_nth(0);
        clean = status == DFX_OK;
        if (!clean) {
            assert_int_equal(status, DFX_E_NOFIT);
            said_words(&dir->log, DFX_ERROR, "");
        }
        dfx_lora_close(lora);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
}

/* A file in all kinds, with bytes of it changed at random: it opens, or it is refused; factors of what opens can be read. Sanitizers
 * look on. */
static void lora_damaged_bytes_are_refused_or_read(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    char path[TMPDIR_PATH];
    size_t bytes, held = dfx_mem_held_bytes(), n_opened = 0;
    uint32_t random = 1;
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "double_blocks.0.img_attn.qkv", 2, 2, A, 6, B);
    lora_file_add(&f, "proj_out.hada_w1_a", 4, 1, B);
    lora_file_add(&f, "proj_out.hada_w1_b", 1, 2, A);
    lora_file_add(&f, "proj_out.hada_w2_a", 4, 1, A);
    lora_file_add(&f, "proj_out.hada_w2_b", 1, 2, A);
    lora_file_add(&f, "norm_out.linear.lokr_w1", 2, 1, A);
    lora_file_add(&f, "norm_out.linear.lokr_w2_a", 2, 1, A);
    lora_file_add(&f, "norm_out.linear.lokr_w2_b", 1, 2, A);
    lora_file_add(&f, "norm_out.linear.dora_scale", 4, 1, A);
    lora_file_scalar(&f, "norm_out.linear.alpha", 1);
    lora_file_metadata(&f, "lora_adapter_metadata", "{\"transformer.lora_alpha\": 4}");
    lora_file_write(&f, dir, lora_name);
    char *good = tmpdir_slurp(dir, lora_name, &bytes), *bad = malloc(bytes);
    assert_non_null(bad);
    tmpdir_join(dir, lora_name, path);
    for (int round = 0; round < 3000; round++) {
        dfx_lora *lora = NULL;
        memcpy(bad, good, bytes);
        for (int i = 0; i <= round % 4; i++) {
            random = random * 1664525 + 1013904223;
            size_t at = 8 + (random >> 8) % (bytes - 8);
            /* digits for digits keep the header readable more often */
            bool digit = bad[at] >= '0' && bad[at] <= '9' && round % 2;
            bad[at] = (char)(digit ? '0' + (random >> 3) % 10 : random >> 24);
        }
        tmpdir_write(dir, lora_name, bad, bytes);
        recorder_clear(&dir->log);
        dfx_status status = dfx_lora_open(path, &configs, &dir->log.sink, &lora);
        assert_true(status == DFX_OK || status == DFX_E_FORMAT);
        assert_int_equal(recorder_count(&dir->log, DFX_ERROR), status != DFX_OK);
        for (size_t i = 0; lora && i < dfx_lora_n_parts(lora); i++) {
            const dfx_lora_part *p = dfx_lora_part_at(lora, i);
            float *down = calloc((size_t)(p->rank * p->k), sizeof(float));
            float *up = calloc((size_t)(p->n * p->rank), sizeof(float));
            assert_true(down && up);
            assert_int_equal(dfx_lora_factors(lora, p, &dir->log.sink, down, up), DFX_OK);
            free(down);
            free(up);
        }
        n_opened += lora != NULL;
        dfx_lora_close(lora);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_in_range(n_opened, 100, 2900); /* both sides were tried */
    free(good);
    free(bad);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lora_broken_pairs_are_refused),
        TEST(lora_factors_that_are_no_matrices_of_floats_are_refused),
        TEST(lora_two_sources_of_one_layer_are_refused),
        TEST(lora_that_matches_nothing_is_refused),
        TEST(lora_that_matches_in_part_is_warned_of),
        TEST(lora_can_be_looked_at_when_nothing_matches),
        TEST(lora_of_dev_on_schnell_lacks_guidance),
        TEST(lora_other_changes_are_refused_unless_zero),
        TEST(lora_of_norms_alone_is_refused),
        TEST(lora_control_lora_is_refused),
        TEST(lora_kinds_that_are_not_applied_are_refused),
        TEST(lora_reshape_to_the_same_shape_is_nothing),
        TEST(lora_missing_and_damaged_files_are_told),
        TEST(lora_of_block_types_is_refused),
        TEST(lora_survives_every_failing_allocation),
        TEST(lora_damaged_bytes_are_refused_or_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
