/* Whatever names and prefixes a checkpoint has, what is packed are the pages that the diffusers folder gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ckrig.h"

static void original_names_behind_any_prefix_give_the_folders_pages(void **state) {
    static const char *const prefixes[] = {"", "model.diffusion_model.", "diffusion_model.",
                                           "transformer.", "net."};
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_model(r, "flux.sft");
    for (size_t i = 0; i < DFX_COUNT(prefixes); i++) {
        ckrig_write(r, "transformer", true, prefixes[i], "flux.sft", NULL);
        ckrig_same_as_folder(r);
    }
}

static void diffusers_names_in_single_files_give_the_folders_pages(void **state) {
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_write(r, "transformer", false, "", "flux.safetensors", NULL);
    ckrig_write(r, "vae", false, "", "vae.safetensors", NULL);
    ckrig_model(r, "flux.safetensors");
    ckrig_same_as_folder(r);
}

/* The first half of the tensors lose their prefix. */
static void strip_half(ckfile *f) {
    for (size_t i = 0; i < f->n; i++)
        if (!strstr(f->tensors[i].name, "double_blocks.0.img_attn.norm"))
            if (i % 2 == 0)
                memmove(f->tensors[i].name, f->tensors[i].name + strlen("model.diffusion_model."),
                        strlen(f->tensors[i].name) - strlen("model.diffusion_model.") + 1);
}

static void mixed_prefixes_are_refused_with_an_example(void **state) {
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_write(r, "transformer", true, "model.diffusion_model.", "flux.safetensors", strip_half);
    ckrig_model(r, "flux.safetensors");
    ckrig_refused(
        r, DFX_E_FORMAT,
        "are behind the prefix \"model.diffusion_model.\" and some behind \"\", such as \"");
}

/* Vectors of an all-in-one file in fp8, where that holds them. */
static void vectors_to_fp8(ckfile *f) {
    for (size_t i = 0; i < f->n; i++) {
        ck_tensor *t = &f->tensors[i];
        size_t n = t->bytes / 2;
        if (t->rank != 1 || t->dtype != DFX_DTYPE_BF16)
            continue;
        float *values = ckfile_values(t);
        uint8_t *codes = malloc(n);
        assert_non_null(codes);
        bool exact = true;
        for (size_t k = 0; k < n; k++) {
            codes[k] = dfx_f32_to_e4m3(values[k]);
            exact &= dfx_e4m3_to_f32(codes[k]) == values[k];
        }
        if (exact) {
            memcpy(t->data, codes, n);
            t->bytes = n;
            t->dtype = DFX_DTYPE_F8_E4M3;
        }
        free(codes);
        free(values);
    }
}

static void add_everything(ckfile *f, const ck_rig *r) {
    ckfile_original(f, r->folder, "transformer", "model.diffusion_model.");
    ckfile_original(f, r->folder, "vae", "vae.");
    ckfile_diffusers(f, r->folder, "text_encoder", "text_encoders.clip_l.transformer.");
    ckfile_diffusers(f, r->folder, "text_encoder_2", "text_encoders.t5xxl.transformer.");
}

static void all_in_one_file_needs_nothing_beside_it(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    add_everything(&f, r);
    vectors_to_fp8(&f);
    assert_int_equal(
        ckfile_find(&f, "model.diffusion_model.double_blocks.0.img_attn.qkv.bias")->dtype,
        DFX_DTYPE_F8_E4M3);
    ckfile_write(&f, r->dir, "all.safetensors");
    ckfile_free(&f);
    ckrig_model(r, "all.safetensors");
    r->paths.vae = r->paths.clip = r->paths.t5 = NULL;
    ckrig_same_as_folder(r);
}

static void transformer_alone_is_refused_with_what_is_missing(void **state) {
    ck_rig *r = *state;
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    ckrig_model(r, "flux.safetensors");
    r->paths.vae = r->paths.clip = r->paths.t5 = NULL;
    ckrig_refused(
        r, DFX_E_FORMAT,
        "no CLIP text encoder, no T5 encoder, no VAE in this file, and no other was given for "
        "it; add --clip-l FILE --t5 FILE --vae FILE");
}

static void a_folders_part_is_replaced_by_a_file(void **state) {
    ck_rig *r = *state;
    ckrig_parts(r);
    r->paths = (dfx_model_paths){.model = r->folder,
                                 .t5 = tmpdir_join(r->dir, "t5.safetensors", r->texts[3])};
    ckrig_same_as_folder(r);
}

static void folders_serve_as_parts(void **state) {
    ck_rig *r = *state;
    char t5[TMPDIR_PATH];
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    ckrig_model(r, "flux.safetensors");
    snprintf(t5, sizeof(t5), "%s/text_encoder_2", r->folder);
    r->paths.vae = r->paths.clip = r->folder;
    r->paths.t5 = t5;
    ckrig_same_as_folder(r);
}

/* ---- B06, B07: values that tell rows apart ---- */

static void fill(ckfile *f, const char *name, int64_t row, int64_t rows, float value) {
    ck_tensor *t = ckfile_find(f, name);
    int64_t cols = t->rank == 2 ? t->shape[1] : 1;
    for (int64_t i = row * cols; i < (row + rows) * cols; i++)
        ((uint16_t *)t->data)[i] = dfx_f32_to_bf16(value);
}

/* The tiny model is 256 wide with an MLP of 1024. */
static void mark_rows(ckfile *f) {
    static const char *const parts[] = {"weight", "bias"};
    for (size_t p = 0; p < DFX_COUNT(parts); p++) {
        char name[128];
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof(name), "double_blocks.1.img_attn.qkv.%s", parts[p]);
            fill(f, name, 256 * i, 256, (float)(i + 1));
            snprintf(name, sizeof(name), "double_blocks.1.txt_attn.qkv.%s", parts[p]);
            fill(f, name, 256 * i, 256, (float)(i + 11));
            snprintf(name, sizeof(name), "single_blocks.0.linear1.%s", parts[p]);
            fill(f, name, 256 * i, 256, (float)(i + 21));
        }
        fill(f, name, 768, 1024, 24);
        snprintf(name, sizeof(name), "final_layer.adaLN_modulation.1.%s", parts[p]);
        fill(f, name, 0, 256, 1);
        fill(f, name, 256, 256, 2);
    }
}

static void expect_rows(ck_rig *r, const char *name, size_t n, size_t first, size_t end,
                        float want) {
    float *values = ckrig_values(r, DFX_TRANSFORMER, name, DFX_Q_STORED, n);
    for (size_t i = first; i < end; i++)
        assert_true(values[i] == want);
    free(values);
}

static void rows_of_fused_layers_go_where_they_belong(void **state) {
    static const struct {
        const char *layer;
        size_t rows;
        float want;
    } table[] = {
        {"transformer_blocks.1.attn.to_q", 256, 1},
        {"transformer_blocks.1.attn.to_k", 256, 2},
        {"transformer_blocks.1.attn.to_v", 256, 3},
        {"transformer_blocks.1.attn.add_q_proj", 256, 11},
        {"transformer_blocks.1.attn.add_k_proj", 256, 12},
        {"transformer_blocks.1.attn.add_v_proj", 256, 13},
        {"single_transformer_blocks.0.attn.to_q", 256, 21},
        {"single_transformer_blocks.0.attn.to_k", 256, 22},
        {"single_transformer_blocks.0.attn.to_v", 256, 23},
        {"single_transformer_blocks.0.proj_mlp", 1024, 24},
    };
    ck_rig *r = *state;
    char name[128];
    ckrig_parts(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", mark_rows);
    ckrig_model(r, "flux.safetensors");
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        snprintf(name, sizeof(name), "%s.weight", table[i].layer);
        expect_rows(r, name, table[i].rows * 256, 0, table[i].rows * 256, table[i].want);
        snprintf(name, sizeof(name), "%s.bias", table[i].layer);
        expect_rows(r, name, table[i].rows, 0, table[i].rows, table[i].want);
    }
}

/* BFL: shift (1) before scale (2); diffusers: scale before shift. */
static void halves_of_the_final_layer_trade_places(void **state) {
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", mark_rows);
    ckrig_model(r, "flux.safetensors");
    expect_rows(r, "norm_out.linear.weight", 512 * 256, 0, 256 * 256, 2);
    expect_rows(r, "norm_out.linear.weight", 512 * 256, 256 * 256, 512 * 256, 1);
    expect_rows(r, "norm_out.linear.bias", 512, 0, 256, 2);
    expect_rows(r, "norm_out.linear.bias", 512, 256, 512, 1);
}

static void drop_qkv(ckfile *f) {
    ckfile_remove(f, "double_blocks.1.txt_attn.qkv.weight");
}

static void add_strangers(ckfile *f) {
    ckfile_add_filled(f, "stranger.weight", 2, 2, 1);
    ckfile_add_filled(f, "double_blocks.0.img_attn.other.weight", 2, 2, 1);
}

static void missing_and_strange_tensors_are_told_by_name(void **state) {
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_model(r, "flux.safetensors");
    ckrig_write(r, "transformer", true, "", "flux.safetensors", drop_qkv);
    ckrig_refused(r, DFX_E_FORMAT, "transformer_blocks.1.attn.add_q_proj.weight");
    ckrig_write(r, "transformer", true, "", "flux.safetensors", add_strangers);
    free(ckrig_pages(r, DFX_Q_BF16, false));
    said_words(r->log, DFX_WARN,
               "2 tensors are of no part of FLUX and left out: "
               "double_blocks.0.img_attn.other.weight, stranger.weight");
}

/* ---- what it is ---- */

static void kind_is_told_by_the_guidance_embedding_and_never_by_the_name(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    ckrig_parts(r);
    ckrig_write(r, "transformer", true, "", "flux1-schnell.safetensors", NULL);
    ckfile_original(&f, r->folder, "transformer", "");
    for (int i = 0; i < 2; i++) {
        const char *layers[] = {"guidance_in.in_layer", "guidance_in.out_layer"};
        char name[64];
        snprintf(name, sizeof(name), "%s.weight", layers[i]);
        ckfile_remove(&f, name);
        snprintf(name, sizeof(name), "%s.bias", layers[i]);
        ckfile_remove(&f, name);
    }
    ckfile_write(&f, r->dir, "flux1-dev.safetensors");
    ckfile_free(&f);
    static const struct {
        const char *file, *kind;
        bool dynamic;
    } table[] = {{"flux1-schnell.safetensors", "FLUX.1 dev", true},
                 {"flux1-dev.safetensors", "FLUX.1 schnell", false}};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        dfx_parts parts;
        ckrig_model(r, table[i].file);
        recorder_clear(r->log);
        assert_int_equal(dfx_model_check(&r->paths, &r->log->sink, &parts), DFX_OK);
        said_words(r->log, DFX_INFO, table[i].kind);
        assert_string_equal(dfx_parts_kind(&parts), table[i].kind);
        assert_true(parts.configs.sigmas.dynamic == table[i].dynamic);
        assert_int_equal(parts.configs.flux.n_heads, 2);
        assert_int_equal(parts.configs.t5.head_size, 32);
        dfx_parts_fini(&parts);
    }
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, ckrig_setup, ckrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(original_names_behind_any_prefix_give_the_folders_pages),
        WITH_RIG(diffusers_names_in_single_files_give_the_folders_pages),
        WITH_RIG(mixed_prefixes_are_refused_with_an_example),
        WITH_RIG(all_in_one_file_needs_nothing_beside_it),
        WITH_RIG(transformer_alone_is_refused_with_what_is_missing),
        WITH_RIG(a_folders_part_is_replaced_by_a_file),
        WITH_RIG(folders_serve_as_parts),
        WITH_RIG(rows_of_fused_layers_go_where_they_belong),
        WITH_RIG(halves_of_the_final_layer_trade_places),
        WITH_RIG(missing_and_strange_tensors_are_told_by_name),
        WITH_RIG(kind_is_told_by_the_guidance_embedding_and_never_by_the_name),
    };
    return cmocka_run_group_tests(tests, ckrig_group_setup, ckrig_group_teardown);
}
