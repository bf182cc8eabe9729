#include "models/reuse.h"

#include "models/model.h"

int dfx_reuse_sure(float threshold, int n_steps) {
    enum { FIRST_AND_LAST = 2 };
    return threshold > 0 && n_steps > FIRST_AND_LAST ? FIRST_AND_LAST : n_steps;
}

static bool is_forced(const dfx_reuse *u, int step, int lane) {
    return u->threshold <= 0 || step == 0 || step == u->n_steps - 1 ||
           u->in_a_row[lane] == DFX_REUSE_MOST;
}

/* Visits of a repetition that is not made yet may be made again only when what they did is booked. */
static dfx_status take_times(dfx_model *m, dfx_reuse *u, int step) {
    if (!u->all_reused[step % 2] || u->is_timed[step % 2])
        return DFX_OK;
    u->is_timed[step % 2] = true;
    return dfx_session_wait_reused(m, u->repeat[step % 2]);
}

/* Behind the first block. is_full [n_lanes]; *n_full: how many. A number that is none is too far from anything. */
static dfx_status decide(dfx_model *m, dfx_reuse *u, int step, bool *is_full, int *n_full) {
    float diffs[DFX_LANES_MAX];
    bool ask = false;
    for (int lane = 0; lane < u->n_lanes; lane++)
        ask |= !is_forced(u, step, lane);
    if (ask)
        DFX_TRY(dfx_session_diffs(m, u->n_full, u->n_lanes, diffs));
    *n_full = 0;
    for (int lane = 0; lane < u->n_lanes; lane++) {
        is_full[lane] = is_forced(u, step, lane) || !(diffs[lane] < u->threshold);
        *n_full += is_full[lane];
        if (ask)
            dfx_debug(&m->sink, "step %d, lane %d: the first block differs by %.4f: %s", step + 1,
                      lane, (double)diffs[lane], is_full[lane] ? "full" : "reused");
    }
    return DFX_OK;
}

/* The next full step may be read for when it is sure that there is one: the last step is. */
static dfx_status be_sure(dfx_model *m, const dfx_reuse *u, int step) {
    bool is_last = step == u->n_steps - 1;
    if (u->threshold <= 0)
        return DFX_OK;
    return dfx_session_sure(m, is_last ? u->n_full + 1 : u->n_full + 2,
                            is_last ? u->n_full + 1 : u->n_steps);
}

static dfx_status run_full(dfx_model *m, dfx_reuse *u, int step, void *const *externs,
                           const bool *is_full) {
    DFX_TRY(be_sure(m, u, step));
    return dfx_session_run_lanes(m, DFX_PROGRAM_REST, u->n_full++, externs, u->n_lanes, is_full);
}

/* The first block's pages come with the first repetition, and stay. */
static dfx_status run_first(dfx_model *m, const dfx_reuse *u, int step, void *const *externs) {
    return step == 0
               ? dfx_session_run_lanes(m, DFX_PROGRAM_STEP, 0, externs, u->n_lanes, NULL)
               : dfx_session_run_kept(m, DFX_PROGRAM_STEP, u->n_full, externs, u->n_lanes, NULL);
}

/* Where both are run, the one without pages goes first: the other's last visit is its own, and marked again. */
static dfx_status run_others(dfx_model *m, dfx_reuse *u, int step, void *const *externs) {
    bool is_full[DFX_LANES_MAX], is_reused[DFX_LANES_MAX];
    int n_full, repeat = u->n_full;
    DFX_TRY(decide(m, u, step, is_full, &n_full));
    for (int lane = 0; lane < u->n_lanes; lane++) {
        is_reused[lane] = !is_full[lane];
        u->n_reused[lane] += is_reused[lane];
        u->in_a_row[lane] = is_reused[lane] ? u->in_a_row[lane] + 1 : 0;
    }
    u->repeat[step % 2] = repeat;
    u->all_reused[step % 2] = n_full == 0;
    u->is_timed[step % 2] = false;
    if (n_full < u->n_lanes)
        DFX_TRY(
            dfx_session_run_kept(m, DFX_PROGRAM_REUSED, repeat, externs, u->n_lanes, is_reused));
    if (n_full > 0)
        DFX_TRY(run_full(m, u, step, externs, is_full));
    return dfx_session_keep_latents(m, step, repeat, u->n_lanes);
}

dfx_status dfx_reuse_step(dfx_model *m, dfx_reuse *u, int step, void *const *externs) {
    if (step > 0)
        DFX_TRY(take_times(m, u, step - 1));
    DFX_TRY(run_first(m, u, step, externs));
    return run_others(m, u, step, externs);
}

dfx_status dfx_reuse_wait(dfx_model *m, dfx_reuse *u, int step) {
    if (u->all_reused[step % 2])
        return take_times(m, u, step);
    return dfx_session_wait(m, DFX_PROGRAM_REST, u->repeat[step % 2]);
}
