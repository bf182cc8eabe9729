/* See bench_compare.h. Series are compared that are of the same model, format, size and number of steps. A budget is faster when
 * each median lies outside of the other's runs, and they are a hundredth apart: what overlaps more is called the same. */
#include "tools/bench_compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"

/* Below this nobody cares, however steady the clock. */
static const double LEAST_CHANGE = 0.01;

typedef enum verdict { SAME, FASTER, SLOWER, N_VERDICTS } verdict;

enum { LABEL_BYTES = 192 };

typedef struct tally {
    int n[N_VERDICTS];
    double worst[N_VERDICTS]; /* the greatest change */
    int64_t worst_budget[N_VERDICTS];
    char worst_label[N_VERDICTS][LABEL_BYTES]; /* of its series; "" where there is one alone */
    int n_other_pictures;
} tally;

typedef struct timing {
    bool fits;
    double least, median, most;
    int64_t peak_bytes;
    const char *picture; /* borrowed */
} timing;

/* ---- reading */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int64_t whole_of(const json_t *object, const char *key) {
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static dfx_status read_timing(const json_t *row, const char *name, const dfx_sink *sink,
                              timing *out) {
    json_t *values;
    *out = (timing){.least = INFINITY};
    DFX_TRY(dfx_json_bool(row, name, "fits", sink, &out->fits));
    if (!out->fits)
        return DFX_OK;
    DFX_TRY(dfx_json_real(row, name, "median_seconds", sink, &out->median));
    DFX_TRY(dfx_json_array(row, name, "seconds", sink, &values));
    for (size_t i = 0; i < json_array_size(values); i++) {
        double seconds = json_number_value(json_array_get(values, i));
        out->least = fmin(out->least, seconds);
        out->most = fmax(out->most, seconds);
    }
    if (!(out->least > 0 && isfinite(out->most)))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: seconds: wanted numbers above 0", name);
    out->peak_bytes = whole_of(row, "peak_device_bytes");
    out->picture = text_of(row, "picture");
    return DFX_OK;
}

static const json_t *find_row(const json_t *rows, int64_t budget) {
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (whole_of(json_array_get(rows, i), "budget_bytes") == budget)
            return json_array_get(rows, i);
    return NULL;
}

/* ---- what was measured, and with what */

static dfx_status same_text(const char *what, const char *then, const char *now, const char *name,
                            const dfx_sink *sink) {
    if (strcmp(then, now) == 0)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_USAGE,
                    "%s: cannot be compared: %s there is \"%s\", here \"%s\"; measure the same "
                    "thing",
                    name, what, then, now);
}

/* DFX_OK where two series are of the same thing, else DFX_E_USAGE, and in what they differ is said. */
static dfx_status same_subject(const json_t *then, const char *name, const json_t *now,
                               const dfx_sink *sink) {
    static const char *const texts[] = {"model", "quant"}, *const numbers[] = {
                                                               "width", "height", "steps",
                                                               "text_length", "attention_bits"};
    for (size_t i = 0; i < DFX_COUNT(texts); i++)
        DFX_TRY(same_text(texts[i], text_of(then, texts[i]), text_of(now, texts[i]), name, sink));
    for (size_t i = 0; i < DFX_COUNT(numbers); i++)
        if (whole_of(then, numbers[i]) != whole_of(now, numbers[i]))
            return dfx_fail(sink, DFX_E_USAGE,
                            "%s: cannot be compared: %s there is %" PRId64 ", here %" PRId64
                            "; measure the same thing",
                            name, numbers[i], whole_of(then, numbers[i]),
                            whole_of(now, numbers[i]));
    return DFX_OK;
}

static const json_t *find_series(const json_t *all, const json_t *like) {
    for (size_t i = 0; i < json_array_size(all); i++)
        if (same_subject(json_array_get(all, i), "", like, NULL) == DFX_OK)
            return json_array_get(all, i);
    return NULL;
}

static const char *label_of(const json_t *series, char label[LABEL_BYTES]) {
    snprintf(label, LABEL_BYTES, "%s, %s, %" PRId64 "x%" PRId64, text_of(series, "model"),
             text_of(series, "quant"), whole_of(series, "width"), whole_of(series, "height"));
    return label;
}

/* ---- judging */

static verdict judge(const timing *then, const timing *now, double *change) {
    *change = now->median / then->median - 1;
    if (now->median > then->most && then->median<now->least && * change> LEAST_CHANGE)
        return SLOWER;
    bool faster = now->median < then->least && then->median > now->most && *change < -LEAST_CHANGE;
    return faster ? FASTER : SAME;
}

static void compare_row(const timing *then, const timing *now, int64_t budget, const char *label,
                        tally *t, dfx_bench_text *out) {
    static const char *const words[] = {"the same within the spread", "faster", "slower"};
    double change;
    verdict v = judge(then, now, &change);
    t->n[v]++;
    if (fabs(change) > fabs(t->worst[v])) {
        t->worst[v] = change;
        t->worst_budget[v] = budget;
        snprintf(t->worst_label[v], LABEL_BYTES, "%s", label);
    }
    dfx_bench_text_add(out, "%8.2f GiB  %9.3f s  was %9.3f s  %+6.1f %%  %s",
                       (double)budget / (1 << 30), now->median, then->median, 100 * change,
                       words[v]);
    if (now->peak_bytes != then->peak_bytes)
        dfx_bench_text_add(out, "; peak %+.1f MiB",
                           (double)(now->peak_bytes - then->peak_bytes) / (1 << 20));
    if (strcmp(now->picture, then->picture) != 0) {
        dfx_bench_text_add(out, "; another picture");
        t->n_other_pictures++;
    }
    dfx_bench_text_add(out, "\n");
}

static void conclude(const tally *t, dfx_bench_text *out) {
    int n = t->n[SAME] + t->n[FASTER] + t->n[SLOWER];
    dfx_bench_text_add(out, "verdict: ");
    if (n == 0)
        dfx_bench_text_add(out, "no budget in common");
    else if (!t->n[SLOWER] && !t->n[FASTER])
        dfx_bench_text_add(out, "no change at %d budget%s", n, n == 1 ? "" : "s");
    for (verdict v = SLOWER; v >= FASTER; v--)
        if (t->n[v])
            dfx_bench_text_add(out, "%s%s at %d of %d budget%s (%.1f %% at %.2f GiB%s%s)",
                               v == FASTER && t->n[SLOWER] ? ", " : "",
                               v == SLOWER ? "slower" : "faster", t->n[v], n, n == 1 ? "" : "s",
                               100 * fabs(t->worst[v]), (double)t->worst_budget[v] / (1 << 30),
                               *t->worst_label[v] ? ", " : "", t->worst_label[v]);
    if (t->n_other_pictures)
        dfx_bench_text_add(out, "; the picture is another one at %d", t->n_other_pictures);
    dfx_bench_text_add(out, "\n");
}

/* What two runs are compared by. */
typedef struct comparison {
    const char *name; /* of the earlier one */
    const dfx_sink *sink;
    dfx_bench_text *out;
    tally t;
} comparison;

static dfx_status compare_series(comparison *c, const json_t *then, const json_t *now,
                                 const char *label) {
    json_t *then_rows, *now_rows;
    DFX_TRY(dfx_json_array(then, c->name, "rows", c->sink, &then_rows));
    DFX_TRY(dfx_json_array(now, "this run", "rows", c->sink, &now_rows));
    for (size_t i = 0; i < json_array_size(now_rows); i++) {
        const json_t *row = json_array_get(now_rows, i);
        int64_t budget = whole_of(row, "budget_bytes");
        const json_t *before = find_row(then_rows, budget);
        timing was, is;
        if (!before) {
            dfx_bench_text_add(c->out, "%8.2f GiB  not there before\n", (double)budget / (1 << 30));
            continue;
        }
        DFX_TRY(read_timing(before, c->name, c->sink, &was));
        DFX_TRY(read_timing(row, "this run", c->sink, &is));
        if (was.fits && is.fits)
            compare_row(&was, &is, budget, label, &c->t, c->out);
        else if (was.fits != is.fits)
            dfx_bench_text_add(c->out, "%8.2f GiB  %s\n", (double)budget / (1 << 30),
                               is.fits ? "fits now, and did not" : "did fit, and does not now");
    }
    return DFX_OK;
}

dfx_status dfx_bench_compare(const json_t *then, const char *name, const json_t *now,
                             const dfx_sink *sink, dfx_bench_text *out) {
    comparison c = {.name = name, .sink = sink, .out = out};
    json_t *then_all, *now_all;
    size_t n_same = 0, n;
    DFX_TRY(dfx_json_array(then, name, "series", sink, &then_all));
    DFX_TRY(dfx_json_array(now, "this run", "series", sink, &now_all));
    DFX_TRY(same_text("the device", text_of(json_object_get(then, "device"), "name"),
                      text_of(json_object_get(now, "device"), "name"), name, sink));
    n = json_array_size(now_all);
    for (size_t i = 0; i < n; i++)
        n_same += find_series(then_all, json_array_get(now_all, i)) != NULL;
    if (n_same == 0) /* what differs in the first of each stands for all */
        DFX_TRY(same_subject(json_array_get(then_all, 0), name, json_array_get(now_all, 0), sink));
    for (size_t i = 0; i < n; i++) {
        const json_t *series = json_array_get(now_all, i), *was = find_series(then_all, series);
        char label[LABEL_BYTES] = "";
        if (n > 1)
            dfx_bench_text_add(out, "%s%s\n", label_of(series, label),
                               was ? "" : ": not there before");
        if (was)
            DFX_TRY(compare_series(&c, was, series, label));
    }
    conclude(&c.t, out);
    return DFX_OK;
}
