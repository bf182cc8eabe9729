/* Weights stored in other ways: exact ones give the folder's pages, stated values come out as stated, what is not understood is
 * refused by the layer's name, and codes that a page can hold are kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "models/checkpoint_internal.h"
#include "tests/ckrig.h"

static void write_encoded(ck_rig *r, ck_storage storage, const char *prefix, const char *name) {
    ckfile f = {0};
    ckfile_original(&f, r->folder, "transformer", prefix);
    ckfile_encode_all(&f, storage);
    ckfile_write(&f, r->dir, name);
    ckfile_free(&f);
}

static void exact_storages_give_the_folders_pages(void **state) {
    static const ck_storage storages[] = {CK_FP8_SCALED, CK_FP8_SCALED2, CK_INT8,
                                          CK_LLM_INT8,   CK_NF4,         CK_NF4_NESTED};
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_model(r, "flux.safetensors");
    for (size_t i = 0; i < DFX_COUNT(storages); i++) {
        write_encoded(r, storages[i], i % 2 ? "model.diffusion_model." : "", "flux.safetensors");
        ckrig_same_as_folder(r);
    }
}

static void gguf_files_give_the_folders_pages(void **state) {
    static const ck_storage storages[] = {CK_Q8_0, CK_Q4_0};
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_model(r, "flux.gguf");
    for (size_t i = 0; i < DFX_COUNT(storages); i++) {
        ckfile f = {0};
        ckfile_original(&f, r->folder, "transformer", i ? "model.diffusion_model." : "");
        ckfile_encode_all(&f, storages[i]);
        ckfile_write_gguf(&f, r->dir, "flux.gguf", i ? NULL : "flux");
        ckfile_free(&f);
        ckrig_same_as_folder(r);
    }
}

/* A diffusers folder whose transformer bitsandbytes has quantized, by name and by configuration. */
static void folder_of_bitsandbytes_gives_the_folders_pages(void **state) {
    static const char *const shared[] = {
        "vae",         "text_encoder", "text_encoder_2",  "tokenizer",
        "tokenizer_2", "scheduler",    "model_index.json"};
    static const ck_storage storages[] = {CK_NF4_NESTED, CK_LLM_INT8};
    ck_rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(storages); i++) {
        char model[64], from[TMPDIR_PATH], to[TMPDIR_PATH];
        ckfile f = {0};
        json_t *config;
        snprintf(model, sizeof(model), "model%zu", i);
        tmpdir_mkdir(r->dir, model);
        for (size_t s = 0; s < DFX_COUNT(shared); s++) {
            char name[128];
            snprintf(name, sizeof(name), "%s/%s", model, shared[s]);
            snprintf(from, sizeof(from), "%s/%s", r->folder, shared[s]);
            assert_int_equal(symlink(from, tmpdir_join(r->dir, name, to)), 0);
        }
        ckfile_diffusers(&f, r->folder, "transformer", "");
        ckfile_encode_all(&f, storages[i]);
        snprintf(from, sizeof(from), "%s/transformer/diffusion_pytorch_model.safetensors", model);
        tmpdir_write_text(r->dir, from, "");
        ckfile_write(&f, r->dir, from);
        ckfile_free(&f);
        snprintf(from, sizeof(from), "%s/transformer/config.json", r->folder);
        assert_non_null(config = json_load_file(from, 0, NULL));
        json_object_set_new(
            config, "quantization_config",
            json_pack("{s:s, s:b}", "quant_method", "bitsandbytes", "load_in_4bit", 1));
        snprintf(from, sizeof(from), "%s/transformer/config.json", model);
        assert_int_equal(json_dump_file(config, tmpdir_join(r->dir, from, to), 0), 0);
        json_decref(config);
        r->paths = (dfx_model_paths){.model = tmpdir_join(r->dir, model, r->texts[0])};
        ckrig_same_as_folder(r);
    }
}

/* ---- one layer at a time ---- */

/* A file with one layer "X" and what is beside it, described and decoded. */
typedef struct one_layer {
    dfx_checkpoint c;
    dfx_part part;
    dfx_storage storage;
    dfx_status status;
    float values[64];
} one_layer;

static void describe(ck_rig *r, ckfile *f, const char *prefix, bool marker, one_layer *out) {
    char path[TMPDIR_PATH], name[64];
    *out = (one_layer){.c.sink = &r->log->sink};
    recorder_clear(r->log);
    ckfile_write(f, r->dir, "layer.safetensors");
    ckfile_free(f);
    dfx_arena_init(&out->c.arena, "checkpoint");
    assert_int_equal(dfx_source_open_file(&out->c, tmpdir_join(r->dir, "layer.safetensors", path),
                                          &out->part.source),
                     DFX_OK);
    snprintf(name, sizeof(name), "%sX.weight", prefix);
    snprintf(out->part.found.prefix, sizeof(out->part.found.prefix), "%s", prefix);
    out->part.scaled_marker = marker;
    const dfx_tensor *t = dfx_tensors_find(out->part.source->set, name);
    assert_non_null(t);
    out->status = dfx_storage_describe(&out->c, &out->part, t, &out->storage);
    if (out->status == DFX_OK && t->n_elements <= 64)
        assert_int_equal(dfx_storage_decode(&out->storage, out->part.source->set, &r->log->sink, 0,
                                            (int64_t)t->n_elements, out->values),
                         DFX_OK);
}

static void close_layer(one_layer *x) {
    dfx_source_close(&x->c.sources[0]);
    dfx_arena_fini(&x->c.arena);
}

/* B03: 1, 1.5 and 448. */
static void add_b03(ckfile *f) {
    static const uint8_t codes[] = {0x38, 0x3c, 0x7e};
    ckfile_add(f, "X.weight", DFX_DTYPE_F8_E4M3, 2, (int64_t[]){1, 3}, codes);
    ckfile_add(f, "scaled_fp8", DFX_DTYPE_F8_E4M3, 1, (int64_t[]){0}, NULL);
}

static void scales_of_both_spellings_are_applied(void **state) {
    static const char *const names[][2] = {{"X.scale_weight", "X.scale_input"},
                                           {"X.weight_scale", "X.input_scale"}};
    ck_rig *r = *state;
    for (size_t i = 0; i < 2; i++) {
        float scale = 0.001f, one = 1;
        one_layer x;
        ckfile f = {0};
        add_b03(&f);
        ckfile_add_f32(&f, names[i][0], 1, &scale);
        ckfile_add_f32(&f, names[i][1], 1, &one);
        describe(r, &f, "", true, &x);
        assert_int_equal(x.status, DFX_OK);
        assert_true(x.values[0] == 0.001f && x.values[1] == 1.5f * 0.001f &&
                    x.values[2] == 448 * 0.001f);
        for (int u = 0; u < 3; u++) /* all but the marker, which is of the whole component */
            assert_true(x.part.source->used[u]);
        close_layer(&x);
    }
}

static void missing_and_contradicting_scales_are_refused(void **state) {
    ck_rig *r = *state;
    float a = 0.001f, b = 0.002f;
    one_layer x;
    ckfile f = {0};
    add_b03(&f);
    describe(r, &f, "", true, &x);
    assert_int_equal(x.status, DFX_E_FORMAT);
    said_error(r->log, "layer X: its weight is fp8 without a scale, in a file of scaled fp8");
    close_layer(&x);
    f = (ckfile){0};
    add_b03(&f);
    ckfile_add_f32(&f, "X.scale_weight", 1, &a);
    ckfile_add_f32(&f, "X.weight_scale", 1, &b);
    describe(r, &f, "", true, &x);
    assert_int_equal(x.status, DFX_E_FORMAT);
    said_error(r->log, "layer X: scale_weight and weight_scale say different things");
    close_layer(&x);
    f = (ckfile){0};
    ckfile_add(&f, "X.weight", DFX_DTYPE_I8, 2, (int64_t[]){2, 2}, NULL);
    describe(r, &f, "", false, &x);
    assert_int_equal(x.status, DFX_E_FORMAT);
    said_error(r->log, "layer X: its weight is I8 and there is no scale beside it");
    close_layer(&x);
}

/* ---- B05: what a file says of its layers ---- */

static void add_int8(ckfile *f, const char *prefix) {
    static const int8_t codes[] = {1, -2, 127, -128};
    static const float scales[] = {0.5f, 2};
    char name[64];
    snprintf(name, sizeof(name), "%sX.weight", prefix);
    ckfile_add(f, name, DFX_DTYPE_I8, 2, (int64_t[]){2, 2}, codes);
    snprintf(name, sizeof(name), "%sX.weight_scale", prefix);
    ckfile_add(f, name, DFX_DTYPE_F32, 2, (int64_t[]){2, 1}, scales);
}

static void descriptions_follow_the_tensors_prefix(void **state) {
    static const char *const prefixes[] = {"", "model.diffusion_model."};
    ck_rig *r = *state;
    for (size_t i = 0; i < 2; i++) {
        ckfile f = {0};
        one_layer x;
        add_int8(&f, prefixes[i]);
        f.metadata =
            "{\"_quantization_metadata\": \"{\\\"layers\\\": {\\\"model.diffusion_model.X\\\": "
            "{\\\"format\\\": \\\"int8_tensorwise\\\", \\\"full_precision_matrix_mult\\\": "
            "true}}}\"}";
        describe(r, &f, prefixes[i], false, &x);
        assert_int_equal(x.status, DFX_OK);
        assert_true(x.storage.full_precision && x.storage.kind == DFX_STORE_SCALED);
        assert_true(x.values[0] == 0.5f && x.values[1] == -1 && x.values[2] == 254 &&
                    x.values[3] == -256);
        close_layer(&x);
    }
}

static void descriptions_that_are_none_are_refused(void **state) {
    static const struct {
        const char *text, *words;
    } table[] = {
        {"", "its comfy_quant is no description"},
        {"{", "X.comfy_quant"},
        {"[]", "no JSON object"},
        {"{\"format\":\"nvfp4\"}", "layer X: the format \"nvfp4\" is not read"},
        {"{}", "layer X: the format \"(none)\" is not read"},
    };
    ck_rig *r = *state;
    one_layer x;
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckfile f = {0};
        add_int8(&f, "");
        ckfile_add_text(&f, "X.comfy_quant", table[i].text);
        describe(r, &f, "", false, &x);
        assert_int_equal(x.status, DFX_E_FORMAT);
        said_error(r->log, table[i].words);
        close_layer(&x);
    }
    ckfile f = {0};
    add_int8(&f, "");
    ckfile_add(&f, "X.comfy_quant", DFX_DTYPE_U8, 1, (int64_t[]){1 << 20}, NULL);
    describe(r, &f, "", false, &x);
    assert_int_equal(x.status, DFX_E_FORMAT);
    close_layer(&x);
}

/* fp8 in bytes that call themselves U8. */
static void fp8_in_u8_is_read_where_it_is_described(void **state) {
    static const uint8_t codes[] = {0x38, 0x3c, 0x7e};
    float scale = 2;
    ck_rig *r = *state;
    one_layer x;
    ckfile f = {0};
    ckfile_add(&f, "X.weight", DFX_DTYPE_U8, 2, (int64_t[]){1, 3}, codes);
    ckfile_add_f32(&f, "X.weight_scale", 1, &scale);
    ckfile_add_text(&f, "X.comfy_quant", "{\"format\":\"float8_e4m3fn\"}");
    describe(r, &f, "", false, &x);
    assert_int_equal(x.status, DFX_OK);
    assert_true(x.values[0] == 2 && x.values[1] == 3 && x.values[2] == 896);
    close_layer(&x);
}

/* Groups of 16: R is the Kronecker product of H with itself, written out here; W = W_rot R. */
static void rotations_are_undone(void **state) {
    static const double H[4][4] = {
        {.5, .5, .5, -.5}, {.5, .5, -.5, .5}, {.5, -.5, .5, .5}, {-.5, .5, .5, .5}};
    ck_rig *r = *state;
    int8_t codes[2][32];
    float scales[2] = {0.25f, 3};
    one_layer x;
    ckfile f = {0};
    for (int i = 0; i < 64; i++)
        codes[i / 32][i % 32] = (int8_t)(i * 37 % 251 - 125);
    ckfile_add(&f, "X.weight", DFX_DTYPE_I8, 2, (int64_t[]){2, 32}, codes);
    ckfile_add_f32(&f, "X.weight_scale", 2, scales);
    ckfile_add_text(&f, "X.comfy_quant",
                    "{\"format\":\"int8_tensorwise\",\"convrot\":true,\"convrot_groupsize\":16}");
    describe(r, &f, "", false, &x);
    assert_int_equal(x.status, DFX_OK);
    assert_int_equal(x.storage.kind, DFX_STORE_ROTATED);
    for (int row = 0; row < 2; row++)
        for (int col = 0; col < 32; col++) {
            double want = 0;
            for (int k = 0; k < 16; k++)
                want += codes[row][col / 16 * 16 + k] * (double)scales[row] *
                        H[k / 4][col % 16 / 4] * H[k % 4][col % 4];
            assert_true(x.values[row * 32 + col] ==
                        (float)want); /* halves of whole numbers: exact */
        }
    close_layer(&x);
}

static void bitsandbytes_that_contradicts_itself_is_refused(void **state) {
    static const struct {
        const char *state, *words;
    } table[] = {
        {"{\"blocksize\": 64, \"shape\": [2, 64]}", NULL},
        {"{\"blocksize\": 64, \"shape\": [2, 65]}", "is not that of its codes"},
        {"{\"blocksize\": 32, \"shape\": [2, 64]}", "is not that of its codes"},
        {"{\"blocksize\": 63, \"shape\": [2, 64]}", "no shape and block"},
        {"{\"blocksize\": 64, \"shape\": [-2, -64]}", "no shape"},
        {"{\"blocksize\": 64, \"shape\": [4294967296, 4294967296]}", "is not that of its codes"},
        {"{\"blocksize\": 0, \"shape\": [2, 64]}", "blocksize"},
        {"{\"shape\": [2, 64]}", "blocksize"},
    };
    ck_rig *r = *state;
    float map[16] = {0}, absmax[2] = {1, 1};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ckfile f = {0};
        one_layer x;
        ckfile_add(&f, "X.weight", DFX_DTYPE_U8, 2, (int64_t[]){64, 1}, NULL);
        ckfile_add_f32(&f, "X.weight.absmax", 2, absmax);
        ckfile_add_f32(&f, "X.weight.quant_map", 16, map);
        ckfile_add_text(&f, "X.weight.quant_state.bitsandbytes__fp4", table[i].state);
        describe(r, &f, "", false, &x);
        assert_int_equal(x.status, table[i].words ? DFX_E_FORMAT : DFX_OK);
        if (table[i].words)
            said_error(r->log, table[i].words);
        close_layer(&x);
    }
}

/* ---- codes that are kept ---- */

/* The tensors of a layer in a pack of the paths. */
static dfx_tensor packed_tensor(ck_rig *r, const char *name, dfx_qformat quant, bool automatic,
                                dfx_qformat *packed_as) {
    char path[TMPDIR_PATH];
    dfx_pack_report report;
    dfx_packed *packed;
    dfx_pack_options o = {.quant = quant, .n_threads = 2};
    tmpdir_join(r->dir, "kept.safetensors", path);
    assert_int_equal(dfx_model_pack(&r->paths, automatic, &o, path, &r->log->sink, &report),
                     DFX_OK);
    assert_int_equal(dfx_packed_open(path, &r->log->sink, &packed), DFX_OK);
    const dfx_tensor *t = dfx_tensors_find(dfx_packed_tensors(packed, "transformer"), name);
    dfx_tensor copy = t ? *t : (dfx_tensor){.rank = -1};
    *packed_as = dfx_packed_quant(packed);
    dfx_packed_close(packed);
    return copy;
}

static void codes_stay_where_nobody_wants_another_format(void **state) {
    static const char weight[] = "transformer_blocks.0.attn.to_k.weight",
                      scale[] = "transformer_blocks.0.attn.to_k.weight_scale",
                      modulation[] = "transformer_blocks.0.norm1.linear.weight";
    static const struct {
        ck_storage storage;
        dfx_qformat quant;
        bool automatic;
        dfx_dtype dtype;
        dfx_qformat packed_as;
    } table[] = {
        {CK_FP8_SCALED, DFX_Q_STORED, true, DFX_DTYPE_F8_E4M3, DFX_Q_STORED},
        {CK_FP8_SCALED, DFX_Q_INT8, true, DFX_DTYPE_F8_E4M3, DFX_Q_INT8},
        {CK_FP8_SCALED, DFX_Q_FP8, false, DFX_DTYPE_F8_E4M3, DFX_Q_FP8},
        {CK_FP8_SCALED, DFX_Q_INT8, false, DFX_DTYPE_I8, DFX_Q_INT8},
        {CK_FP8_SCALED, DFX_Q_BF16, false, DFX_DTYPE_BF16, DFX_Q_BF16},
        {CK_INT8, DFX_Q_STORED, true, DFX_DTYPE_I8, DFX_Q_STORED},
        {CK_INT8, DFX_Q_INT8WO, false, DFX_DTYPE_I8, DFX_Q_INT8WO},
        {CK_INT8, DFX_Q_FP8, false, DFX_DTYPE_F8_E4M3, DFX_Q_FP8},
        {CK_LLM_INT8, DFX_Q_INT8, false, DFX_DTYPE_I8, DFX_Q_INT8},
        {CK_NF4, DFX_Q_STORED, true, DFX_DTYPE_I8, DFX_Q_INT8WO},
        {CK_NF4, DFX_Q_FP8, false, DFX_DTYPE_F8_E4M3, DFX_Q_FP8},
    };
    ck_rig *r = *state;
    ckrig_parts(r);
    ckrig_model(r, "flux.safetensors");
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        dfx_qformat as;
        write_encoded(r, table[i].storage, "", "flux.safetensors");
        dfx_tensor t = packed_tensor(r, weight, table[i].quant, table[i].automatic, &as);
        assert_int_equal(t.dtype, table[i].dtype);
        assert_int_equal(as, table[i].packed_as);
        t = packed_tensor(r, scale, table[i].quant, table[i].automatic, &as);
        if (table[i].dtype != DFX_DTYPE_BF16)
            assert_true(t.dtype == DFX_DTYPE_F32 && t.rank == 1 && t.shape[0] == 256);
        else
            assert_int_equal(t.rank, -1);
        t = packed_tensor(r, modulation, table[i].quant, table[i].automatic, &as);
        assert_int_equal(t.dtype, DFX_DTYPE_BF16);
    }
}

/* 256 rows of k are rows 256 to 511 of the fused layer, whose codes are 1 + row % 100 and scales 1 + row. */
static void kept_codes_and_scales_are_those_of_the_file(void **state) {
    ck_rig *r = *state;
    int8_t *codes = malloc(768 * 256);
    float *scales = malloc(768 * sizeof(*scales));
    ckfile f = {0};
    assert_true(codes && scales);
    for (int i = 0; i < 768; i++) {
        memset(codes + i * 256, 1 + i % 100, 256);
        scales[i] = (float)(1 + i);
    }
    ckrig_parts(r);
    ckfile_original(&f, r->folder, "transformer", "");
    ckfile_remove(&f, "double_blocks.0.img_attn.qkv.weight");
    ckfile_add(&f, "double_blocks.0.img_attn.qkv.weight", DFX_DTYPE_I8, 2, (int64_t[]){768, 256},
               codes);
    ckfile_add_f32(&f, "double_blocks.0.img_attn.qkv.weight_scale", 768, scales);
    ckfile_write(&f, r->dir, "flux.safetensors");
    ckfile_free(&f);
    ckrig_model(r, "flux.safetensors");
    float *got = ckrig_values(r, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_k.weight",
                              DFX_Q_INT8, 256 * 256);
    float *got_scales = ckrig_values(
        r, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_k.weight_scale", DFX_Q_INT8, 256);
    for (int i = 0; i < 256; i++) {
        assert_true(got[i * 256] == 1 + (256 + i) % 100 && got[i * 256 + 255] == got[i * 256]);
        assert_true(got_scales[i] == 257 + i);
    }
    free(got);
    free(got_scales);
    free(codes);
    free(scales);
}

/* "Always compute in full precision": a marker of two elements. */
static void codes_that_may_not_be_multiplied_are_widened(void **state) {
    ck_rig *r = *state;
    ckfile f = {0};
    dfx_qformat as;
    ckrig_parts(r);
    ckfile_original(&f, r->folder, "transformer", "");
    ckfile_encode_all(&f, CK_FP8_SCALED);
    ckfile_add(&f, "scaled_fp8", DFX_DTYPE_F8_E4M3, 1, (int64_t[]){2}, NULL);
    ckfile_write(&f, r->dir, "flux.safetensors");
    ckfile_free(&f);
    ckrig_model(r, "flux.safetensors");
    dfx_tensor t =
        packed_tensor(r, "transformer_blocks.0.attn.to_k.weight", DFX_Q_STORED, true, &as);
    assert_int_equal(t.dtype, DFX_DTYPE_BF16);
    ckrig_same_as_folder(r);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, ckrig_setup, ckrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(exact_storages_give_the_folders_pages),
        WITH_RIG(gguf_files_give_the_folders_pages),
        WITH_RIG(folder_of_bitsandbytes_gives_the_folders_pages),
        WITH_RIG(scales_of_both_spellings_are_applied),
        WITH_RIG(missing_and_contradicting_scales_are_refused),
        WITH_RIG(descriptions_follow_the_tensors_prefix),
        WITH_RIG(descriptions_that_are_none_are_refused),
        WITH_RIG(fp8_in_u8_is_read_where_it_is_described),
        WITH_RIG(rotations_are_undone),
        WITH_RIG(bitsandbytes_that_contradicts_itself_is_refused),
        WITH_RIG(codes_stay_where_nobody_wants_another_format),
        WITH_RIG(kept_codes_and_scales_are_those_of_the_file),
        WITH_RIG(codes_that_may_not_be_multiplied_are_widened),
    };
    return cmocka_run_group_tests(tests, ckrig_group_setup, ckrig_group_teardown);
}
