/* Step reuse: where the first block adds to the picture almost what it added in the last full step, the other blocks would too,
 * and what they added then is added again in their place. A step costs one block then, and no page is brought for it.
 *
 *   full     all blocks are run (STEP and REST), and what they add is remembered; the first step, the last one, and every one
 *            that is too far from the last full one, or comes after DFX_REUSE_MOST others that were not full
 *   reused   the first block, then what is remembered (STEP and REUSED)
 *
 * Too far: sum |r - r'| / sum |r'| >= threshold, r what the first block adds to the image's stream, r' the same in the last full
 * step. The device tells the number, the host waits for it, once a step. Every lane decides by itself, so that a picture is the
 * one that its seed gives alone; pages are brought when one lane wants them. Repetitions of the plan's timetable are full steps:
 * in the others the feed stays where it is. The decision depends on values alone, so neither budget nor offload change it.
 *
 * This is what others call first block cache. With a threshold of 0 every step is full, and the picture bit for bit the one of
 * a session without reuse. */
#ifndef DFX_MODELS_REUSE_H
#define DFX_MODELS_REUSE_H

#include "models/session.h"

enum { DFX_REUSE_MOST = 3 }; /* steps one after the other */

/* Of a group. */
typedef struct dfx_reuse {
    float threshold;
    int n_steps, n_lanes;
    int n_full;                  /* repetitions that have been begun */
    int n_reused[DFX_LANES_MAX]; /* steps of each lane so far */
    int in_a_row[DFX_LANES_MAX]; /* of them, since its last full one */
    int repeat[2];               /* of the last two steps: which one they were, or came before */
    bool all_reused[2];          /* of the last two steps: in every lane */
    bool is_timed[2];            /* of those: what they did is booked */
} dfx_reuse;

/* Full steps that there will be in any case. */
int dfx_reuse_sure(float threshold, int n_steps);

/* Queue a step in all lanes and keep its latents; externs: DFX_PART_EXTERNS of one lane behind those of the other. Steps are
 * queued in order, and the one before has not been waited for or has. Errors: those of running. */
dfx_status dfx_reuse_step(dfx_model *model, dfx_reuse *reuse, int step, void *const *externs);

/* Wait until the step, one of the last two, has run. */
dfx_status dfx_reuse_wait(dfx_model *model, dfx_reuse *reuse, int step);

#endif
