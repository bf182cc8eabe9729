/* Text encoders and VAEs under the names they have in the wild. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ckrig.h"

/* The transformer under BFL's names; the part in question is written by the test. */
static void begin(ck_rig *r) {
    ckrig_parts(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    ckrig_model(r, "flux.safetensors");
}

/* ---- T5 ---- */

static void only_copy(ckfile *f) {
    ckfile_rename(f, "shared.weight", "encoder.embed_tokens.weight");
}

static void both_equal(ckfile *f) {
    ck_tensor *t = ckfile_find(f, "shared.weight");
    ckfile_add(f, "encoder.embed_tokens.weight", t->dtype, t->rank, t->shape, t->data);
}

static void both_different(ckfile *f) {
    both_equal(f);
    ((uint8_t *)ckfile_find(f, "encoder.embed_tokens.weight")->data)[12345] ^= 1;
}

static void neither(ckfile *f) {
    ckfile_remove(f, "shared.weight");
}

static void with_decoder(ckfile *f) {
    ckfile_add_filled(f, "decoder.block.0.layer.0.SelfAttention.q.weight", 64, 64, 5);
    ckfile_add_filled(f, "lm_head.weight", 128, 64, 5);
}

static void llama_names(ckfile *f) {
    static const char *const names[][2] = {
        {"encoder.block.", "enc.blk."},
        {".layer.0.SelfAttention.relative_attention_bias", ".attn_rel_b"},
        {".layer.0.SelfAttention.q", ".attn_q"},
        {".layer.0.SelfAttention.k", ".attn_k"},
        {".layer.0.SelfAttention.v", ".attn_v"},
        {".layer.0.SelfAttention.o", ".attn_o"},
        {".layer.0.layer_norm", ".attn_norm"},
        {".layer.1.layer_norm", ".ffn_norm"},
        {".layer.1.DenseReluDense.wi_0", ".ffn_gate"},
        {".layer.1.DenseReluDense.wi_1", ".ffn_up"},
        {".layer.1.DenseReluDense.wo", ".ffn_down"},
        {"encoder.final_layer_norm", "enc.output_norm"},
        {"shared.weight", "token_embd.weight"},
    };
    for (size_t i = 0; i < DFX_COUNT(names); i++)
        ckfile_replace(f, names[i][0], names[i][1]);
}

static void t5_with_either_embedding_or_both_is_the_same(void **state) {
    static void (*const changes[])(ckfile *) = {NULL, only_copy, both_equal};
    ck_rig *r = *state;
    begin(r);
    for (size_t i = 0; i < DFX_COUNT(changes); i++) {
        ckrig_write(r, "text_encoder_2", false, "", "t5.safetensors", changes[i]);
        ckrig_same_as_folder(r);
    }
}

static void t5_with_two_embeddings_or_none_is_refused(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "text_encoder_2", false, "", "t5.safetensors", both_different);
    ckrig_refused(r, DFX_E_FORMAT, "differ, and only one can be the embedding");
    ckrig_write(r, "text_encoder_2", false, "", "t5.safetensors", neither);
    ckrig_refused(r, DFX_E_FORMAT, "neither shared.weight nor encoder.embed_tokens.weight");
}

static void t5_decoder_is_left_out_with_one_line(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "text_encoder_2", false, "", "t5.safetensors", with_decoder);
    ckrig_same_as_folder(r);
    said_words(r->log, DFX_INFO, "t5.safetensors: a decoder is in it too");
}

static void t5_of_llama_cpp_is_the_same(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    begin(r);
    ckfile_diffusers(&f, r->folder, "text_encoder_2", "");
    llama_names(&f);
    ckfile_find(&f, "enc.blk.1.ffn_gate.weight");
    ckfile_encode_all(&f, CK_Q8_0);
    ckfile_write_gguf(&f, r->dir, "t5.gguf", "t5encoder");
    ckfile_free(&f);
    r->paths.t5 = tmpdir_join(r->dir, "t5.gguf", r->texts[3]);
    ckrig_same_as_folder(r);
}

static void t5_in_scaled_fp8_is_the_same(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    begin(r);
    ckfile_diffusers(&f, r->folder, "text_encoder_2", "");
    for (size_t i = 0, n = f.n; i < n; i++)
        if (strstr(f.tensors[i].name, "DenseReluDense"))
            ckfile_encode(&f, f.tensors[i].name, CK_FP8_SCALED);
    ckfile_add(&f, "scaled_fp8", DFX_DTYPE_F8_E4M3, 1, (int64_t[]){0}, NULL);
    ckfile_write(&f, r->dir, "t5.safetensors");
    ckfile_free(&f);
    ckrig_same_as_folder(r);
}

/* ---- CLIP ---- */

static void add_extras(ckfile *f) {
    ckfile_add(f, "text_model.embeddings.position_ids", DFX_DTYPE_I64, 2, (int64_t[]){1, 77}, NULL);
    ckfile_add_filled(f, "text_projection.weight", 64, 64, 3);
    ckfile_add(f, "logit_scale", DFX_DTYPE_F32, 0, (int64_t[]){0}, NULL);
}

static void add_vision(ckfile *f) {
    add_extras(f);
    ckfile_add_filled(f, "vision_model.encoder.layers.0.mlp.fc1.weight", 8, 8, 3);
    ckfile_add_filled(f, "visual_projection.weight", 8, 8, 3);
}

static void bare(ckfile *f) {
    ckfile_replace(f, "text_model.", "");
}

static void clip_behind_any_prefix_and_with_extras_is_the_same(void **state) {
    static const struct {
        const char *prefix;
        void (*change)(ckfile *);
    } table[] = {
        {"", NULL}, {"transformer.", NULL}, {"cond_stage_model.transformer.", NULL},
        {"", bare}, {"", add_extras},       {"", add_vision},
    };
    ck_rig *r = *state;
    begin(r);
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckrig_write(r, "text_encoder", false, table[i].prefix, "clip.safetensors", table[i].change);
        ckrig_same_as_folder(r);
    }
    said_words(r->log, DFX_INFO, "clip.safetensors: a vision tower is in it too");
}

static void longer(ckfile *f) {
    ckfile_remove(f, "text_model.embeddings.position_embedding.weight");
    ckfile_add_filled(f, "text_model.embeddings.position_embedding.weight", 248, 64, 0);
}

static void clip_of_248_positions_is_refused(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "text_encoder", false, "", "clip.safetensors", longer);
    ckrig_refused(r, DFX_E_FORMAT, "the CLIP text encoder has 248 positions");
}

/* ---- VAE ---- */

static void legacy(ckfile *f) {
    static const char *const names[][2] = {{"attentions.0.to_q", "attentions.0.query"},
                                           {"attentions.0.to_k", "attentions.0.key"},
                                           {"attentions.0.to_v", "attentions.0.value"},
                                           {"attentions.0.to_out.0", "attentions.0.proj_attn"}};
    for (size_t i = 0; i < DFX_COUNT(names); i++)
        ckfile_replace(f, names[i][0], names[i][1]);
}

static void vae_of_any_layout_is_the_same(void **state) {
    static const struct {
        bool original;
        const char *prefix;
        void (*change)(ckfile *);
    } table[] = {
        {true, "", NULL},  {true, "vae.", NULL},  {true, "first_stage_model.", NULL},
        {false, "", NULL}, {false, "vae.", NULL}, {false, "", legacy},
    };
    ck_rig *r = *state;
    begin(r);
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckrig_write(r, "vae", table[i].original, table[i].prefix, "vae.safetensors",
                    table[i].change);
        ckrig_same_as_folder(r);
    }
}

static void decoder_only(ckfile *f) {
    for (size_t i = f->n; i-- > 0;)
        if (strncmp(f->tensors[i].name, "encoder.", 8) == 0)
            ckfile_remove(f, f->tensors[i].name);
}

/* Pages are the folder's, but for those of the encoder, which are last. */
static void vae_of_a_decoder_alone_is_enough(void **state) {
    ck_rig *r = *state;
    begin(r);
    char *want = ckrig_folder_pages(r, DFX_Q_BF16);
    ckrig_write(r, "vae", true, "", "vae.safetensors", decoder_only);
    char *got = ckrig_pages(r, DFX_Q_BF16, false);
    assert_non_null(strstr(want, "encode/"));
    assert_null(strstr(got, "encode/"));
    assert_memory_equal(got, want, strlen(got));
    free(want);
    free(got);
}

static void four_channels(ckfile *f) {
    ckfile_remove(f, "decoder.conv_in.weight");
    ckfile_add(f, "decoder.conv_in.weight", DFX_DTYPE_BF16, 4, (int64_t[]){64, 4, 3, 3}, NULL);
}

static void vae_of_four_channels_is_refused(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "vae", true, "", "vae.safetensors", four_channels);
    ckrig_refused(r, DFX_E_FORMAT, "the VAE has 4 latent channels; FLUX.1 wants the one with 16");
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, ckrig_setup, ckrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(t5_with_either_embedding_or_both_is_the_same),
        WITH_RIG(t5_with_two_embeddings_or_none_is_refused),
        WITH_RIG(t5_decoder_is_left_out_with_one_line),
        WITH_RIG(t5_of_llama_cpp_is_the_same),
        WITH_RIG(t5_in_scaled_fp8_is_the_same),
        WITH_RIG(clip_behind_any_prefix_and_with_extras_is_the_same),
        WITH_RIG(clip_of_248_positions_is_refused),
        WITH_RIG(vae_of_any_layout_is_the_same),
        WITH_RIG(vae_of_a_decoder_alone_is_enough),
        WITH_RIG(vae_of_four_channels_is_refused),
    };
    return cmocka_run_group_tests(tests, ckrig_group_setup, ckrig_group_teardown);
}
