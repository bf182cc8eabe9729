#include "offload/program.h"

bool dfx_op_names(const dfx_op *op, uint32_t buf) {
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        if (op->r[slot].buf == buf)
            return true;
    return false;
}

void dfx_program_fini(dfx_program *program) {
    dfx_arena_fini(&program->arena);
    *program = (dfx_program){0};
}

void dfx_program_call(const dfx_program *program, uint32_t op_idx, dfx_op_call *out) {
    const dfx_op *op = &program->ops[op_idx];
    *out = (dfx_op_call){.kind = op->kind, .p = op->p};
    for (int i = 0; i < DFX_OP_SLOTS; i++) {
        const dfx_ref *r = &op->r[i];
        if (!r->buf)
            continue;
        const dfx_buf *buf = &program->bufs[r->buf];
        out->m[i] =
            (dfx_mat){.rows = r->rows, .cols = r->cols, .ld = buf->cols, .dtype = buf->dtype};
    }
}
