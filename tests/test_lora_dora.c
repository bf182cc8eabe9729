/* DoRA beside quantized weights: rows that are rescaled, and the change that is added, against double precision loops over the
 * weights as the packed file has them; and pictures of the bundled model in int8. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "models/flux.h"
#include "models/lora_block.h"
#include "models/lora_dora.h"
#include "offload/packed.h"
#include "tests/draw_rig.h"
#include "tests/lora_file.h"

enum { D = 256, RANK = 16 };
#define LAYER "transformer_blocks.0.attn.to_q"

/* The case of public reports: W = [[3, 4], [0, 2]] and B A = [[1, 0], [0, 0]] make V = [[4, 4], [0, 2]], whose rows are 5.656854 and 2
 * long; magnitudes of 10 and 1 make it [[7.071068, 7.071068], [0, 1]]. */
static void rows_become_as_long_as_their_magnitude(void **state) {
    const float w[] = {3, 4, 0, 2}, down[] = {1, 0}, up[] = {1, 0}, magnitude[] = {10, 1};
    float row[2], d[2];
    dfx_dora_rescale(w, down, up, magnitude, 1, 2, 2, 1, row, d);
    assert_true(fabsf(d[0] * 4 - 7.071068f) < 1e-6f);
    assert_true(fabsf(d[1] * 2 - 1.0f) < 1e-6f);
    dfx_dora_rescale((const float[]){0, 0}, (const float[]){0, 0}, (const float[]){0}, magnitude, 1,
                     1, 2, 1, row, d);
    assert_true(d[0] == 1);
}

/* A packed bundled model in int8, and rows of one of its weights. */
typedef struct packed_weight {
    char path[TMPDIR_PATH];
    float w[D * D], scales[D];
} packed_weight;

static packed_weight *open_weight(draw_rig *r) {
    packed_weight *p = calloc(1, sizeof(*p));
    signed char *codes = malloc(D * D);
    dfx_packed *packed;
    assert_non_null(p);
    assert_non_null(codes);
    draw_pack(r, "int8.safetensors", DFX_Q_INT8, false, p->path);
    assert_int_equal(dfx_packed_open(p->path, &r->log->sink, &packed), DFX_OK);
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    assert_int_equal(
        dfx_tensors_read(set, dfx_tensors_find(set, LAYER ".weight"), &r->log->sink, codes),
        DFX_OK);
    assert_int_equal(dfx_tensors_read_f32(set, dfx_tensors_find(set, LAYER ".weight_scale"),
                                          &r->log->sink, p->scales),
                     DFX_OK);
    for (int i = 0; i < D * D; i++)
        p->w[i] = (float)codes[i] * p->scales[i / D];
    dfx_packed_close(packed);
    free(codes);
    return p;
}

/* A LoRA of rank 1 on the layer: alpha 2, so that its scale is 2. */
typedef struct change {
    float down[D], up[D], magnitude[D];
} change;

static change make_change(void) {
    change c;
    for (int i = 0; i < D; i++) {
        c.down[i] = (float)(i % 7 - 3) / 64;
        c.up[i] = (float)(i % 5 - 2) / 8;
        c.magnitude[i] = 1 + (float)(i % 3);
    }
    return c;
}

/* How long rows of W + 2 up down are. */
static void lengths(const packed_weight *p, const change *c, double *out) {
    for (int n = 0; n < D; n++) {
        double sum = 0;
        for (int k = 0; k < D; k++) {
            double v = (double)p->w[n * D + k] + 2 * (double)c->up[n] * (double)c->down[k];
            sum += v * v;
        }
        out[n] = sqrt(sum);
    }
}

static const char *write_lora(const draw_rig *r, const change *c, bool is_dora, const char *name,
                              char path[TMPDIR_PATH]) {
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "transformer." LAYER, 1, D, c->down, D, c->up);
    lora_file_scalar(&f, "transformer." LAYER ".alpha", 2);
    if (is_dora)
        lora_file_add(&f, "transformer." LAYER ".dora_scale", D, 1, c->magnitude);
    lora_file_write(&f, r->dir, name);
    return tmpdir_join(r->dir, name, path);
}

static const dfx_adapter *place_of(const dfx_program *program, const char *layer) {
    for (uint32_t i = 0; i < program->n_adapters; i++)
        if (strcmp(program->adapters[i].layer, layer) == 0)
            return &program->adapters[i];
    fail_msg("no place for %s", layer);
    return NULL;
}

static void block_has_scales_of_the_page_times_what_rows_become(void **state) {
    draw_rig *r = *state;
    packed_weight *p = open_weight(r);
    change c = make_change();
    double length[D];
    char path[TMPDIR_PATH];
    dfx_packed *packed;
    dfx_program program;
    dfx_configs configs;
    dfx_lora *lora;
    dfx_pool *pool;
    float *kept[1] = {NULL};
    lengths(p, &c, length);
    assert_int_equal(dfx_packed_open(p->path, &r->log->sink, &packed), DFX_OK);
    dfx_bundle bundle = dfx_packed_bundle(packed);
    assert_int_equal(dfx_configs_load(&bundle, &r->log->sink, &configs), DFX_OK);
    dfx_build_env env = {.tensors = dfx_packed_tensors(packed, "transformer"),
                         .adapter_rank = RANK,
                         .adapter_scales = true,
                         .act_dtype = DFX_DTYPE_F32,
                         .sink = &r->log->sink};
    assert_int_equal(dfx_flux_build_step(&configs.flux, &env, 4, 4, &program), DFX_OK);
    assert_int_equal(dfx_lora_open(write_lora(r, &c, true, "dora.safetensors", path), &configs,
                                   &r->log->sink, &lora),
                     DFX_OK);
    assert_int_equal(dfx_lora_n_parts(lora), 1);
    assert_int_equal(dfx_pool_open(&r->log->sink, 2, &pool), DFX_OK);
    unsigned char *block = malloc(program.adapter_bytes);
    assert_non_null(block);
    for (int turn = 0; turn < 2; turn++) { /* the second time d is known */
        memset(block, 0xFF, program.adapter_bytes);
        const dfx_lora_weight weight = {lora, 0.5f, kept};
        assert_int_equal(dfx_lora_block_fill(&program, DFX_TRANSFORMER, &weight, 1, DFX_DTYPE_F32,
                                             pool, &r->log->sink, block),
                         DFX_OK);
        const dfx_adapter *place = place_of(&program, LAYER);
        const float *scales = (float *)(void *)(block + program.bufs[place->scale_buf].off),
                    *u = (float *)(void *)(block + program.bufs[place->u_buf].off);
        for (int n = 0; n < D; n++) {
            double d = (double)c.magnitude[n] / length[n];
            double want = (double)p->scales[n] * (1 + 0.5 * (d - 1));
            assert_true(fabs((double)scales[n] - want) <= 1e-5 * fabs(want));
            assert_true(fabs((double)u[n * RANK] - d * (double)c.up[n]) <= 1e-5 * d);
            assert_true(u[n * RANK + 1] == 0);
        }
        place = place_of(&program, "transformer_blocks.0.attn.to_k");
        const dfx_tensor *of_page =
            dfx_tensors_find(env.tensors, "transformer_blocks.0.attn.to_k.weight_scale");
        float *same = malloc((size_t)of_page->bytes);
        assert_int_equal(dfx_tensors_read(env.tensors, of_page, &r->log->sink, same), DFX_OK);
        assert_memory_equal(block + program.bufs[place->scale_buf].off, same, of_page->bytes);
        free(same);
    }
    free(block);
    dfx_free(kept[0]);
    dfx_pool_close(pool);
    dfx_lora_close(lora);
    dfx_program_fini(&program);
    dfx_packed_close(packed);
    free(p);
}

static dfx_image picture(draw_rig *r, const dfx_lora_use *use) {
    dfx_request request = draw_request(r, 7);
    request.loras = use;
    request.n_loras = use != NULL;
    return draw(r, &request);
}

static void magnitudes_as_they_are_add_a_lora_and_others_change_more(void **state) {
    draw_rig *r = *state;
    packed_weight *p = open_weight(r);
    change c = make_change(), longer = c;
    double length[D];
    char plain_path[TMPDIR_PATH], same_path[TMPDIR_PATH], longer_path[TMPDIR_PATH];
    lengths(p, &c, length);
    for (int n = 0; n < D; n++) {
        c.magnitude[n] = (float)length[n];
        longer.magnitude[n] = 3 * (float)length[n];
    }
    write_lora(r, &c, false, "plain.safetensors", plain_path);
    write_lora(r, &c, true, "same.safetensors", same_path);
    write_lora(r, &longer, true, "longer.safetensors", longer_path);
    const char *const named[] = {plain_path, NULL, same_path, NULL, longer_path};
    draw_open(r, p->path, 0);
    dfx_image without_room = picture(r, NULL);
    r->loras = named;
    r->n_loras = 5;
    draw_open(r, p->path, 0);
    dfx_image none = picture(r, NULL), plain = picture(r, &(dfx_lora_use){plain_path, 1}),
              same = picture(r, &(dfx_lora_use){same_path, 1}),
              more = picture(r, &(dfx_lora_use){longer_path, 1}), after = picture(r, NULL),
              again = picture(r, &(dfx_lora_use){longer_path, 1});
    draw_same(&without_room, &none);
    draw_same(&none, &after);
    draw_same(&more, &again);
    draw_differ(&none, &plain);
    draw_differ(&plain, &more);
    for (int i = 0; i < plain.width * plain.height * 3; i++)
        assert_true(abs(plain.rgb[i] - same.rgb[i]) <= 1);
    dfx_image *const all[] = {&without_room, &none, &plain, &same, &more, &after, &again};
    for (size_t i = 0; i < DFX_COUNT(all); i++)
        dfx_image_free(all[i]);
    free(p);
}

static void what_cannot_be_rescaled_is_refused(void **state) {
    draw_rig *r = *state;
    change c = make_change();
    char path[TMPDIR_PATH];
    const char *const named[] = {write_lora(r, &c, true, "dora.safetensors", path)};
    r->loras = named;
    r->n_loras = 1;
    draw_open_fails(r, DRAW_SCENES, DFX_E_FORMAT, "has no scales of its own");
    r->n_loras = 0;
    r->lora_max_rank = 4;
    packed_weight *p = open_weight(r);
    draw_open(r, p->path, 0);
    dfx_request request = draw_request(r, 7);
    request.loras = &(dfx_lora_use){path, 1};
    request.n_loras = 1;
    draw_fails(r, &request, DFX_E_USAGE, "a DoRA needs room of its own");
    free(p);
}

#define DRAWS(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_as_long_as_their_magnitude),
        DRAWS(block_has_scales_of_the_page_times_what_rows_become),
        DRAWS(magnitudes_as_they_are_add_a_lora_and_others_change_more),
        DRAWS(what_cannot_be_rescaled_is_refused),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
