/* A small checkpoint with its program, for tests of the packed model.
 *
 *     pack_rig *r = *state;
 *     assert_int_equal(prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_INT8}, "out"), DFX_OK);
 *     ... r->report, the file "out" in r->dir ...
 *
 * Component "transformer", program "step", three pages:
 *   transformer_blocks.0   attn.to_q.weight BF16 [96, 64], attn.to_q.bias BF16 [96], norm1.linear.weight BF16 [8, 64]
 *   proj_out               proj_out.weight F32 [3, 64], proj_out.bias F32 [3]
 *   proj_out, once more    tail.weight BF16 [2048, 64]: zeros but for the first row
 * and spare.weight, which no program reads. Small files: model_index.json and transformer/config.json.
 * Row 0 of attn.to_q.weight is 1, -0.5, 0.25, 2 and zeros: the example of quant/FORMAT.md. */
#ifndef DFX_TESTS_PACK_RIG_H
#define DFX_TESTS_PACK_RIG_H

#include "offload/packed.h"
#include "tests/tmpdir.h"

enum { PRIG_ROWS = 96, PRIG_COLS = 64, PRIG_TAIL_ROWS = 2048 };

typedef struct pack_rig {
    tmpdir *dir; /* owned */
    const dfx_sink *sink;
    dfx_tensors *set; /* owned */
    dfx_program program;
    dfx_bundle bundle;
    dfx_pack_report report; /* of the last prig_pack */
} pack_rig;

/* cmocka fixtures: *state is a pack_rig *. */
int prig_setup(void **state);
int prig_teardown(void **state);

/* Pack into the folder's `name`; NULL: dry run. */
dfx_status prig_pack(pack_rig *r, const dfx_pack_options *options, const char *name);

/* The same for another program of the same component. */
dfx_status prig_pack_program(pack_rig *r, const dfx_program *program,
                             const dfx_pack_options *options, const char *name);

/* The rig's program from any set: the source's, or a packed model's. */
dfx_status prig_build(const dfx_tensors *set, const dfx_sink *sink, dfx_program *out);

/* Open what prig_pack wrote; dfx_packed_close() by the caller. */
dfx_packed *prig_open(pack_rig *r, const char *name);

/* A page of it in memory, expanded and verified; free() by the caller. */
uint8_t *prig_page(pack_rig *r, const dfx_packed *packed, size_t page_idx);

/* Write the source anew with this value (bf16 bits) at a row and column of a tensor of the first page, and open it. */
void prig_spoil(pack_rig *r, const char *tensor, int64_t row, int64_t col, uint16_t bits);

#endif
