/* What bench works out: samples, rates from seconds, two runs compared, ops as text, and a program with made-up weights on the
 * CPU. The program's sources are in no library, so they are compiled in here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/architecture.h"
#include "tests/tmpdir.h"

#include "tools/bench_blocks.c"
#include "tools/bench_compare.c"
#include "tools/bench_copies.c"
#include "tools/bench_fit.c"
#include "tools/bench_ops.c"
#include "tools/bench_program.c"
#include "tools/bench_sample.c"
#include "tools/bench_svg.c"
#include "tools/bench_text.c"
#include "tools/bench_timer.c"

#include "core/json.h"

/* ---- samples */

static void bench_sample_knows_the_middle(void **state) {
    dfx_bench_sample s = {0};
    dfx_bench_sample_add(&s, 3);
    assert_true(s.median == 3 && s.least == 3 && s.most == 3);
    dfx_bench_sample_add(&s, 1);
    assert_true(s.median == 2);
    dfx_bench_sample_add(&s, 10);
    assert_true(s.median == 3 && s.least == 1 && s.most == 10);
    dfx_bench_sample rate = dfx_bench_rate_of(&s, 30);
    assert_true(rate.n == 3 && rate.median == 10 && rate.least == 3 && rate.most == 30);
}

/* ---- rates */

static dfx_program blocks(dfx_qformat format, int64_t n_image) {
    dfx_flux_config config = dfx_architecture_find("flux-dev")->configs.flux;
    dfx_q_policy policy = {.target = format, .kept = DFX_Q_STORED};
    dfx_build_env env = {.like = &policy, .act_dtype = DFX_DTYPE_BF16};
    dfx_program program;
    config.n_double = config.n_single = 1;
    assert_int_equal(dfx_flux_build_step(&config, &env, 512, n_image, &program), DFX_OK);
    return program;
}

static void near(double got, double wanted) {
    if (!(fabs(got / wanted - 1) < 1e-6))
        fail_msg("wanted %g, found %g", wanted, got);
}

/* A machine that keeps to the planner's formula is found again from what it takes. */
static void bench_fit_finds_the_rates_of_a_modelled_machine(void **state) {
    dfx_profile machine, found;
    assert_int_equal(dfx_profile_load("h200", NULL, &machine), DFX_OK);
    found = machine;
    found.memory_bytes_per_s = found.attention_flops = found.bf16_flops = 1;
    found.int8_flops = found.fp8_flops = 1;
    static const dfx_qformat formats[] = {DFX_Q_BF16, DFX_Q_INT8, DFX_Q_FP8};
    double *const rates[] = {&found.bf16_flops, &found.int8_flops, &found.fp8_flops};
    for (int i = 0; i < 3; i++) {
        dfx_program p = blocks(formats[i], 4096);
        dfx_bench_pass pass = {.program = &p,
                               .whole_s = dfx_bench_foretold(&p, &machine, DFX_BENCH_PARTS),
                               .attention_s = dfx_bench_foretold(&p, &machine, DFX_BENCH_ATTENTION),
                               .rest_s = dfx_bench_foretold(&p, &machine, DFX_BENCH_REST)};
        if (i == 0)
            dfx_bench_fit_machine(&pass, &found);
        dfx_bench_fit_products(&pass, &found, rates[i]);
        dfx_program_fini(&p);
    }
    near(found.memory_bytes_per_s, machine.memory_bytes_per_s);
    near(found.attention_flops, machine.attention_flops);
    near(found.bf16_flops, machine.bf16_flops);
    near(found.int8_flops, machine.int8_flops);
    near(found.fp8_flops, machine.fp8_flops);
}

/* Attention over L = 4608 tokens of width D = 3072 is 4 L^2 D operations, and 4 x 4096 L D in the last block, where it is from
 * 4096 of them; at 1 Tflop/s, and 5 us an op, 0.49285 s and 10 us. */
static void bench_fit_of_attention_is_its_operations(void **state) {
    dfx_profile p;
    assert_int_equal(dfx_profile_load("h200", NULL, &p), DFX_OK);
    p.launch_s = 5e-6;
    dfx_program program = blocks(DFX_Q_BF16, 4096);
    dfx_bench_pass pass = {
        .program = &program, .whole_s = 1, .attention_s = 0.492847497216 + 10e-6, .rest_s = 0.01};
    dfx_bench_fit_machine(&pass, &p);
    near(p.attention_flops, 1e12);
    dfx_program_fini(&program);
}

/* Whatever one op costs the next goes to the products: the whole is foretold as it was. */
static void bench_fit_foretells_the_whole(void **state) {
    dfx_profile p;
    assert_int_equal(dfx_profile_load("rtx4090", NULL, &p), DFX_OK);
    dfx_program program = blocks(DFX_Q_INT8, 4096);
    dfx_bench_pass pass = {
        .program = &program, .whole_s = 0.031, .attention_s = 0.004, .rest_s = 0.0021};
    dfx_bench_fit_machine(&pass, &p);
    p.bf16_flops = 150e12;
    dfx_bench_fit_products(&pass, &p, &p.int8_flops);
    near(dfx_bench_foretold(&program, &p, DFX_BENCH_PARTS), 0.031);
    near(dfx_bench_foretold(&program, &p, DFX_BENCH_ATTENTION), 0.004);
    near(dfx_bench_foretold(&program, &p, DFX_BENCH_REST), 0.0021);
    dfx_program_fini(&program);
}

/* 100 ms become 102, 80 become 79.2 and 50 become 51: 2 %, -1 %, 2 %. A mean below 0 is noise. */
static void bench_fit_share_is_the_mean_of_what_passes_lose(void **state) {
    static const double alone[] = {0.100, 0.080, 0.050}, beside[] = {0.102, 0.0792, 0.051};
    near(dfx_bench_fit_share(alone, beside, 3), 0.01);
    near(dfx_bench_fit_share(alone, beside, 1), 0.02);
    assert_true(dfx_bench_fit_share(alone + 1, beside + 1, 1) == 0);
    assert_true(dfx_bench_fit_share(alone, beside, 0) == 0);
}

/* 19 double and 38 single blocks are 59 T operations of products and 15 T of attention: at 100 Tflop/s for the one, 50 for the
 * other and nothing else, 0.89 s. */
static void bench_flux_step_is_that_of_the_whole_model(void **state) {
    dfx_profile p;
    double seconds;
    assert_int_equal(dfx_profile_load("h200", NULL, &p), DFX_OK);
    p.launch_s = 0;
    p.bf16_flops = p.int8_flops = 100e12;
    p.attention_flops = 50e12;
    p.memory_bytes_per_s = 1e20;
    assert_int_equal(dfx_bench_flux_step(&p, DFX_DTYPE_BF16, DFX_Q_INT8, NULL, &seconds), DFX_OK);
    assert_true(fabs(seconds / 0.89 - 1) < 0.02);
}

/* ---- what is timed, and beside what */

static bool never(void *user) {
    return false;
}

typedef struct rounds {
    uint64_t n, n_stretches, fails_at;
    unsigned char memory[16];
} rounds;

static dfx_status count_round(void *user, uint64_t idx) {
    rounds *r = user;
    r->n_stretches += idx == 0;
    return ++r->n == r->fails_at ? DFX_E_DEVICE : DFX_OK;
}

static dfx_backend *open_cpu(tmpdir *dir) {
    dfx_backend *be;
    assert_int_equal(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 1}, &dir->log.sink, &be),
                     DFX_OK);
    return be;
}

/* Rounds of next to nothing go on for as long as is asked, and are timed as often as is asked. */
static void bench_time_settles_before_it_times(void **state) {
    tmpdir *dir = *state;
    dfx_backend *be = open_cpu(dir);
    dfx_bench_timer timer = {.be = be, .cancelled = never, .n_runs = 3, .settle_seconds = 0.05};
    rounds r = {0};
    dfx_bench_work work = {count_round, &r, r.memory};
    dfx_bench_sample seconds = {0};
    double began = dfx_bench_seconds();
    assert_int_equal(dfx_bench_time(&timer, &work, &seconds), DFX_OK);
    assert_true(dfx_bench_seconds() - began >= 0.05);
    assert_int_equal(seconds.n, 3);
    assert_true(r.n_stretches >
                4); /* one to warm up, three that are timed, and those that settle */
    r = (rounds){0};
    timer.settle_seconds = 0;
    assert_int_equal(dfx_bench_time(&timer, &work, &seconds), DFX_OK);
    assert_int_equal(r.n_stretches, 4);
    be->vt->close(be);
}

/* What was copied is there, at some rate, and no thread is left where the work fails. */
static void bench_beside_copies_copies_meanwhile(void **state) {
    tmpdir *dir = *state;
    dfx_backend *be = open_cpu(dir);
    dfx_bench_timer timer = {.be = be, .cancelled = never, .n_runs = 2, .settle_seconds = 0.2};
    rounds r = {0};
    dfx_bench_work work = {count_round, &r, r.memory};
    dfx_bench_copies copies;
    dfx_bench_sample seconds = {0};
    double rate = 0;
    assert_int_equal(dfx_bench_copies_open(be, &copies), DFX_OK);
    memset(copies.pinned.ptr, 7, copies.pinned.bytes);
    assert_int_equal(
        dfx_bench_beside_copies(&timer, &work, &copies, &dir->log.sink, &seconds, &rate), DFX_OK);
    assert_int_equal(seconds.n, 2);
    assert_true(copies.next >= 3);
    assert_int_equal(*(char *)copies.device.ptr, 7);
    assert_int_equal(((char *)copies.device.ptr)[2 * DFX_BENCH_COPY_BYTES - 1], 7);
    assert_true(rate > 0);
    r = (rounds){.fails_at = 5};
    assert_int_equal(
        dfx_bench_beside_copies(&timer, &work, &copies, &dir->log.sink, &seconds, &rate),
        DFX_E_DEVICE);
    dfx_bench_copies_close(&copies);
    be->vt->close(be);
}

/* ---- a program on the CPU */

/* Every op has its addresses, the latents stay what they are, and nothing that is made up becomes infinite. */
static void bench_program_runs_again_and_again(void **state) {
    tmpdir *dir = *state;
    const dfx_architecture *tiny = dfx_architecture_find("tiny");
    static const dfx_qformat formats[] = {DFX_Q_BF16, DFX_Q_INT8, DFX_Q_FP8};
    dfx_backend *be;
    assert_int_equal(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 1}, &dir->log.sink, &be),
                     DFX_OK);
    for (int f = 0; f < 3; f++) {
        dfx_q_policy policy = {.target = formats[f], .kept = DFX_Q_STORED};
        dfx_build_env env = {.like = &policy, .act_dtype = be->act_dtype};
        dfx_program program;
        dfx_bench_program b;
        assert_int_equal(dfx_flux_build_step(&tiny->configs.flux, &env, 4, 4, &program), DFX_OK);
        assert_int_equal(dfx_bench_program_open(be, &program, &dir->log.sink, &b), DFX_OK);
        assert_int_equal(b.n_calls, program.n_ops);
        for (uint32_t i = 0; i < b.n_calls; i++)
            for (int s = 0; s < DFX_OP_SLOTS; s++)
                assert_int_equal(b.calls[i].m[s].ptr != NULL, b.calls[i].m[s].rows != 0);
        for (uint32_t i = 0; i < b.n_calls; i++) /* weights of norms are 1, or attention is flat */
            if (b.calls[i].kind == DFX_OP_QKNORM_ROPE)
                assert_int_equal(*(uint16_t *)b.calls[i].m[DFX_QKNORM_W].ptr, 0x3f80);
        float before[4 * 64], after[4 * 64];
        memcpy(before, b.externs[DFX_STEP_X], sizeof(before));
        assert_true(before[1] != before[2]);
        for (int i = 0; i < 3; i++)
            assert_int_equal(dfx_bench_program_run(&b), DFX_OK);
        memcpy(after, b.externs[DFX_STEP_X], sizeof(after));
        assert_memory_equal(before, after, sizeof(after));
        const float *v = b.externs[DFX_STEP_V];
        for (int i = 0; i < 4 * 64; i++)
            assert_true(isfinite(v[i]) && fabsf(v[i]) < 1e6f);
        dfx_bench_program_close(&b);
        dfx_program_fini(&program);
    }
    be->vt->close(be);
    said_nothing(&dir->log, DFX_ERROR);
}

static const dfx_bench_op *row_of(const dfx_bench_ops *ops, const char *program, const char *text) {
    for (uint32_t i = 0; i < ops->n_ops; i++)
        if (strcmp(ops->ops[i].program, program) == 0 && strcmp(ops->ops[i].text, text) == 0)
            return &ops->ops[i];
    fail_msg("there is no row %s %s", program, text);
    return NULL;
}

/* 16 text and 16 picture tokens of width 256: q, k and v of each stream in two blocks and q of the last one are thirteen products
 * of one shape, and the streams' outputs another. */
static void bench_ops_counts_ops_of_one_shape(void **state) {
    tmpdir *dir = *state;
    dfx_backend *be;
    dfx_profile cpu;
    dfx_bench_ops ops;
    assert_int_equal(dfx_profile_load("cpu", NULL, &cpu), DFX_OK);
    assert_int_equal(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 1}, &dir->log.sink, &be),
                     DFX_OK);
    dfx_bench_timer timer = {.be = be, .cancelled = never, .n_runs = 2, .run_seconds = 1e-4};
    dfx_bench_ops_question q = {.architecture = dfx_architecture_find("tiny"),
                                .format = DFX_Q_INT8,
                                .shape = {.width = 64, .height = 64, .n_text = 16, .n_steps = 1},
                                .only = "step linear",
                                .profile = &cpu};
    assert_int_equal(dfx_bench_ops_run(&timer, &q, &dir->log.sink, &ops), DFX_OK);
    const dfx_bench_op *qkv = row_of(&ops, "step", "linear I8 16x256, K 256, bias");
    assert_int_equal(qkv->n_same, 13);
    assert_int_equal(qkv->seconds.n, 2);
    assert_true(qkv->flops == 2.0 * 16 * 256 * 256);
    assert_true(qkv->bytes == 16 * 256 * 4 + 16 * 256 + 16 * 4 + 256 * 256 + 256 * 4 + 256 * 2);
    assert_true(qkv->floor_s > 0 && qkv->seconds.least > 0);
    assert_int_equal(row_of(&ops, "step", "linear I8 16x256, K 256, bias, gate, residual")->n_same,
                     4);
    for (uint32_t i = 0; i < ops.n_ops; i++) {
        assert_memory_equal(ops.ops[i].text, "linear", 6);
        assert_int_equal(ops.ops[i].kind, DFX_OP_LINEAR);
        assert_string_equal(ops.ops[i].kernels, ""); /* a processor has no choice */
    }
    dfx_bench_ops_close(&ops);
    be->vt->close(be);
}

/* ---- two runs */

/* Rows as `bench image` writes them. */
#define ROW(budget, runs, median, peak, picture)                                              \
    "{\"budget_bytes\":" #budget ",\"fits\":true,\"seconds\":[" runs                          \
    "],\"median_seconds\":" #median ",\"peak_device_bytes\":" #peak ",\"picture\":\"" picture \
    "\"}"
#define RUN(width, rows) \
    "{\"device\":{\"name\":\"NVIDIA H200\"},\"series\":[" SERIES("int8", width, rows) "]}"
#define SERIES(quant, width, rows)                               \
    "{\"model\":\"m\",\"quant\":\"" quant "\",\"width\":" #width \
    ",\"height\":64,\"steps\":4,\"text_length\":8,\"rows\":[" rows "]}"

static json_t *parse(const char *text) {
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

/* What the comparison says is in text->text; the caller ends it. */
static dfx_status compare_texts(tmpdir *dir, const char *then, const char *now,
                                dfx_bench_text *text) {
    json_t *a = parse(then), *b = parse(now);
    *text = (dfx_bench_text){.sink = &dir->log.sink};
    recorder_clear(&dir->log);
    dfx_status status = dfx_bench_compare(a, "old.json", b, &dir->log.sink, text);
    json_decref(a);
    json_decref(b);
    return status;
}

static void verdict_is(tmpdir *dir, const char *then, const char *now, const char *wanted) {
    dfx_bench_text text;
    assert_int_equal(compare_texts(dir, then, now, &text), DFX_OK);
    if (!strstr(text.text, wanted))
        fail_msg("wanted \"%s\" in:\n%s", wanted, text.text);
    dfx_bench_text_fini(&text);
}

static void bench_compare_calls_changes_by_their_name(void **state) {
    tmpdir *dir = *state;
    static const char then[] = RUN(64, ROW(1073741824, "2.0,2.1,2.2", 2.1, 100,
                                           "a") "," ROW(2147483648, "1.0,1.0,1.1", 1.0, 200, "a"));
    verdict_is(dir, then, then, "verdict: no change at 2 budgets\n");
    /* 2.1 -> 1.575 is 25 % less; 1.0 -> 1.2 is 20 % more */
    static const char mixed[] = RUN(64, ROW(1073741824, "1.5,1.575,1.6", 1.575, 100,
                                            "a") "," ROW(2147483648, "1.2,1.2,1.3", 1.2, 200, "a"));
    verdict_is(dir, then, mixed,
               "verdict: slower at 1 of 2 budgets (20.0 % at 2.00 GiB), faster at 1 of 2 budgets "
               "(25.0 % at 1.00 GiB)\n");
    verdict_is(dir, then, mixed, "1.575 s  was     2.100 s   -25.0 %  faster\n");
}

/* Medians a tenth apart whose runs overlap, and steady ones half a hundredth apart. */
static void bench_compare_does_not_judge_noise(void **state) {
    tmpdir *dir = *state;
    verdict_is(dir, RUN(64, ROW(1073741824, "1.0,1.1,1.3", 1.1, 100, "a")),
               RUN(64, ROW(1073741824, "1.0,1.2,1.3", 1.2, 100, "a")),
               "+9.1 %  the same within the spread");
    verdict_is(dir, RUN(64, ROW(1073741824, "1.0,1.0", 1.0, 100, "a")),
               RUN(64, ROW(1073741824, "1.005,1.005", 1.005, 100, "a")), "no change at 1 budget\n");
}

static void bench_compare_tells_memory_and_picture(void **state) {
    tmpdir *dir = *state;
    static const char then[] = RUN(64, ROW(1073741824, "1.0", 1.0, 1048576, "a")),
                      now[] = RUN(64, ROW(1073741824, "1.0", 1.0, 3145728, "b"));
    verdict_is(dir, then, now, "; peak +2.0 MiB; another picture\n");
    verdict_is(dir, then, now, "; the picture is another one at 1\n");
}

static void bench_compare_of_budgets_that_come_and_go(void **state) {
    tmpdir *dir = *state;
    static const char none[] = "{\"budget_bytes\":1073741824,\"fits\":false}";
    char without[512];
    snprintf(without, sizeof(without), RUN(64, "%s"), none);
    static const char with[] = RUN(64, ROW(1073741824, "1.0", 1.0, 1, "a"));
    verdict_is(dir, without, with, "fits now, and did not\nverdict: no budget in common");
    verdict_is(dir, with, without, "did fit, and does not now\n");
    verdict_is(dir, with, RUN(64, ROW(2147483648, "1.0", 1.0, 1, "a")), "not there before\n");
}

/* Series are found by what they are of, in whatever order. */
static void bench_compare_of_several_series(void **state) {
    tmpdir *dir = *state;
#define TWO(first, second) \
    "{\"device\":{\"name\":\"NVIDIA H200\"},\"series\":[" first "," second "]}"
    static const char then[] = TWO(SERIES("int8", 64, ROW(1073741824, "1.0", 1.0, 1, "a")),
                                   SERIES("fp8", 64, ROW(1073741824, "2.0", 2.0, 1, "b"))),
                      now[] = TWO(SERIES("fp8", 64, ROW(1073741824, "2.5", 2.5, 1, "b")),
                                  SERIES("int8", 32, ROW(1073741824, "0.5", 0.5, 1, "c")));
    verdict_is(dir, then, then, "verdict: no change at 2 budgets\n");
    verdict_is(dir, then, now,
               "m, fp8, 64x64\n    1.00 GiB      2.500 s  was     2.000 s   +25.0 %  slower\n"
               "m, int8, 32x64: not there before\n"
               "verdict: slower at 1 of 1 budget (25.0 % at 1.00 GiB, m, fp8, 64x64)\n");
#undef TWO
}

static void bench_compare_refuses_what_is_not_the_same(void **state) {
    tmpdir *dir = *state;
    dfx_bench_text text;
    static const char run[] = RUN(64, ROW(1073741824, "1.0", 1.0, 1, "a"));
    assert_int_equal(compare_texts(dir, RUN(32, ""), run, &text), DFX_E_USAGE);
    said_error(&dir->log, "old.json: cannot be compared: width there is 32, here 64");
    assert_int_equal(compare_texts(dir, "{\"series\":[]}", run, &text), DFX_E_USAGE);
    said_error(&dir->log, "the device there is \"\", here \"NVIDIA H200\"");
    assert_int_equal(compare_texts(dir, "{}", run, &text), DFX_E_FORMAT);
    said_error(&dir->log, "series");
    static const char none[] = "{\"device\":{\"name\":\"NVIDIA H200\"},\"series\":[]}";
    assert_int_equal(compare_texts(dir, none, run, &text), DFX_E_USAGE);
    said_error(&dir->log, "old.json: cannot be compared: model there is \"\", here \"m\"");
    static const char zero[] = RUN(64, ROW(1073741824, "0", 1.0, 1, "a"));
    assert_int_equal(compare_texts(dir, zero, run, &text), DFX_E_FORMAT);
    said_error(&dir->log, "old.json: seconds: wanted numbers above 0");
    dfx_bench_text_fini(&text);
}

/* ---- chart */

static size_t count_of(const char *text, const char *words) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        n++;
    return n;
}

/* A mark for each budget that fits, from left to right; names that XML would trip over; one budget alone is a chart, too. */
static void bench_svg_has_a_mark_a_budget(void **state) {
    tmpdir *dir = *state;
    static dfx_bench_image b; /* zeroed */
    dfx_bench_image_series *s = &b.series[0];
    b.n_series = 1;
    snprintf(s->model, sizeof(s->model), "<a & b>");
    for (int i = 0; i < 3; i++) {
        s->rows[i] = (dfx_bench_image_row){.budget_bytes = (uint64_t)(3 - i) << 30,
                                           .fits = i < 2,
                                           .planned_seconds = 1,
                                           .floor_seconds = 0.5};
        dfx_bench_sample_add(&s->rows[i].seconds, 1 + i);
    }
    for (s->n_rows = 1; s->n_rows <= 3; s->n_rows++) {
        dfx_bench_text text = {.sink = &dir->log.sink};
        dfx_bench_image_svg(&b, &text);
        assert_int_equal(text.status, DFX_OK);
        assert_int_equal(count_of(text.text, "<circle"), s->n_rows < 2 ? 1 : 2);
        assert_int_equal(count_of(text.text, "<polyline"), 3);
        assert_int_equal(count_of(text.text, "&lt;a &amp; b>"), 1);
        assert_null(strstr(text.text, "nan"));
        assert_null(strstr(text.text, "inf"));
        assert_non_null(strstr(text.text, "</svg>\n"));
        if (s->n_rows == 3) { /* the smaller budget's, slower, is to the left and higher up */
            double x[2], y[2];
            assert_int_equal(sscanf(strstr(text.text, "class=\"measured\" points=") + 25,
                                    "%lf,%lf %lf,%lf", &x[0], &y[0], &x[1], &y[1]),
                             4);
            assert_true(x[0] < x[1] && y[0] < y[1]);
        }
        dfx_bench_text_fini(&text);
    }
}

/* One below the other, each with its axes; the second fits nowhere and has a line that says so. */
static void bench_svg_has_a_chart_a_series(void **state) {
    tmpdir *dir = *state;
    static dfx_bench_image b = {.n_series = 3}; /* else zeroed */
    dfx_bench_text text = {.sink = &dir->log.sink};
    for (int i = 0; i < 3; i++) {
        b.series[i].rows[0] =
            (dfx_bench_image_row){.budget_bytes = 1u << 30, .fits = i != 1, .planned_seconds = 1};
        dfx_bench_sample_add(&b.series[i].rows[0].seconds, 1);
        b.series[i].n_rows = 1;
    }
    dfx_bench_image_svg(&b, &text);
    assert_int_equal(text.status, DFX_OK);
    assert_int_equal(count_of(text.text, "<g "), 3);
    assert_int_equal(count_of(text.text, "</g>"), 3);
    assert_int_equal(count_of(text.text, "<circle"), 2);
    assert_int_equal(count_of(text.text, "fits none of its budgets"), 1);
    assert_int_equal(count_of(text.text, "translate(0 840)"), 1);
    assert_int_equal(count_of(text.text, "height=\"1260\""), 1);
    dfx_bench_text_fini(&text);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_sample_knows_the_middle),
        cmocka_unit_test(bench_fit_finds_the_rates_of_a_modelled_machine),
        cmocka_unit_test(bench_fit_of_attention_is_its_operations),
        cmocka_unit_test(bench_fit_foretells_the_whole),
        cmocka_unit_test(bench_fit_share_is_the_mean_of_what_passes_lose),
        cmocka_unit_test(bench_flux_step_is_that_of_the_whole_model),
        TEST(bench_time_settles_before_it_times),
        TEST(bench_beside_copies_copies_meanwhile),
        TEST(bench_program_runs_again_and_again),
        TEST(bench_ops_counts_ops_of_one_shape),
        TEST(bench_compare_calls_changes_by_their_name),
        TEST(bench_compare_does_not_judge_noise),
        TEST(bench_compare_tells_memory_and_picture),
        TEST(bench_compare_of_budgets_that_come_and_go),
        TEST(bench_compare_of_several_series),
        TEST(bench_compare_refuses_what_is_not_the_same),
        TEST(bench_svg_has_a_mark_a_budget),
        TEST(bench_svg_has_a_chart_a_series),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
