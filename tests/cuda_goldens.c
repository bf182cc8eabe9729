/* See cuda_goldens.h. The checks themselves are those of tests/device_checks.h, on the pair's CUDA backend; here are the lines
 * they print, and what only a GPU has. A fault of the harness ends the program: which case it was is said last. */
#include "tests/cuda_goldens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "models/dfx.h"
#include "tests/device_checks.h"

/* 16 MiB a page: 0.3 ms on a PCIe 5 link, a hundred times what launching an op takes. */
enum { COPY_ROWS = 2048 };

static const char *running; /* for say_where: exit hooks have no argument */

typedef struct lines {
    pair *p;
    tmpdir *dir; /* owned */
    bool has_models;
} lines;

static void say_where(void) {
    if (running)
        printf("FAIL  %s: the check could not go on\n", running);
}

static bool wanted(void *user, const char *name) {
    lines *l = user;
    if (l->p->only && !strstr(name, l->p->only)) {
        l->p->n_skipped++;
        return false;
    }
    running = name;
    return true;
}

/* Writing the models takes longer than most cases: not before one is wanted. */
static bool wanted_with_models(void *user, const char *name) {
    lines *l = user;
    if (!wanted(l, name))
        return false;
    if (!l->has_models && !device_write_models(l->dir))
        exit(1);
    l->has_models = true;
    return true;
}

static void verdict(void *user, const char *name, bool ok, const char *why) {
    lines *l = user;
    if (ok)
        l->p->n_passed++;
    else
        l->p->n_failed++;
    printf("%s  %-72s %s\n", ok ? "ok  " : "FAIL", name, why);
    fflush(stdout);
    running = NULL;
}

static void note(void *user, const char *name, const char *text) {
    printf("      %-72s %s\n", name, text);
}

static uint64_t held_bytes(dfx_backend *be) {
    size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    return all_bytes - free_bytes;
}

static uint64_t n_allocs(dfx_backend *be) {
    return ((const dfx_cuda *)be)->n_allocs;
}

/* ---- Sentences about memory */

typedef struct sentence {
    char text[1024];
    int n_errors;
} sentence;

static void keep_error(void *user, dfx_level level, const char *text) {
    sentence *s = user;
    if (level != DFX_ERROR)
        return;
    snprintf(s->text, sizeof(s->text), "%s", text);
    s->n_errors++;
}

/* More than any device has. */
static void check_refused_alloc(lines *l) {
    static const char name[] = "DEVICE memory that is not there is refused in one sentence";
    if (!wanted(l, name))
        return;
    sentence s = {0};
    const dfx_sink keep = {keep_error, &s}, *before = l->p->cuda->sink;
    dfx_mem mem = {0};
    l->p->cuda->sink = &keep;
    dfx_status status = l->p->cuda->vt->alloc(l->p->cuda, (size_t)1 << 46, "a test", &mem);
    l->p->cuda->sink = before;
    bool ok = status == DFX_E_NOFIT && s.n_errors == 1 && !mem.ptr &&
              strstr(s.text, "a test wants 70368744177664 bytes") &&
              strstr(s.text, "lower the budget");
    /* The device is as it was. */
    ok = ok && l->p->cuda->vt->alloc(l->p->cuda, 256, "a test", &mem) == DFX_OK;
    l->p->cuda->vt->free(l->p->cuda, &mem);
    verdict(l, name, ok, s.text);
}

/* Opens the bundled model with a budget and asks whether its picture could be made. */
static dfx_status ask(lines *l, uint64_t budget_bytes, sentence *s) {
    dfx_open_options options = {.model_path = "models/scenes",
                                .device = DFX_DEVICE_CUDA,
                                .device_index = ((const dfx_cuda *)l->p->cuda)->device,
                                .vram_budget_bytes = budget_bytes,
                                .sink = {keep_error, s}};
    dfx_model *model;
    dfx_request request;
    *s = (sentence){0};
    dfx_status status = dfx_model_open(&options, &model);
    if (status != DFX_OK)
        return status;
    dfx_request_init(model, &request);
    status = dfx_request_check(model, &request);
    dfx_model_close(model);
    return status;
}

/* The budget that the sentence names is enough; others may take or give back memory in between, hence a little more. */
static void check_small_budget(lines *l) {
    static const char name[] = "DEVICE a budget too small is refused with one that will do";
    static const char option[] = "--vram-budget ";
    enum { TOO_SMALL = 8 << 20, MORE = 32 << 20 };
    if (!dfx_file_is_dir("models/scenes")) {
        printf("skipped: models/scenes is not below the working directory\n");
        l->p->n_skipped++;
        return;
    }
    if (!wanted(l, name))
        return;
    setenv("XDG_CACHE_HOME", l->dir->path, 1);
    sentence s, again = {0};
    dfx_status status = ask(l, TOO_SMALL, &s);
    const char *at = strstr(s.text, option);
    uint64_t least = at ? strtoull(at + strlen(option), NULL, 10) : 0;
    bool ok = status == DFX_E_NOFIT && s.n_errors == 1 && least > TOO_SMALL &&
              strstr(s.text, "does not fit the budget of 8.00 MiB (8388608 bytes)");
    ok = ok && ask(l, least + MORE, &again) == DFX_OK;
    verdict(l, name, ok, again.n_errors ? again.text : s.text);
}

void check_device(pair *p) {
    void *state = NULL;
    if (tmpdir_setup(&state) != 0)
        exit(1);
    lines l = {.p = p, .dir = state};
    atexit(say_where);
    if (dfx_file_is_dir("tests/golden")) {
        device_checks c = {.backend = p->cuda,
                           .sink = p->cuda->sink,
                           .dir = l.dir,
                           .copy_rows = COPY_ROWS,
                           .held_bytes = held_bytes,
                           .n_allocs = n_allocs,
                           .wanted = wanted_with_models,
                           .verdict = verdict,
                           .note = note,
                           .user = &l};
        device_goldens(&c);
        device_streams(&c);
    } else {
        printf("skipped: tests/golden is not below the working directory\n");
        p->n_skipped++;
    }
    check_refused_alloc(&l);
    check_small_budget(&l);
    tmpdir_teardown(&state);
}
