#include "tools/bench_print.h"

#include <stdio.h>
#include <string.h>

#include "models/dfx.h"
#include "tools/report.h"

static void dump(json_t *json) {
    if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
        puts("");
    json_decref(json);
}

/* ---- io ---- */

static void print_io_rate(const char *name, const dfx_bench_sample *s) {
    printf("%-14s  %6.3f GB/s  (median of %u, %.3f to %.3f)\n", name, s->median * 1e-9, s->n,
           s->least * 1e-9, s->most * 1e-9);
}

void dfx_bench_print_io(const char *path, const dfx_bench_io *r) {
    char bytes[DFX_REPORT_TEXT_BYTES], block[DFX_REPORT_TEXT_BYTES];
    printf("%s: %u pages, %s; device %s; %u requests of %s in flight\n", path, r->n_pages,
           dfx_report_bytes(r->bytes, bytes), r->device[0] ? r->device : "unknown", r->queue_depth,
           dfx_report_bytes(r->block_bytes, block));
    print_io_rate("bare io_uring", &r->bare);
    print_io_rate("page feed", &r->feed);
    printf("%-14s  %6.3f  through %s\n", "feed / bare", r->feed.median / r->bare.median, r->mode);
}

void dfx_bench_print_io_json(const char *path, const dfx_bench_io *r) {
    dump(json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:f, s:f, s:f}", "path", path, "pages",
        (int)r->n_pages, "bytes", (json_int_t)r->bytes, "device", r->device, "mode", r->mode,
        "queue_depth", (int)r->queue_depth, "block_bytes", (int)r->block_bytes, "runs",
        (int)r->feed.n, "bare_bytes_per_s", dfx_bench_sample_json(&r->bare), "feed_bytes_per_s",
        dfx_bench_sample_json(&r->feed), "bare_median_bytes_per_s", r->bare.median,
        "feed_median_bytes_per_s", r->feed.median, "ratio", r->feed.median / r->bare.median));
}

/* ---- machine ---- */

typedef struct row {
    const char *name; /* of the profile's field */
    const char *label;
    const dfx_bench_sample *sample;
    const char *note;
    const char *unit;
    double scale; /* of the value, to the unit */
} row;

enum { N_ROWS = 10 };

static void list_rows(const dfx_bench_machine *m, const char *disk_note, row rows[N_ROWS]) {
    const dfx_bench_device *d = &m->device;
    const row list[N_ROWS] = {
        {"disk_bytes_per_s", "disk", &m->disk.rate, disk_note, "GB/s", 1e-9},
        {"disk_latency_s", "disk latency", &m->disk.latency, "4 KiB, alone", "us", 1e6},
        {"link_bytes_per_s", "link", &d->link.sample, d->link.note, "GB/s", 1e-9},
        {"link_latency_s", "link latency", &d->link_latency.sample, d->link_latency.note, "us",
         1e6},
        {"memory_bytes_per_s", "memory", &d->memory.sample, d->memory.note, "GB/s", 1e-9},
        {"launch_s", "start of an op", &d->launch.sample, d->launch.note, "us", 1e6},
        {"bf16_flops", "products, bf16", &d->bf16_product.sample, d->bf16_product.note, "Gflop/s",
         1e-9},
        {"int8_flops", "products, int8", &d->int8_product.sample, d->int8_product.note, "Gflop/s",
         1e-9},
        {"fp8_flops", "products, fp8", &d->fp8_product.sample, d->fp8_product.note, "Gflop/s",
         1e-9},
        {"attention_flops", "attention", &d->attention.sample, d->attention.note, "Gflop/s", 1e-9},
    };
    memcpy(rows, list, sizeof(list));
}

static void note_disk(const dfx_bench_disk *disk, char note[DFX_BENCH_NOTE_BYTES]) {
    char bytes[DFX_REPORT_TEXT_BYTES];
    snprintf(note, DFX_BENCH_NOTE_BYTES, "%s, %u requests in flight, a file of %s", disk->mode,
             disk->queue_depth, dfx_report_bytes(disk->file_bytes, bytes));
}

void dfx_bench_print_machine(const dfx_bench_machine *m, const dfx_bench_step *step,
                             const char *prefix) {
    char disk_note[DFX_BENCH_NOTE_BYTES];
    row rows[N_ROWS];
    note_disk(&m->disk, disk_note);
    list_rows(m, disk_note, rows);
    printf("%s%s: medians of %u\n", prefix, m->profile.name, rows[0].sample->n);
    for (int i = 0; i < N_ROWS; i++) {
        const dfx_bench_sample *s = rows[i].sample;
        char spread[64];
        snprintf(spread, sizeof(spread), "%.4g to %.4g", s->least * rows[i].scale,
                 s->most * rows[i].scale);
        printf("%s%-16s %9.4g %-8s %-18s  %s\n", prefix, rows[i].label, s->median * rows[i].scale,
               rows[i].unit, spread, rows[i].note);
    }
    if (step)
        printf("%s%s, %dx%d: the plan says %.3g s a step, measured %.3g s: ratio %.2f\n", prefix,
               step->model, step->width, step->height, step->planned_seconds, step->measured.median,
               step->planned_seconds / step->measured.median);
}

static json_t *rates_json(const dfx_bench_machine *m) {
    char disk_note[DFX_BENCH_NOTE_BYTES];
    row rows[N_ROWS];
    json_t *rates = json_object();
    note_disk(&m->disk, disk_note);
    list_rows(m, disk_note, rows);
    for (int i = 0; rates && i < N_ROWS; i++)
        if (json_object_set_new(rates, rows[i].name,
                                json_pack("{s:f, s:o, s:s}", "median", rows[i].sample->median,
                                          "values", dfx_bench_sample_json(rows[i].sample), "with",
                                          rows[i].note)) != 0) {
            json_decref(rates);
            return NULL;
        }
    return rates;
}

static json_t *step_json(const dfx_bench_step *step) {
    if (!step)
        return json_null();
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:o, s:f}", "model", step->model, "width",
                     step->width, "height", step->height, "planned_step_seconds",
                     step->planned_seconds, "measured_step_seconds", step->measured.median,
                     "values", dfx_bench_sample_json(&step->measured), "ratio",
                     step->planned_seconds / step->measured.median);
}

void dfx_bench_print_machine_json(const dfx_bench_machine *m, const dfx_bench_step *step) {
    const dfx_profile *p = &m->profile;
    dump(json_pack("{s:s, s:i, s:o, s:i, s:I, s:I, s:o}", "name", p->name, "runs",
                   (int)m->disk.rate.n, "rates", rates_json(m), "disk_queue_depth",
                   (int)p->disk_queue_depth, "device_bytes", (json_int_t)p->device_bytes,
                   "host_bytes", (json_int_t)p->host_bytes, "check", step_json(step)));
}

dfx_status dfx_bench_write_profile(const dfx_profile *profile, const dfx_sink *sink,
                                   dfx_file_writer *writer) {
    char head[128], *text = NULL;
    snprintf(head, sizeof(head), "# This machine's processor, measured by dfx-edge %s.\n",
             dfx_version());
    dfx_status status = dfx_profile_print(profile, sink, &text);
    if (status == DFX_OK)
        status = dfx_file_write(writer, sink, head, strlen(head));
    if (status == DFX_OK)
        status = dfx_file_write(writer, sink, text, strlen(text));
    dfx_free(text);
    if (status == DFX_OK)
        return dfx_file_write_commit(writer, sink);
    dfx_file_write_abort(writer);
    return status;
}
