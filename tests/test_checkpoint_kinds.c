/* What is not FLUX.1 dev or schnell is refused by its name, files given for the wrong part are put right or refused in one line, and
 * tokenizers are found or asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/cache.h"
#include "tests/ckrig.h"

static void begin(ck_rig *r) {
    ckrig_parts(r);
    ckrig_model(r, "flux.safetensors");
}

/* ---- B11, B13, B15 ---- */

static void set_channels(ckfile *f, int64_t n) {
    ckfile_remove(f, "img_in.weight");
    ckfile_add_filled(f, "img_in.weight", 256, n, 1);
}

static void fill_channels(ckfile *f) {
    set_channels(f, 384);
}

static void depth_channels(ckfile *f) {
    set_channels(f, 128);
}

static void odd_channels(ckfile *f) {
    set_channels(f, 96);
}

static void chroma(ckfile *f) {
    ckfile_add_filled(f, "distilled_guidance_layer.in_proj.weight", 4, 4, 1);
}

static void flux2(ckfile *f) {
    ckfile_add_filled(f, "single_stream_modulation.lin.weight", 4, 4, 1);
}

static void lora(ckfile *f) {
    ckfile_free(f);
    ckfile_add_filled(f, "transformer.transformer_blocks.0.attn.to_q.lora_A.weight", 4, 4, 1);
}

static void sd3(ckfile *f) {
    ckfile_free(f);
    ckfile_add_filled(f, "model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight", 4, 4, 1);
}

static void sdxl(ckfile *f) {
    ckfile_free(f);
    ckfile_add_filled(f, "model.diffusion_model.input_blocks.0.0.weight", 4, 4, 1);
}

static void nunchaku(ckfile *f) {
    ckfile_add_filled(f, "transformer_blocks.0.attn.to_qkv.qweight", 4, 4, 1);
    ckfile_add_filled(f, "transformer_blocks.0.attn.to_qkv.wscales", 4, 4, 1);
}

static void awq(ckfile *f) {
    ckfile_add_filled(f, "double_blocks.0.img_mod.lin.qweight", 4, 4, 1);
}

static void quanto(ckfile *f) {
    ckfile_add_filled(f, "double_blocks.0.img_mod.lin.weight._data", 4, 4, 1);
    ckfile_add_filled(f, "double_blocks.0.img_mod.lin.weight._scale", 4, 4, 1);
}

static void u8_weights(ckfile *f) {
    ckfile_remove(f, "double_blocks.0.img_mlp.0.weight");
    ckfile_add(f, "double_blocks.0.img_mlp.0.weight", DFX_DTYPE_U8, 2, (int64_t[]){98304, 1}, NULL);
}

static void vae_instead(ckfile *f) {
    ckfile_free(f);
    ckfile_add_filled(f, "decoder.mid.block_1.norm1.weight", 4, 4, 1);
}

static void nothing_known(ckfile *f) {
    ckfile_free(f);
    ckfile_add_filled(f, "a.weight", 4, 4, 1);
}

static void other_models_and_storages_are_refused_by_name(void **state) {
    static const struct {
        void (*change)(ckfile *f);
        const char *words;
    } table[] = {
        {fill_channels, "384 input channels: this is FLUX.1 Fill"},
        {depth_channels, "128 input channels: this is FLUX.1 Depth or Canny"},
        {odd_channels, "96 input channels; FLUX.1 dev and schnell have 64"},
        {chroma, "found Chroma (tensor \"distilled_guidance_layer.in_proj.weight\")"},
        {flux2, "found FLUX.2"},
        {lora, "found a LoRA"},
        {sd3, "found Stable Diffusion 3"},
        {sdxl, "found a Stable Diffusion UNet"},
        {nunchaku, "stored by SVDQuant (nunchaku)"},
        {awq, "stored by AWQ or GPTQ"},
        {quanto, "stored by optimum-quanto"},
        {u8_weights, "double_blocks.0.img_mlp.0: its weight is U8"},
        {vae_instead, "wanted a FLUX transformer for --model, found a VAE"},
        {nothing_known, "found nothing that dfx-edge knows by its tensors"},
    };
    ck_rig *r = *state;
    begin(r);
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckrig_write(r, "transformer", true, "", "flux.safetensors", table[i].change);
        ckrig_refused(r, DFX_E_FORMAT, table[i].words);
    }
}

static void folders_of_other_pipelines_are_refused_by_name(void **state) {
    ck_rig *r = *state;
    tmpdir_write_text(r->dir, "model_index.json", "{\"_class_name\": \"FluxKontextPipeline\"}");
    r->paths = (dfx_model_paths){.model = r->dir->path};
    ckrig_refused(r, DFX_E_FORMAT, "found FluxKontextPipeline, which is FLUX.1 Kontext");
}

/* ---- B14 ---- */

static void swapped_files_are_put_right_with_one_notice(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    char *want = ckrig_pages(r, DFX_Q_BF16, false);
    const char *clip = r->paths.clip;
    r->paths.clip = r->paths.t5;
    r->paths.t5 = clip;
    char *got = ckrig_pages(r, DFX_Q_BF16, false);
    assert_string_equal(got, want);
    assert_int_equal(recorder_count(r->log, DFX_WARN), 1);
    said_words(r->log, DFX_WARN, "clip.safetensors is the CLIP text encoder: taken as --clip-l");
    free(want);
    free(got);
}

static void files_for_the_wrong_part_are_refused_in_one_line(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    r->paths.clip = r->paths.t5;
    ckrig_refused(r, DFX_E_FORMAT, "wanted a CLIP text encoder for --clip-l, found a T5 encoder");
    begin(r);
    r->paths.vae = r->paths.model;
    ckrig_refused(r, DFX_E_FORMAT, "wanted a VAE for --vae, found a FLUX transformer");
}

static void parts_beside_a_packed_model_are_refused(void **state) {
    ck_rig *r = *state;
    char path[TMPDIR_PATH];
    dfx_pack_report report;
    dfx_pack_options o = {.quant = DFX_Q_BF16, .n_threads = 2};
    tmpdir_join(r->dir, "whole.safetensors", path);
    assert_int_equal(dfx_model_pack(&(dfx_model_paths){.model = r->folder}, false, &o, path,
                                    &r->log->sink, &report),
                     DFX_OK);
    begin(r);
    r->paths.model = path;
    ckrig_refused(r, DFX_E_USAGE, "is a packed model, which has all its parts");
}

/* ---- A22 ---- */

static void gguf_architecture_is_asked_and_not_believed(void **state) {
    static const struct {
        const char *architecture, *refused;
        bool warns;
    } table[] = {
        {"flux", NULL, false},
        {NULL, NULL, false},
        {"pig", NULL, true},
        {"sd3", "wanted a FLUX transformer for --model, found general.architecture \"sd3\"", false},
        {"llama", "wanted a FLUX transformer for --model, found general.architecture \"llama\"",
         false},
    };
    ck_rig *r = *state;
    ckfile f = {0};
    begin(r);
    ckrig_model(r, "flux.gguf");
    ckfile_original(&f, r->folder, "transformer", "");
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckfile_write_gguf(&f, r->dir, "flux.gguf", table[i].architecture);
        if (table[i].refused) {
            ckrig_refused(r, DFX_E_FORMAT, table[i].refused);
            continue;
        }
        free(ckrig_pages(r, DFX_Q_BF16, false));
        assert_int_equal(recorder_count(r->log, DFX_WARN), table[i].warns);
        if (table[i].warns)
            said_words(r->log, DFX_WARN, "general.architecture is \"pig\"");
    }
    ckfile_free(&f);
    ckfile_diffusers(&f, r->folder, "text_encoder_2", "");
    ckfile_write_gguf(&f, r->dir, "flux.gguf", "t5encoder");
    ckfile_free(&f);
    ckrig_refused(r, DFX_E_FORMAT, "wanted a FLUX transformer for --model, found a T5 encoder");
}

/* ---- tokenizers ---- */

static void missing_tokenizers_are_asked_for_by_their_files(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    r->paths.tokenizer = NULL;
    ckrig_refused(r, DFX_E_IO, "tokenizer/vocab.json and tokenizer/merges.txt (CLIP)");
    said_error(r->log,
               "/dfx-edge/tokenizers, or name the folder that they are in with --tokenizer");
    r->paths.tokenizer = r->dir->path;
    ckrig_refused(r, DFX_E_FORMAT, "wanted in it tokenizer/vocab.json");
    r->paths.tokenizer = "no/such/folder";
    ckrig_refused(r, DFX_E_IO, "found nothing there");
}

static void tokenizers_of_other_models_are_not_remembered(void **state) {
    ck_rig *r = *state;
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    free(ckrig_pages(r, DFX_Q_BF16, false)); /* with those of the bundled model */
    r->paths.tokenizer = NULL;
    ckrig_refused(r, DFX_E_IO, "no tokenizers");
}

static void tokenizers_of_flux_are_remembered(void **state) {
    ck_rig *r = *state;
    char cache[TMPDIR_PATH], own[TMPDIR_PATH], *old = strdup(getenv("XDG_CACHE_HOME"));
    assert_non_null(old);
    tmpdir_mkdir(r->dir, "tok");
    tmpdir_mkdir(r->dir, "cache");
    if (!tiny_link_tokenizers(tmpdir_join(r->dir, "tok", own))) {
        free(old);
        skip();
    }
    setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "cache", cache), 1);
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    r->paths.tokenizer = own;
    char *want = ckrig_pages(r, DFX_Q_BF16, false);
    said_words(r->log, DFX_INFO, "--tokenizer is not needed again");
    r->paths.tokenizer = NULL;
    char *got = ckrig_pages(r, DFX_Q_BF16, false);
    assert_string_equal(got, want);
    said_words(r->log, DFX_INFO, "tokenizers: ");
    free(want);
    free(got);
    setenv("XDG_CACHE_HOME", old, 1);
    free(old);
}

static void a_packed_model_serves_as_tokenizers(void **state) {
    ck_rig *r = *state;
    char path[TMPDIR_PATH];
    dfx_pack_report report;
    dfx_pack_options o = {.quant = DFX_Q_BF16, .n_threads = 2};
    tmpdir_join(r->dir, "scenes.safetensors", path);
    assert_int_equal(dfx_model_pack(&(dfx_model_paths){.model = "models/scenes"}, false, &o, path,
                                    &r->log->sink, &report),
                     DFX_OK);
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    r->paths.tokenizer = path;
    ckrig_same_as_folder(r);
}

/* ---- the cache ---- */

static void cache_key_follows_every_file_and_its_role(void **state) {
    ck_rig *r = *state;
    char first[DFX_PATH_BYTES], now[DFX_PATH_BYTES], other[TMPDIR_PATH];
    begin(r);
    ckrig_write(r, "transformer", true, "", "flux.safetensors", NULL);
    assert_int_equal(dfx_cache_path(&r->paths, DFX_Q_INT8, &r->log->sink, first), DFX_OK);
    assert_non_null(strstr(first, "/flux-int8-"));
    assert_int_equal(dfx_cache_path(&r->paths, DFX_Q_INT8, &r->log->sink, now), DFX_OK);
    assert_string_equal(now, first);
    const char *const *const given[] = {&r->paths.model, &r->paths.vae, &r->paths.clip,
                                        &r->paths.t5};
    for (size_t i = 0; i < DFX_COUNT(given); i++) {
        ckrig_model(r, "flux.safetensors");
        ckrig_write(r, "vae", i % 2, "x.", "other.safetensors", NULL);
        *(const char **)given[i] = tmpdir_join(r->dir, "other.safetensors", other);
        assert_int_equal(dfx_cache_path(&r->paths, DFX_Q_INT8, &r->log->sink, now), DFX_OK);
        assert_string_not_equal(now, first);
    }
    ckrig_model(r, "flux.safetensors");
    r->paths.tokenizer = NULL;
    assert_int_equal(dfx_cache_path(&r->paths, DFX_Q_INT8, &r->log->sink, now), DFX_OK);
    assert_string_not_equal(now, first);
}

/* ---- faults ---- */

static bool survives_fault(ck_rig *r, uint64_t nth) {
    dfx_parts parts;
    size_t held = dfx_mem_held_bytes();
    recorder_clear(r->log);
    dfx_mem_fail_nth(nth);
    dfx_status status = dfx_model_check(&r->paths, &r->log->sink, &parts);
    dfx_mem_fail_nth(0);
    if (status == DFX_OK)
        dfx_parts_fini(&parts);
    else
        said_error(r->log, "");
    assert_true(status == DFX_OK || status == DFX_E_NOFIT);
    assert_int_equal(dfx_mem_held_bytes(), held);
    return status == DFX_OK;
}

static void opening_survives_failing_allocations(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    uint64_t nth = 1;
    begin(r);
    ckfile_original(&f, r->folder, "transformer", "");
    ckfile_encode(&f, "double_blocks.0.img_mlp.0.weight", CK_NF4_NESTED);
    ckfile_encode(&f, "double_blocks.0.img_mlp.2.weight", CK_INT8);
    ckfile_write(&f, r->dir, "flux.safetensors");
    ckfile_free(&f);
    while (!survives_fault(r, nth))
        nth++;
    assert_true(nth > 60);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, ckrig_setup, ckrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(other_models_and_storages_are_refused_by_name),
        WITH_RIG(folders_of_other_pipelines_are_refused_by_name),
        WITH_RIG(swapped_files_are_put_right_with_one_notice),
        WITH_RIG(files_for_the_wrong_part_are_refused_in_one_line),
        WITH_RIG(parts_beside_a_packed_model_are_refused),
        WITH_RIG(gguf_architecture_is_asked_and_not_believed),
        WITH_RIG(missing_tokenizers_are_asked_for_by_their_files),
        WITH_RIG(tokenizers_of_other_models_are_not_remembered),
        WITH_RIG(tokenizers_of_flux_are_remembered),
        WITH_RIG(a_packed_model_serves_as_tokenizers),
        WITH_RIG(cache_key_follows_every_file_and_its_role),
        WITH_RIG(opening_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, ckrig_group_setup, ckrig_group_teardown);
}
