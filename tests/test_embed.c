/* Embeddings looked up on the host: tables of any number type, positions, ids that are not there, a packed model. What
 * transformers look up is compared in test_clip.c and test_t5.c. */
#include "models/embed.h"

#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "models/configs.h"
#include "models/pack.h"
#include "tests/model_rig.h"
#include "tests/stfile.h"

enum { VOCAB = 7, POSITIONS = 5, WIDTH = 6 };

/* Small multiples of an eighth: exact in every number type. */
static float token_value(int row, int col) {
    return (float)((row * 5 + col * 3) % 17 - 8) / 8;
}

static float position_value(int row, int col) {
    return (float)((row * 7 + col) % 15 - 7) / 8;
}

typedef struct bench {
    model_rig *r;
    tmpdir *dir;
    dfx_tensors *set;
    dfx_program tables;
} bench;

/* token.weight [VOCAB, WIDTH] (or in three dimensions), position.weight [POSITIONS, WIDTH]. */
static void write_tables(tmpdir *dir, dfx_dtype dtype, const char *token_shape) {
    float values[(VOCAB + POSITIONS) * WIDTH];
    unsigned char data[sizeof(values)];
    for (int i = 0; i < VOCAB * WIDTH; i++)
        values[i] = token_value(i / WIDTH, i % WIDTH);
    for (int i = 0; i < POSITIONS * WIDTH; i++)
        values[VOCAB * WIDTH + i] = position_value(i / WIDTH, i % WIDTH);
    size_t bytes = dfx_dtype_bytes(dtype), n = DFX_COUNT(values), middle = VOCAB * WIDTH * bytes;
    assert_true(dfx_from_f32(dtype, values, data, n));
    char header[512];
    snprintf(header, sizeof(header),
             "{\"token.weight\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%zu]},"
             "\"position.weight\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}}",
             dfx_dtype_name(dtype), token_shape, middle, dfx_dtype_name(dtype), POSITIONS, WIDTH,
             middle, n * bytes);
    stfile_write(dir, stfile_name, header, data, n * bytes);
}

static bench begin(model_rig *r, dfx_dtype dtype, const char *token_shape) {
    bench t = {.r = r, .dir = r->dir};
    write_tables(t.dir, dtype, token_shape);
    t.set = stfile_accepts(t.dir);
    dfx_builder b;
    dfx_build_env env = mrig_env(r, t.set);
    dfx_builder_init(&b, "table", "text", &env);
    dfx_builder_page(&b, "tables");
    dfx_builder_scope(&b, "%s", "");
    dfx_weight_ref(&b, "token.weight", VOCAB, WIDTH);
    dfx_weight_ref(&b, "position.weight", POSITIONS, WIDTH);
    assert_int_equal(dfx_builder_finish(&b, &t.tables), DFX_OK);
    return t;
}

static void end(bench *t) {
    dfx_program_fini(&t->tables);
    dfx_tensors_close(t->set);
}

/* WIDTH values and no more are written for each id. */
static void check_rows(const bench *t, bool with_position, const int32_t *ids, int n) {
    float x[8 * WIDTH];
    memset(x, 0x5A, sizeof(x));
    const dfx_weight *w = t->tables.weights;
    assert_int_equal(
        dfx_embed_rows(&t->tables, &w[0], with_position ? &w[1] : NULL, ids, n, &t->r->sink, x),
        DFX_OK);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < WIDTH; j++) {
            float want = token_value(ids[i], j) + (with_position ? position_value(i, j) : 0);
            assert_true(x[i * WIDTH + j] == want);
        }
    for (size_t i = (size_t)n * WIDTH * sizeof(*x); i < sizeof(x); i++)
        assert_int_equal(((unsigned char *)x)[i], 0x5A);
}

static void embed_rows_of_any_type_are_exact(void **state) {
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F32, DFX_DTYPE_F16, DFX_DTYPE_BF16,
                                       DFX_DTYPE_F8_E4M3};
    static const int32_t ids[] = {0, 6, 3, 6, 1};
    for (size_t i = 0; i < DFX_COUNT(dtypes); i++) {
        bench t = begin(*state, dtypes[i], "[7,6]");
        check_rows(&t, false, ids, 5);
        check_rows(&t, true, ids, 5);
        check_rows(&t, false, (const int32_t[]){2, 2, 2, 2, 2, 2, 2}, 7); /* more than positions */
        check_rows(&t, true, ids, 0);
        end(&t);
    }
}

/* Rows are those of the first dimension, as the builder has checked. */
static void embed_rows_of_three_dimensions_are_whole(void **state) {
    bench t = begin(*state, DFX_DTYPE_BF16, "[7,2,3]");
    check_rows(&t, true, (const int32_t[]){6, 0, 5}, 3);
    end(&t);
}

static void embed_id_outside_table_is_refused(void **state) {
    static const struct {
        int32_t id;
        const char *words;
    } wrong[] = {{-1, "token.weight: row -1 of 7"},
                 {VOCAB, "token.weight: row 7 of 7"},
                 {INT32_MAX, "token.weight: row 2147483647 of 7"},
                 {INT32_MIN, "token.weight: row -2147483648 of 7"}};
    bench t = begin(*state, DFX_DTYPE_BF16, "[7,6]");
    for (size_t i = 0; i < DFX_COUNT(wrong); i++) {
        float x[2 * WIDTH];
        int32_t ids[] = {2, wrong[i].id};
        size_t held = dfx_mem_held_bytes();
        recorder_clear(&t.r->mem->log);
        assert_int_equal(
            dfx_embed_rows(&t.tables, &t.tables.weights[0], NULL, ids, 2, &t.r->sink, x),
            DFX_E_INTERNAL);
        said_error(&t.r->mem->log, wrong[i].words);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    end(&t);
}

static void embed_of_more_tokens_than_positions_is_refused(void **state) {
    static const int32_t ids[POSITIONS + 1] = {0};
    bench t = begin(*state, DFX_DTYPE_BF16, "[7,6]");
    float x[(POSITIONS + 1) * WIDTH];
    recorder_clear(&t.r->mem->log);
    assert_int_equal(dfx_embed_rows(&t.tables, &t.tables.weights[0], &t.tables.weights[1], ids,
                                    POSITIONS + 1, &t.r->sink, x),
                     DFX_E_INTERNAL);
    said_error(&t.r->mem->log, "position.weight: row 5 of 5");
    end(&t);
}

/* The file shrinks after it was opened. */
static void embed_from_short_file_is_an_io_error(void **state) {
    bench t = begin(*state, DFX_DTYPE_F32, "[7,6]");
    float x[WIDTH];
    tmpdir_write(t.dir, stfile_name, "12345678", 8);
    recorder_clear(&t.r->mem->log);
    assert_int_equal(dfx_embed_rows(&t.tables, &t.tables.weights[0], NULL, (const int32_t[]){6}, 1,
                                    &t.r->sink, x),
                     DFX_E_IO);
    said_error(&t.r->mem->log, stfile_name);
    end(&t);
}

/* The bundled model's tables from its folder, and from files that it was packed into. */
static void embed_from_packed_file_equals_folder(void **state) {
    static const int32_t ids[] = {0, 1, 194, 77, 100};
    static const struct {
        dfx_qformat quant;
        bool compress;
    } packs[] = {{DFX_Q_STORED, false}, {DFX_Q_INT8, false}, {DFX_Q_INT8, true}};
    enum { N = 5, D = 128 };
    model_rig *r = *state;
    dfx_bundle bundle = folder_bundle("models/scenes");
    dfx_configs configs;
    dfx_program table;
    dfx_build_env env = mrig_env(r, mrig_open(r, "models/scenes/text_encoder_2", "model"));
    assert_int_equal(dfx_configs_load(&bundle, &r->sink, &configs), DFX_OK);
    assert_int_equal(configs.t5.width, D);
    assert_int_equal(dfx_t5_build_table(&configs.t5, &env, &table), DFX_OK);
    const float *want = mrig_embed(r, &table, false, ids, N, D);
    dfx_program_fini(&table);
    for (size_t i = 0; i < DFX_COUNT(packs); i++) {
        char path[TMPDIR_PATH];
        dfx_packed *packed;
        dfx_pack_report report;
        dfx_pack_options options = {
            .quant = packs[i].quant, .compress = packs[i].compress, .n_threads = 2};
        tmpdir_join(r->dir, "packed.safetensors", path);
        assert_int_equal(dfx_model_pack(&(dfx_model_paths){.model = "models/scenes"}, false,
                                        &options, path, &r->sink, &report),
                         DFX_OK);
        assert_int_equal(dfx_packed_open(path, &r->sink, &packed), DFX_OK);
        env.tensors = dfx_packed_tensors(packed, "text_encoder_2");
        assert_int_equal(dfx_t5_build_table(&configs.t5, &env, &table), DFX_OK);
        const float *got = mrig_embed(r, &table, false, ids, N, D);
        assert_memory_equal(got, want, N * D * sizeof(*got));
        dfx_program_fini(&table);
        dfx_packed_close(packed);
    }
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(embed_rows_of_any_type_are_exact),
        WITH_MRIG(embed_rows_of_three_dimensions_are_whole),
        WITH_MRIG(embed_id_outside_table_is_refused),
        WITH_MRIG(embed_of_more_tokens_than_positions_is_refused),
        WITH_MRIG(embed_from_short_file_is_an_io_error),
        WITH_MRIG(embed_from_packed_file_equals_folder),
    };
    return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
