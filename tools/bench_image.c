/* See bench_image.h. Two prompts that are the same to a tokenizer take turns, so that no picture finds its text encoded; the
 * steps and the picture are those of one prompt. */
#include "tools/bench_image.h"

#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "models/model.h"
#include "tools/bench_timer.h"
#include "tools/psnr.h"

typedef struct job {
    const dfx_bench_image_question *question;
    const dfx_bench_image_subject *subject;
    dfx_console *console;
    dfx_bench_image *out;
    dfx_bench_image_series *series; /* of out, the subject's */
    char error[1024];               /* the library's last one: what does not fit is no fault here */
    char other_prompt[1024];
    double first_step_end, end_before, last_step_end; /* of the picture at hand, as far as it is */
} job;

static void say(void *user, dfx_level level, const char *text) {
    job *j = user;
    if (level == DFX_ERROR)
        snprintf(j->error, sizeof(j->error), "%s", text);
    else
        dfx_console_say(j->console, level, "%s", text);
}

static void on_progress(void *user, const dfx_progress *p) {
    job *j = user;
    if (p->stage != DFX_STAGE_DENOISE)
        return;
    if (p->step <= 1)
        j->first_step_end = p->step == 1 ? p->stage_seconds : 0;
    j->end_before = j->last_step_end;
    j->last_step_end = p->stage_seconds;
}

static bool on_cancelled(void *user) {
    const job *j = user;
    return j->question->open.cancelled(NULL);
}

static dfx_request request_of(job *j, const dfx_model *model, uint32_t run) {
    const dfx_bench_image_question *q = j->question;
    dfx_request r;
    dfx_request_init(model, &r);
    r.prompt = run % 2 ? j->other_prompt : q->prompt;
    r.width = j->subject->width ? j->subject->width : r.width;
    r.height = j->subject->height ? j->subject->height : r.height;
    r.steps = q->steps ? q->steps : r.steps;
    r.text_length = q->text_length ? q->text_length : r.text_length;
    r.reuse = (float)q->reuse;
    r.progress = on_progress;
    r.cancelled = on_cancelled;
    r.user = j;
    return r;
}

/* The end of each step but the last is told when the device has been given the next one, which may be late; so the last one seems
 * short. With one or two steps all of them are counted. */
static double step_seconds(const job *j, int n_steps) {
    return n_steps > 2 ? (j->end_before - j->first_step_end) / (n_steps - 2)
                       : j->last_step_end / n_steps;
}

static double computing_seconds(const dfx_model *m) {
    double seconds = 0;
    for (uint32_t s = 0; s < m->session.trace.n_stages; s++) {
        const dfx_plan_stage *stage = &m->session.trace.stages[s];
        for (uint32_t r = 0; r < stage->n_regions; r++)
            seconds += stage->n_repeats * stage->regions[r].seconds;
    }
    return seconds;
}

/* Run 0 is the cold one. */
static void keep(job *j, const dfx_model *m, const dfx_image *image, uint32_t run,
                 dfx_bench_image_row *row) {
    size_t bytes = (size_t)image->width * (size_t)image->height * 3;
    if (run == 0) {
        row->fits = true;
        row->cold_seconds = image->seconds;
        row->picture = dfx_xxh3(image->rgb, bytes);
        row->n_reused = image->n_reused;
        row->planned_step_seconds = m->session.plan.step_seconds;
        row->planned_seconds = m->session.plan.image_seconds;
        row->floor_seconds = computing_seconds(m);
        j->series->width = image->width;
        j->series->height = image->height;
        j->series->steps = image->steps;
        j->series->text_length = image->text_length;
        return;
    }
    dfx_bench_sample_add(&row->seconds, image->seconds);
    dfx_bench_sample_add(&row->step_seconds, step_seconds(j, image->steps));
    row->wait_seconds = image->wait_seconds;
    row->read_bytes = image->read_bytes;
    row->copied_bytes = image->copied_bytes;
    row->peak_device_bytes = image->peak_device_bytes;
}

/* The picture of the last run again, with all steps whole. */
static dfx_status draw_whole(job *j, dfx_model *model, const dfx_image *reused, double *psnr) {
    dfx_request request = request_of(j, model, j->question->n_runs);
    dfx_image whole;
    request.reuse = 0;
    DFX_TRY(dfx_generate(model, &request, &whole));
    *psnr = dfx_psnr(reused->rgb, whole.rgb, whole.width, whole.height);
    dfx_image_free(&whole);
    return DFX_OK;
}

static dfx_status draw_all(job *j, dfx_model *model, dfx_bench_image_row *row) {
    dfx_status status = DFX_OK;
    for (uint32_t run = 0; run <= j->question->n_runs && status == DFX_OK; run++) {
        dfx_request request = request_of(j, model, run);
        dfx_image image;
        DFX_TRY(dfx_generate(model, &request, &image));
        keep(j, model, &image, run, row);
        dfx_console_say(j->console, DFX_INFO, "  %s picture: %.3f s", run ? "warm" : "cold",
                        image.seconds);
        if (run == j->question->n_runs && j->question->reuse > 0)
            status = draw_whole(j, model, &image, &row->psnr);
        dfx_image_free(&image);
    }
    return status;
}

static void describe(job *j, const dfx_model *model) {
    dfx_bench_image_series *s = j->series;
    dfx_model_info info;
    dfx_model_describe(model, &info);
    model->backend->vt->describe(model->backend, &j->out->facts);
    snprintf(s->model, sizeof(s->model), "%s", info.name);
    snprintf(s->quant, sizeof(s->quant), "%s", dfx_q_name(dfx_packed_quant(model->packed)));
    snprintf(s->profile, sizeof(s->profile), "%s", model->profile.name);
    s->link_bytes_per_s = model->profile.unified ? 0 : model->profile.link_bytes_per_s;
}

static dfx_status run_budget(job *j, uint64_t budget_bytes, dfx_bench_image_row *row) {
    dfx_open_options open = j->question->open;
    dfx_model *model;
    *row = (dfx_bench_image_row){.budget_bytes = budget_bytes};
    open.model_path = j->subject->model_path;
    open.quant = j->subject->quant;
    open.vram_budget_bytes = budget_bytes;
    open.sink = (dfx_sink){.say = say, .user = j};
    open.user = j;
    open.cancelled = on_cancelled;
    DFX_TRY(dfx_model_open(&open, &model));
    describe(j, model); /* while the device holds nothing */
    if (!budget_bytes)
        row->budget_bytes = model->budget.limit_bytes;
    dfx_console_say(j->console, DFX_INFO, "budget of %.2f GiB",
                    (double)row->budget_bytes / (1 << 30));
    dfx_status status = draw_all(j, model, row);
    dfx_bench_clocks(model->backend, &j->out->facts);
    dfx_model_close(model);
    return status;
}

/* Until the model says what it is. */
static void name_series(const dfx_bench_image_subject *subject, dfx_bench_image_series *s) {
    const char *slash = strrchr(subject->model_path, '/');
    bool is_name = slash && slash[1];
    snprintf(s->model, sizeof(s->model), "%s", is_name ? slash + 1 : subject->model_path);
    snprintf(s->quant, sizeof(s->quant), "%s", subject->quant ? subject->quant : "");
    s->width = subject->width;
    s->height = subject->height;
}

/* All budgets of the subject; *n_fit more fit. */
static dfx_status run_series(job *j, int *n_fit) {
    const dfx_bench_image_question *q = j->question;
    name_series(j->subject, j->series);
    if (q->n_subjects > 1)
        dfx_console_say(j->console, DFX_INFO, "%s %s", j->series->model, j->series->quant);
    for (int i = 0; i < q->n_budgets; i++) {
        dfx_bench_image_row *row = &j->series->rows[j->series->n_rows++];
        dfx_status status = run_budget(j, q->budgets[i], row);
        if (status == DFX_OK) {
            ++*n_fit;
        } else if (status == DFX_E_NOFIT && !row->fits) {
            dfx_console_say(j->console, DFX_INFO, "  does not fit: %s", j->error);
        } else {
            j->series->n_rows--; /* it has not been measured to its end */
            return status == DFX_E_CANCELLED ? status
                                             : dfx_console_fail(j->console, status, "%s", j->error);
        }
    }
    return DFX_OK;
}

dfx_status dfx_bench_image_run(const dfx_bench_image_question *question, dfx_console *console,
                               dfx_bench_image *out) {
    job j = {.question = question, .console = console, .out = out};
    dfx_status status = DFX_OK;
    int n_fit = 0;
    memset(out, 0, sizeof(*out)); /* too large for a stack */
    out->reuse = question->reuse;
    out->attention_bits = question->open.attention_bits;
    snprintf(j.other_prompt, sizeof(j.other_prompt), "%s ", question->prompt);
    for (int i = 0; i < question->n_subjects && status == DFX_OK; i++) {
        j.subject = &question->subjects[i];
        j.series = &out->series[out->n_series];
        status = run_series(&j, &n_fit);
        out->n_series += j.series->n_rows > 0;
    }
    if (n_fit > 0)
        return status;
    out->n_series = 0;
    return status == DFX_OK ? dfx_console_fail(console, DFX_E_NOFIT, "%s", j.error) : status;
}
