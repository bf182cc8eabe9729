#include "tools/bench_print.h"

#include <stdio.h>
#include <string.h>

#include "models/dfx.h"
#include "tools/report.h"

void dfx_bench_print_json(json_t *json) {
    if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
        puts("");
    json_decref(json);
}

/* ---- device ---- */

void dfx_bench_print_device(const dfx_device_facts *f) {
    printf("%s%s%s", f->name, f->driver[0] ? ", driver " : "", f->driver);
    if (f->core_mhz)
        printf(", %d MHz after the work, memory %d MHz", f->core_mhz, f->memory_mhz);
    printf("; dfx-edge %s\n", dfx_version());
}

void dfx_bench_print_link(double bytes_per_s) {
    if (bytes_per_s > 0)
        printf(", link %.1f GB/s", bytes_per_s * 1e-9);
}

json_t *dfx_bench_device_json(const dfx_device_facts *f) {
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:s}", "name", f->name, "driver", f->driver,
                     "compute_capability", f->sm, "core_mhz", f->core_mhz, "memory_mhz",
                     f->memory_mhz, "bytes", (json_int_t)f->device_bytes, "dfx_edge",
                     dfx_version());
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
    dfx_bench_print_json(json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:f, s:f, s:f}", "path", path, "pages",
        (int)r->n_pages, "bytes", (json_int_t)r->bytes, "device", r->device, "mode", r->mode,
        "queue_depth", (int)r->queue_depth, "block_bytes", (int)r->block_bytes, "runs",
        (int)r->feed.n, "bare_bytes_per_s", dfx_bench_sample_json(&r->bare), "feed_bytes_per_s",
        dfx_bench_sample_json(&r->feed), "bare_median_bytes_per_s", r->bare.median,
        "feed_median_bytes_per_s", r->feed.median, "ratio", r->feed.median / r->bare.median));
}

/* ---- machine ---- */

/* What of a profile was measured, or made from what was. */
typedef struct row {
    const char *name; /* of the profile's field */
    const char *label;
    double value;
    const char *unit;
    double scale;                   /* of the value, to the unit */
    const dfx_bench_sample *sample; /* NULL: made from the blocks, as `note` says */
    const char *note;
} row;

enum { N_ROWS = 11 };

static const char FITTED[] = "so that a profile gives the blocks' times";

static void list_rows(const dfx_bench_machine *m, row rows[N_ROWS]) {
    const dfx_bench_device *d = &m->device;
    const dfx_profile *p = &m->profile;
    const row list[N_ROWS] = {
        {"disk_bytes_per_s", "disk", p->disk_bytes_per_s, "GB/s", 1e-9, &m->disk.rate, NULL},
        {"disk_latency_s", "disk latency", p->disk_latency_s, "us", 1e6, &m->disk.latency, NULL},
        {"link_bytes_per_s", "link", p->link_bytes_per_s, "GB/s", 1e-9, &d->link, NULL},
        {"link_latency_s", "link latency", p->link_latency_s, "us", 1e6, &d->link_latency, NULL},
        {"link_slows_compute", "copies slow", p->link_slows_compute, "%", 1e2, NULL,
         "what is computed meanwhile takes so much longer"},
        {"launch_s", "start of an op", p->launch_s, "us", 1e6, &d->launch, NULL},
        {"memory_bytes_per_s", "memory", p->memory_bytes_per_s, "GB/s", 1e-9, NULL, FITTED},
        {"attention_flops", "attention", p->attention_flops, "Gflop/s", 1e-9, NULL, FITTED},
        {"bf16_flops", "products, bf16", p->bf16_flops, "Gflop/s", 1e-9, NULL, FITTED},
        {"int8_flops", "products, int8", p->int8_flops, "Gflop/s", 1e-9, NULL, FITTED},
        {"fp8_flops", "products, fp8", p->fp8_flops, "Gflop/s", 1e-9, NULL, FITTED},
    };
    memcpy(rows, list, sizeof(list));
}

static void print_row(const row *r) {
    printf("%-16s %9.4g %-8s ", r->label, r->value * r->scale, r->unit);
    if (r->sample)
        printf("%.4g to %.4g\n", r->sample->least * r->scale, r->sample->most * r->scale);
    else
        puts(r->note);
}

static void print_blocks(const dfx_bench_blocks *b, const dfx_profile *profile) {
    double foretold = dfx_bench_foretold(&b->program, profile, DFX_BENCH_PARTS);
    printf("%-4s  %4lld + %-4lld  %5lld  %10.3f  %10.3f to %-10.3f  %10.3f  %5.3f\n",
           dfx_q_name(b->format), (long long)b->size.n_text, (long long)b->size.n_image,
           (long long)b->size.n_heads * 128, b->whole.median * 1e3, b->whole.least * 1e3,
           b->whole.most * 1e3, foretold * 1e3, foretold / b->whole.median);
}

/* Of the blocks, and what the copies lose to them. */
static void print_beside(const dfx_bench_blocks *b, double link_bytes_per_s) {
    if (b->beside.n > 0)
        printf("%-4s  beside copies %10.3f  %10.3f to %-10.3f  %+6.2f %%, the copies %.4g GB/s, "
               "%+.2f %%\n",
               dfx_q_name(b->format), b->beside.median * 1e3, b->beside.least * 1e3,
               b->beside.most * 1e3, 100 * (b->beside.median / b->whole.median - 1),
               b->copy_bytes_per_s * 1e-9, 100 * (b->copy_bytes_per_s / link_bytes_per_s - 1));
}

void dfx_bench_print_machine(const dfx_bench_machine *m, const dfx_bench_step *step) {
    char bytes[DFX_REPORT_TEXT_BYTES];
    row rows[N_ROWS];
    dfx_bench_print_device(&m->facts);
    printf("disk: %s, %u requests in flight, a file of %s; medians of %u\n\n", m->disk.mode,
           m->disk.queue_depth, dfx_report_bytes(m->disk.file_bytes, bytes), m->disk.rate.n);
    list_rows(m, rows);
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].value > 0 || rows[i].note != FITTED)
            print_row(&rows[i]);
    puts("\none double and two single blocks, and what the profile says of them, in ms\n"
         "       text + image  width    measured      least to most        profile  ratio");
    for (int i = 0; i < m->device.n_formats; i++) {
        print_blocks(&m->device.large[i], &m->profile);
        print_blocks(&m->device.small[i], &m->profile);
    }
    for (int i = 0; i < m->device.n_formats; i++)
        print_beside(&m->device.large[i], m->device.link.median);
    printf("\na step of FLUX.1-dev at 1024x1024 when all stays, says the profile:");
    for (int i = 0; i < m->device.n_formats; i++)
        printf("%s %s %.4g s", i ? "," : "", dfx_q_name(dfx_bench_formats[i]), m->flux_step_s[i]);
    puts("");
    if (step)
        printf("%s, %dx%d: the profile says %.3g s a step, measured %.3g s: ratio %.2f\n",
               step->model, step->width, step->height, step->planned_seconds, step->measured.median,
               step->planned_seconds / step->measured.median);
}

static json_t *rates_json(const dfx_bench_machine *m) {
    row rows[N_ROWS];
    json_t *rates = json_object();
    list_rows(m, rows);
    for (int i = 0; rates && i < N_ROWS; i++) {
        json_t *values = rows[i].sample ? dfx_bench_sample_json(rows[i].sample) : json_null();
        if (json_object_set_new(
                rates, rows[i].name,
                json_pack("{s:f, s:o}", "value", rows[i].value, "values", values)) != 0) {
            json_decref(rates);
            return NULL;
        }
    }
    return rates;
}

/* null: not measured beside copies */
static json_t *beside_json(const dfx_bench_blocks *b) {
    if (b->beside.n == 0)
        return json_null();
    return json_pack("{s:f, s:o, s:f, s:f}", "median_seconds", b->beside.median, "values",
                     dfx_bench_sample_json(&b->beside), "slower",
                     b->beside.median / b->whole.median - 1, "copy_bytes_per_s",
                     b->copy_bytes_per_s);
}

static json_t *blocks_json(const dfx_bench_blocks *b, const dfx_profile *profile) {
    double foretold = dfx_bench_foretold(&b->program, profile, DFX_BENCH_PARTS);
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:o}", "format",
                     dfx_q_name(b->format), "width", (json_int_t)b->size.n_heads * 128,
                     "text_tokens", (json_int_t)b->size.n_text, "image_tokens",
                     (json_int_t)b->size.n_image, "median_seconds", b->whole.median, "values",
                     dfx_bench_sample_json(&b->whole), "profile_seconds", foretold, "ratio",
                     foretold / b->whole.median, "beside_copies", beside_json(b));
}

static json_t *flux_steps_json(const dfx_bench_machine *m) {
    json_t *all = json_object();
    for (int i = 0; all && i < m->device.n_formats; i++)
        if (json_object_set_new(all, dfx_q_name(dfx_bench_formats[i]),
                                json_real(m->flux_step_s[i])) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *all_blocks_json(const dfx_bench_machine *m) {
    json_t *all = json_array();
    for (int i = 0; all && i < 2 * m->device.n_formats; i++) {
        const dfx_bench_blocks *b = i % 2 ? &m->device.small[i / 2] : &m->device.large[i / 2];
        if (json_array_append_new(all, blocks_json(b, &m->profile)) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
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
    dfx_bench_print_json(
        json_pack("{s:s, s:o, s:i, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:o}", "name", p->name,
                  "device", dfx_bench_device_json(&m->facts), "runs", (int)m->disk.rate.n, "rates",
                  rates_json(m), "blocks", all_blocks_json(m), "flux_step_seconds",
                  flux_steps_json(m), "disk_queue_depth", (int)p->disk_queue_depth, "device_bytes",
                  (json_int_t)p->device_bytes, "context_bytes", (json_int_t)p->context_bytes,
                  "host_bytes", (json_int_t)p->host_bytes, "check", step_json(step)));
}

dfx_status dfx_bench_write_profile(const dfx_profile *profile, const dfx_sink *sink,
                                   dfx_file_writer *writer) {
    char head[128], *text = NULL;
    snprintf(head, sizeof(head), "# This machine, measured by dfx-edge %s.\n", dfx_version());
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
