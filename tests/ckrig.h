/* What tests of checkpoints share: the tiny model as a folder that is written once a group, packs of whatever is made of it, and
 * what its pages must be. */
#ifndef DFX_TESTS_CKRIG_H
#define DFX_TESTS_CKRIG_H

#include "models/checkpoint.h"
#include "models/pack.h"
#include "tests/ckfile.h"
#include "tests/tiny.h"

typedef struct ck_rig {
    tmpdir *dir;   /* owned; of this test */
    recorder *log; /* of dir */
    const char *
        folder; /* borrowed from the group: the tiny model, with the tokenizers of the bundled one */
    dfx_model_paths paths;
    char texts[5][TMPDIR_PATH]; /* of paths */
} ck_rig;

/* Of a group: *state is a tmpdir with the folder "tiny" in it, and its "cache" is $XDG_CACHE_HOME. */
int ckrig_group_setup(void **state);
int ckrig_group_teardown(void **state);
int ckrig_setup(void **state);
int ckrig_teardown(void **state);

/* paths: this file of the test's folder (or an absolute path) as the model, the others from files that ckrig_parts wrote,
 * and the bundled model's tokenizers. */
void ckrig_model(ck_rig *r, const char *name);
/* vae.safetensors, clip.safetensors, t5.safetensors under their usual names into the test's folder. */
void ckrig_parts(ck_rig *r);

/* Pack the paths; every page's name and checksum as text. free() by the caller. */
char *ckrig_pages(ck_rig *r, dfx_qformat quant, bool automatic);
/* The same of the folder. */
char *ckrig_folder_pages(ck_rig *r, dfx_qformat quant);
/* Packed as bf16 the paths give what the folder gives, and the log holds neither warning nor error. */
void ckrig_same_as_folder(ck_rig *r);
/* Refused with this status and one error that holds `words`, without a byte being packed. */
void ckrig_refused(ck_rig *r, dfx_status status, const char *words);

/* n values of a component's tensor as the checkpoint gives them; free() by the caller. */
float *ckrig_values(ck_rig *r, dfx_component component, const char *name, dfx_qformat quant,
                    size_t n);

/* A part of the tiny model written as it is, or changed by `change`, as `name`. */
void ckrig_write(ck_rig *r, const char *component, bool original, const char *prefix,
                 const char *name, void (*change)(ckfile *f));

#endif
