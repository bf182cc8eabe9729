/* What tests of whole pictures share: the bundled model (or a copy of it with something changed), a small request, and
 * comparisons.
 *
 *     static void generate_twice_gives_same_bytes(void **state) {
 *         draw_rig *r = *state;
 *         draw_open(r, DRAW_SCENES, 0);
 *         dfx_request request = draw_request(r, 7);
 *         dfx_image a = draw(r, &request), b = draw(r, &request);
 *         draw_same(&a, &b);
 *         ... free both ...
 *     }
 *     cmocka_unit_test_setup_teardown(generate_twice_gives_same_bytes, draw_setup, draw_teardown)
 *     cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown)
 *
 * The group has a folder of its own as the cache of packed models, so that a folder that two tests open is packed once.
 * The model is closed at teardown, or by the next draw_open. The helpers fail the running test. */
#ifndef DFX_TESTS_DRAW_RIG_H
#define DFX_TESTS_DRAW_RIG_H

#include <jansson.h>

#include "models/dfx.h"
#include "quant/qformat.h"
#include "tests/tmpdir.h"

#define DRAW_SCENES "models/scenes"
#define DRAW_PROMPT "a red circle above a blue square"

typedef struct draw_rig {
    tmpdir *dir;   /* owned */
    recorder *log; /* of dir */
    tmpdir *
        cache; /* borrowed: the group's folder, which is $XDG_CACHE_HOME; NULL without draw_cache_setup */
    dfx_model *model;            /* owned */
    int n_threads;               /* of the next draw_open, like what follows; 2 */
    const char *offload, *quant; /* NULL: auto */
    uint64_t ram_budget_bytes;   /* 0: none */
    const char *const *loras;    /* borrowed; what room is made for, like the next ones */
    int n_loras, lora_max_rank, lora_max;
    int attention_bits; /* of the next draw_open; 0: the default */
    const char *trace;  /* of the next draw_open; borrowed; NULL: none */
} draw_rig;

/* Fixture of a group: *state is a tmpdir *, whose path is in $XDG_CACHE_HOME, at the beginning of each test too. */
int draw_cache_setup(void **state);

int draw_setup(void **state);
int draw_teardown(void **state);

/* Opens `path` with a budget in bytes (0: none) and forgets what was said before. */
void draw_open(draw_rig *r, const char *path, uint64_t budget_bytes);
/* It is refused with this status and one sentence that holds `words`; nothing stays allocated. */
void draw_open_fails(draw_rig *r, const char *path, dfx_status status, const char *words);

/* DRAW_PROMPT, 32 x 32 pixels, 2 steps, 4 text tokens: small, since sanitizers make products slow. */
dfx_request draw_request(const draw_rig *r, uint64_t seed);

dfx_image draw(draw_rig *r, const dfx_request *request);
/* It fails with this status and one sentence that holds `words`. */
void draw_fails(draw_rig *r, const dfx_request *request, dfx_status status, const char *words);

/* The same pixels; draw_differ: some pixel differs. */
void draw_same(const dfx_image *a, const dfx_image *b);
void draw_differ(const dfx_image *a, const dfx_image *b);

/* A copy of the bundled model as the rig's folder; files are links until one of the calls below replaces one. */
const char *draw_copy(draw_rig *r);
/* Replaces `old` in a text file of the copy, once. */
void draw_edit_text(draw_rig *r, const char *name, const char *old, const char *text);
/* Rewrites the header of a weights file; `extra_bytes` zeros follow its data. */
void draw_edit_header(draw_rig *r, const char *name,
                      void (*edit)(json_t *header, size_t data_bytes), size_t extra_bytes);
/* The first n values of a bf16 tensor become this one, given by its bits. */
enum { DRAW_BF16_NAN = 0x7FC0, DRAW_BF16_MAX = 0x7F7F };
void draw_poke(draw_rig *r, const char *name, const char *tensor, uint16_t bits, size_t n);

/* The bundled model as a packed file `name` in the rig's folder; its path. */
const char *draw_pack(draw_rig *r, const char *name, dfx_qformat quant, bool compress,
                      char path[TMPDIR_PATH]);

#endif
