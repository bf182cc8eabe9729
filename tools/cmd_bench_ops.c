/* dfx-edge bench ops: which op reaches what, and where the time of a step is. */
#include <stdio.h>
#include <string.h>

#include "models/machine.h"
#include "tools/bench_command.h"
#include "tools/bench_ops.h"
#include "tools/bench_print.h"
#include "tools/output.h"

enum { TEXT_LENGTH_MAX = 65536, RUN_MS = 50 };

typedef struct ops_settings {
    dfx_bench_device_choice choice;
    dfx_bench_ops_question question;
    uint32_t n_runs;
} ops_settings;

static dfx_status read_settings(dfx_args *args, dfx_console *console, ops_settings *s) {
    static const char *const quants[] = {"bf16", "int8", "int8wo", "fp8", NULL};
    static const char *const attentions[] = {"16", "8", NULL};
    int like = 0, quant = 1, attention = 0, width = 0, height = 0, text_length = 0;
    if (args->n_words != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench ops: wanted options only, found \"%s\"; a part of an op's "
                                "line is --only TEXT",
                                args->word);
    DFX_TRY(dfx_bench_read_device(args, console, &s->choice));
    if (!dfx_bench_read_runs(args, &s->n_runs) ||
        !dfx_args_choice(args, DFX_BENCH_LIKE, dfx_architecture_names(), &like) ||
        !dfx_args_choice(args, DFX_BENCH_QUANT, quants, &quant) ||
        !dfx_args_choice(args, DFX_BENCH_ATTENTION_BITS, attentions, &attention) ||
        !dfx_args_extent(args, DFX_BENCH_SIZE, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &width, &height) ||
        !dfx_args_int(args, DFX_BENCH_TEXT_LENGTH, 1, TEXT_LENGTH_MAX, &text_length))
        return dfx_bench_misused(args, console);
    dfx_bench_ops_question *q = &s->question;
    q->architecture = dfx_architecture_find(dfx_architecture_names()[like]);
    q->shape = dfx_architecture_defaults(q->architecture).shape;
    q->only = args->value[DFX_BENCH_ONLY];
    q->attention_codes = attention == 1;
    dfx_q_parse(quants[quant], &q->format);
    if (width)
        q->shape.width = width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (height)
        q->shape.height = height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (text_length)
        q->shape.n_text = text_length;
    return DFX_OK;
}

typedef enum ops_part { PRODUCTS, ATTENTION, CONVOLUTIONS, REST, N_PARTS } ops_part;

static ops_part part_of(dfx_op_kind kind) {
    switch (kind) {
    case DFX_OP_LINEAR:
        return PRODUCTS;
    case DFX_OP_ATTENTION:
    case DFX_OP_ATTENTION_CODES:
        return ATTENTION;
    case DFX_OP_CONV2D:
        return CONVOLUTIONS;
    default:
        return REST;
    }
}

/* Of all ops of a part, each as often as it is there. */
typedef struct part_sum {
    double seconds, floor_s, bytes;
} part_sum;

/* The rows of `program`, which begin at ops[first]; returns where the next program's do. */
static uint32_t sum_up(const dfx_bench_ops *ops, uint32_t first, part_sum sums[N_PARTS]) {
    const char *program = ops->ops[first].program;
    uint32_t i = first;
    for (; i < ops->n_ops && strcmp(ops->ops[i].program, program) == 0; i++) {
        const dfx_bench_op *o = &ops->ops[i];
        part_sum *sum = &sums[part_of(o->kind)];
        sum->seconds += o->n_same * o->seconds.median;
        sum->floor_s += o->n_same * o->floor_s;
        sum->bytes += o->n_same * o->bytes;
    }
    return i;
}

static void print_sum(const part_sum *sum, const char *program, const char *comma,
                      const char *name) {
    printf("%9.4f  %8.3f  %10.3f     %s%s%s\n", sum->seconds * 1e3, sum->bytes * 1e-9,
           sum->floor_s / sum->seconds, program, comma, name);
}

/* What all rows shown take in one pass over their program: the rest moves bytes, so its floor is that of its operands, each
 * read or written once. */
static void print_sums(const dfx_bench_ops *ops) {
    static const char *const names[] = {[PRODUCTS] = "products",
                                        [ATTENTION] = "attention",
                                        [CONVOLUTIONS] = "convolutions",
                                        [REST] = "the rest"};
    printf("\n       ms        GB  floor/time     all of these rows, as often as they are there\n");
    for (uint32_t i = 0; i < ops->n_ops;) {
        const char *program = ops->ops[i].program;
        part_sum sums[N_PARTS] = {0}, all = {0};
        i = sum_up(ops, i, sums);
        for (int p = 0; p < N_PARTS; p++) {
            if (sums[p].seconds > 0)
                print_sum(&sums[p], program, ", ", names[p]);
            all.seconds += sums[p].seconds;
            all.floor_s += sums[p].floor_s;
            all.bytes += sums[p].bytes;
        }
        print_sum(&all, program, "", "");
    }
}

static void print_text(const dfx_bench_ops_question *q, const dfx_device_facts *facts,
                       const dfx_bench_ops *ops) {
    dfx_bench_print_device(facts);
    printf("%s, %s, %lldx%lld, %lld text tokens; floor: profile %s", q->architecture->name,
           dfx_q_name(q->format), (long long)q->shape.width, (long long)q->shape.height,
           (long long)q->shape.n_text, q->profile->name);
    dfx_bench_print_link(q->profile->unified ? 0 : q->profile->link_bytes_per_s);
    puts("\n");
    double unit = facts->sm ? 1e-12 : 1e-9; /* of a GPU and of a processor */
    printf("       ms    %sflop/s      GB/s  floor/time    x\n", facts->sm ? "T" : "G");
    for (uint32_t i = 0; i < ops->n_ops; i++) {
        const dfx_bench_op *o = &ops->ops[i];
        double s = o->seconds.median;
        printf("%9.4f  %9.3f  %8.1f  %10.3f  %3u  %s %s%s%s\n", s * 1e3, o->flops / s * unit,
               o->bytes / s * 1e-9, o->floor_s / s, o->n_same, o->program, o->text,
               o->kernels[0] ? ": " : "", o->kernels);
    }
    print_sums(ops);
}

static json_t *op_json(const dfx_bench_op *o) {
    double s = o->seconds.median;
    return json_pack("{s:s, s:s, s:s, s:i, s:f, s:o, s:f, s:f, s:f, s:f}", "program", o->program,
                     "op", o->text, "kernel", o->kernels, "same", (int)o->n_same, "median_seconds",
                     s, "values", dfx_bench_sample_json(&o->seconds), "flops_per_s", o->flops / s,
                     "bytes_per_s", o->bytes / s, "floor_seconds", o->floor_s, "floor_share",
                     o->floor_s / s);
}

static void print_json(const dfx_bench_ops_question *q, const dfx_device_facts *facts,
                       const dfx_bench_ops *ops) {
    json_t *rows = json_array();
    for (uint32_t i = 0; rows && i < ops->n_ops; i++)
        if (json_array_append_new(rows, op_json(&ops->ops[i])) != 0) {
            json_decref(rows);
            rows = NULL;
        }
    dfx_bench_print_json(json_pack(
        "{s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "device", dfx_bench_device_json(facts),
        "profile", q->profile->name, "like", q->architecture->name, "quant", dfx_q_name(q->format),
        "width", (json_int_t)q->shape.width, "height", (json_int_t)q->shape.height, "text_length",
        (json_int_t)q->shape.n_text, "ops", rows));
}

static dfx_status run(const dfx_args *args, ops_settings *s, dfx_backend *be,
                      dfx_device_facts *facts, dfx_console *console) {
    dfx_profile profile;
    dfx_bench_ops ops = {0};
    dfx_bench_timer timer = {.be = be,
                             .cancelled = dfx_bench_cancelled,
                             .n_runs = s->n_runs,
                             .run_seconds = RUN_MS * 1e-3};
    DFX_TRY(dfx_machine_profile(be, &console->sink, &profile));
    s->question.profile = &profile;
    dfx_status status = dfx_bench_ops_run(&timer, &s->question, &console->sink, &ops);
    dfx_bench_clocks(be, facts);
    if (status == DFX_OK && ops.n_ops == 0)
        status = dfx_console_fail(console, DFX_E_USAGE,
                                  "--only %s: no op's line has that in it; without it all lines "
                                  "are shown",
                                  s->question.only);
    if (status == DFX_OK) {
        if (dfx_args_given(args, DFX_BENCH_JSON))
            print_json(&s->question, facts, &ops);
        else
            print_text(&s->question, facts, &ops);
        status = dfx_output_flush(console);
    }
    dfx_bench_ops_close(&ops);
    return dfx_bench_told(status, console);
}

dfx_status dfx_bench_ops_command(dfx_args *args, dfx_console *console) {
    ops_settings s = {0};
    dfx_device_facts facts;
    dfx_backend *be;
    DFX_TRY(read_settings(args, console, &s));
    DFX_TRY(dfx_bench_open_device(&s.choice, console, &be, &facts));
    dfx_status status = run(args, &s, be, &facts, console);
    be->vt->close(be);
    return status;
}
