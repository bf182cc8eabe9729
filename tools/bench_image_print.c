#include "tools/bench_image_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench_print.h"
#include "tools/psnr.h"
#include "tools/report.h"

static bool same_pictures(const dfx_bench_image_series *s) {
    const dfx_bench_image_row *first = NULL;
    for (int i = 0; i < s->n_rows; i++) {
        if (!s->rows[i].fits)
            continue;
        if (first && first->picture != s->rows[i].picture)
            return false;
        first = &s->rows[i];
    }
    return true;
}

static void print_row(const dfx_bench_image_row *r) {
    char budget[DFX_REPORT_TEXT_BYTES], peak[DFX_REPORT_TEXT_BYTES], read[DFX_REPORT_TEXT_BYTES],
        copied[DFX_REPORT_TEXT_BYTES];
    dfx_report_bytes(r->budget_bytes, budget);
    if (!r->fits) {
        printf("%10s  does not fit\n", budget);
        return;
    }
    printf("%10s %10s %9.3f %9.3f %9.3f %9.3f %9.4f %9.4f %6.3f %8.3f %10s %10s\n", budget,
           dfx_report_bytes(r->peak_device_bytes, peak), r->cold_seconds, r->seconds.median,
           r->seconds.least, r->seconds.most, r->step_seconds.median, r->planned_step_seconds,
           r->planned_step_seconds / r->step_seconds.median, r->wait_seconds,
           dfx_report_bytes(r->read_bytes, read), dfx_report_bytes(r->copied_bytes, copied));
}

static void print_reuse(const dfx_bench_image_series *s, double reuse) {
    char psnr[DFX_PSNR_TEXT_BYTES];
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].fits) { /* the same at every budget */
            printf("\nreuse %g: %d of %d steps reused; against whole steps: %s\n", reuse,
                   s->rows[i].n_reused, s->steps, dfx_psnr_text(s->rows[i].psnr, psnr));
            return;
        }
}

static void print_series(const dfx_bench_image *b, const dfx_bench_image_series *s) {
    printf("%s, %s, %dx%d, %d step%s, %d text tokens%s; profile %s", s->model, s->quant, s->width,
           s->height, s->steps, s->steps == 1 ? "" : "s", s->text_length,
           b->attention_bits == 8 ? ", attention in 8 bits" : "", s->profile);
    dfx_bench_print_link(s->link_bytes_per_s);
    puts("\n");
    puts("                           seconds of a picture              of a step\n"
         "    budget       peak      cold    median     least      most  measured   planned  ratio "
         "    wait       read     copied");
    for (int i = 0; i < s->n_rows; i++)
        print_row(&s->rows[i]);
    if (b->reuse > 0)
        print_reuse(s, b->reuse);
    printf("\n%s\n", same_pictures(s) ? "the picture is the same at every budget"
                                      : "THE PICTURE IS NOT THE SAME AT EVERY BUDGET");
}

void dfx_bench_image_table(const dfx_bench_image *b) {
    dfx_bench_print_device(&b->facts);
    for (int i = 0; i < b->n_series; i++) {
        if (i)
            puts("");
        print_series(b, &b->series[i]);
    }
}

/* ---- JSON */

static json_t *row_json(const dfx_bench_image_row *r) {
    char picture[24];
    snprintf(picture, sizeof(picture), "%016" PRIx64, r->picture);
    if (!r->fits)
        return json_pack("{s:I, s:b}", "budget_bytes", (json_int_t)r->budget_bytes, "fits", 0);
    return json_pack(
        "{s:I, s:b, s:f, s:o, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:s}",
        "budget_bytes", (json_int_t)r->budget_bytes, "fits", 1, "cold_seconds", r->cold_seconds,
        "seconds", dfx_bench_sample_json(&r->seconds), "median_seconds", r->seconds.median,
        "step_seconds", dfx_bench_sample_json(&r->step_seconds), "median_step_seconds",
        r->step_seconds.median, "planned_step_seconds", r->planned_step_seconds, "planned_seconds",
        r->planned_seconds, "floor_seconds", r->floor_seconds, "wait_seconds", r->wait_seconds,
        "peak_device_bytes", (json_int_t)r->peak_device_bytes, "read_bytes",
        (json_int_t)r->read_bytes, "copied_bytes", (json_int_t)r->copied_bytes, "picture", picture);
}

/* JSON knows no infinity: the same pixels are null. */
static json_t *reuse_json(json_t *row, const dfx_bench_image_row *r) {
    json_t *psnr = isinf(r->psnr) ? json_null() : json_real(r->psnr);
    if (json_object_set_new(row, "reused_steps", json_integer(r->n_reused)) == 0 &&
        json_object_set_new(row, "reuse_psnr_db", psnr) == 0)
        return row;
    json_decref(row);
    return NULL;
}

static json_t *series_json(const dfx_bench_image *b, const dfx_bench_image_series *s) {
    json_t *rows = json_array();
    for (int i = 0; rows && i < s->n_rows; i++) {
        json_t *row = row_json(&s->rows[i]);
        if (row && b->reuse > 0 && s->rows[i].fits)
            row = reuse_json(row, &s->rows[i]);
        if (json_array_append_new(rows, row) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return json_pack("{s:s, s:s, s:s, s:f, s:i, s:i, s:i, s:i, s:i, s:o}", "model", s->model,
                     "quant", s->quant, "profile", s->profile, "link_bytes_per_s",
                     s->link_bytes_per_s, "width", s->width, "height", s->height, "steps", s->steps,
                     "text_length", s->text_length, "attention_bits", b->attention_bits, "rows",
                     rows);
}

json_t *dfx_bench_image_json(const dfx_bench_image *b) {
    json_t *series = json_array();
    for (int i = 0; series && i < b->n_series; i++)
        if (json_array_append_new(series, series_json(b, &b->series[i])) != 0) {
            json_decref(series);
            return NULL;
        }
    return json_pack("{s:o, s:o}", "device", dfx_bench_device_json(&b->facts), "series", series);
}

/* ---- CSV */

/* Names come from files. */
static void add_quoted(dfx_bench_text *t, const char *name) {
    dfx_bench_text_add(t, "\"");
    for (; *name; name++)
        dfx_bench_text_add(t, *name == '"' ? "\"\"" : "%c", *name);
    dfx_bench_text_add(t, "\"");
}

static void add_row(dfx_bench_text *t, const dfx_bench_image_row *r) {
    if (!r->fits) {
        dfx_bench_text_add(t, "%" PRIu64 ",no,,,,,,,,,,,,,\n", r->budget_bytes);
        return;
    }
    dfx_bench_text_add(t,
                       "%" PRIu64 ",yes,%" PRIu64 ",%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,"
                       "%.6f,%" PRIu64 ",%" PRIu64 ",%016" PRIx64 "\n",
                       r->budget_bytes, r->peak_device_bytes, r->cold_seconds, r->seconds.median,
                       r->seconds.least, r->seconds.most, r->step_seconds.median,
                       r->planned_step_seconds, r->planned_seconds, r->floor_seconds,
                       r->wait_seconds, r->read_bytes, r->copied_bytes, r->picture);
}

void dfx_bench_image_csv(const dfx_bench_image *b, dfx_bench_text *t) {
    dfx_bench_text_add(t, "model,quant,width,height,steps,text_length,attention_bits,"
                          "budget_bytes,fits,peak_device_bytes,cold_seconds,median_seconds,"
                          "least_seconds,most_seconds,step_seconds,planned_step_seconds,"
                          "planned_seconds,floor_seconds,wait_seconds,read_bytes,copied_bytes,"
                          "picture\n");
    for (int i = 0; i < b->n_series; i++)
        for (int k = 0; k < b->series[i].n_rows; k++) {
            const dfx_bench_image_series *s = &b->series[i];
            add_quoted(t, s->model);
            dfx_bench_text_add(t, ",%s,%d,%d,%d,%d,%d,", s->quant, s->width, s->height, s->steps,
                               s->text_length, b->attention_bits);
            add_row(t, &s->rows[k]);
        }
}
