/* See ckrig.h. */
#include "tests/ckrig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tmpdir *group; /* cmocka hands a group's state to its tests in the same place as theirs */

int ckrig_group_setup(void **state) {
    char path[TMPDIR_PATH], link[TMPDIR_PATH], from[TMPDIR_PATH];
    static const char *const tokenizers[] = {"tokenizer", "tokenizer_2"};
    if (tmpdir_setup((void **)&group) != 0)
        return -1;
    tmpdir_mkdir(group, "tiny");
    tmpdir_mkdir(group, "cache");
    if (tiny_write_model(tmpdir_join(group, "tiny", path), TINY_DEV) != DFX_OK)
        return -1;
    for (size_t i = 0; i < DFX_COUNT(tokenizers); i++) {
        char name[64], whole[TMPDIR_PATH];
        snprintf(name, sizeof(name), "tiny/%s", tokenizers[i]);
        snprintf(from, sizeof(from), "models/scenes/%s", tokenizers[i]);
        if (!realpath(from, whole) || symlink(whole, tmpdir_join(group, name, link)) != 0)
            return -1;
    }
    return setenv("XDG_CACHE_HOME", tmpdir_join(group, "cache", path), 1);
}

int ckrig_group_teardown(void **state) {
    return tmpdir_teardown((void **)&group);
}

int ckrig_setup(void **state) {
    ck_rig *r = calloc(1, sizeof(*r));
    static char folder[TMPDIR_PATH];
    if (!r || tmpdir_setup((void **)&r->dir) != 0)
        return -1;
    r->log = &r->dir->log;
    r->folder = tmpdir_join(group, "tiny", folder);
    *state = r;
    return 0;
}

int ckrig_teardown(void **state) {
    ck_rig *r = *state;
    int failed = tmpdir_teardown((void **)&r->dir);
    free(r);
    return failed;
}

static const char *whole_path(const ck_rig *r, const char *name, char text[TMPDIR_PATH]) {
    if (name[0] == '/')
        snprintf(text, TMPDIR_PATH, "%s", name);
    else
        tmpdir_join(r->dir, name, text);
    return text;
}

void ckrig_model(ck_rig *r, const char *name) {
    r->paths = (dfx_model_paths){.model = whole_path(r, name, r->texts[0]),
                                 .vae = whole_path(r, "vae.safetensors", r->texts[1]),
                                 .clip = whole_path(r, "clip.safetensors", r->texts[2]),
                                 .t5 = whole_path(r, "t5.safetensors", r->texts[3]),
                                 .tokenizer = "models/scenes"};
}

void ckrig_write(ck_rig *r, const char *component, bool original, const char *prefix,
                 const char *name, void (*change)(ckfile *f)) {
    ckfile f = {0};
    if (original)
        ckfile_original(&f, r->folder, component, prefix);
    else
        ckfile_diffusers(&f, r->folder, component, prefix);
    if (change)
        change(&f);
    ckfile_write(&f, r->dir, name);
    ckfile_free(&f);
}

void ckrig_parts(ck_rig *r) {
    ckrig_write(r, "vae", true, "", "vae.safetensors", NULL);
    ckrig_write(r, "text_encoder", false, "", "clip.safetensors", NULL);
    ckrig_write(r, "text_encoder_2", false, "", "t5.safetensors", NULL);
}

static char *pages_of(ck_rig *r, const dfx_model_paths *paths, dfx_qformat quant, bool automatic) {
    char path[TMPDIR_PATH];
    dfx_pack_report report;
    dfx_packed *packed;
    dfx_pack_options o = {.quant = quant, .n_threads = 2};
    recorder_clear(r->log);
    tmpdir_join(r->dir, "packed.safetensors", path);
    dfx_status status = dfx_model_pack(paths, automatic, &o, path, &r->log->sink, &report);
    said_nothing(r->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    assert_int_equal(dfx_packed_open(path, &r->log->sink, &packed), DFX_OK);
    size_t n = dfx_packed_n_pages(packed), used = 0;
    char *text = malloc(n * 128 + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        const dfx_packed_page *page = dfx_packed_page_at(packed, i);
        used += (size_t)snprintf(text + used, 128, "%.90s %016llx\n", page->name,
                                 (unsigned long long)page->xxh3);
    }
    dfx_packed_close(packed);
    assert_int_equal(unlink(path), 0);
    return text;
}

char *ckrig_pages(ck_rig *r, dfx_qformat quant, bool automatic) {
    return pages_of(r, &r->paths, quant, automatic);
}

char *ckrig_folder_pages(ck_rig *r, dfx_qformat quant) {
    return pages_of(r, &(dfx_model_paths){.model = r->folder}, quant, false);
}

void ckrig_same_as_folder(ck_rig *r) {
    char *want = ckrig_folder_pages(r, DFX_Q_BF16);
    recorder_clear(r->log);
    char *got = ckrig_pages(r, DFX_Q_BF16, false);
    said_nothing(r->log, DFX_WARN);
    assert_string_equal(got, want);
    free(got);
    free(want);
}

void ckrig_refused(ck_rig *r, dfx_status status, const char *words) {
    char path[TMPDIR_PATH];
    dfx_pack_report report;
    dfx_pack_options o = {.quant = DFX_Q_BF16, .n_threads = 2};
    size_t held = dfx_mem_held_bytes();
    recorder_clear(r->log);
    tmpdir_join(r->dir, "refused.safetensors", path);
    dfx_status got = dfx_model_pack(&r->paths, false, &o, path, &r->log->sink, &report);
    said_error(r->log, words);
    assert_int_equal(got, status);
    assert_false(recorder_has(r->log, DFX_INFO, "packing "));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

float *ckrig_values(ck_rig *r, dfx_component component, const char *name, dfx_qformat quant,
                    size_t n) {
    dfx_checkpoint *c;
    dfx_checkpoint_options o = {.paths = r->paths, .quant = quant};
    recorder_clear(r->log);
    dfx_status status = dfx_checkpoint_open(&o, &r->log->sink, &c);
    said_nothing(r->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    const dfx_tensor *t = dfx_tensors_find(dfx_checkpoint_tensors(c, component), name);
    assert_non_null(t);
    assert_int_equal(t->n_elements, n);
    void *stored = malloc(t->bytes);
    float *values = malloc(n * sizeof(*values));
    assert_true(stored && values);
    assert_int_equal(
        dfx_checkpoint_read(c, dfx_component_places[component].folder, t, 0, stored, t->bytes),
        DFX_OK);
    assert_true(dfx_to_f32(t->dtype, stored, values, n));
    free(stored);
    dfx_checkpoint_close(c);
    return values;
}
