/* Plan: where every byte of weights is at every moment of a picture, and how long it will take. Pure data: made by
 * offload/planner.h without a device, played by offload/page_feed.h and offload/executor.h.
 *
 *   page     all weights of one block, one contiguous piece of the packed model
 *   visit    one use of a page: the ops between two offload points. Visits are numbered over the whole picture, from 0.
 *   arena    the one block of device memory: state | activations of the stage | pages. Offsets count from its start.
 *   transfer brings a page to a place of the arena, for one visit. Transfers are made one after the other, in order; each may
 *            begin when the visit `after_visit` has ended (its place is free then) and must end before `for_visit` begins.
 *   resident a page that has one place for all visits of its stage; permanent: for all pictures */
#ifndef DFX_OFFLOAD_PLAN_H
#define DFX_OFFLOAD_PLAN_H

#include "core/arena.h"
#include "offload/profile.h"

enum { DFX_NO_VISIT = UINT32_MAX, DFX_PLAN_OWNERS_MAX = 8 };

/* How pages that do not stay on the device come to it. */
typedef enum dfx_offload {
    DFX_OFFLOAD_AUTO, /* pinned memory as far as the RAM budget goes, disk for the rest */
    DFX_OFFLOAD_RAM,  /* all in pinned memory, or DFX_E_NOFIT */
    DFX_OFFLOAD_NVME, /* nothing in pinned memory but staging: read from disk for each transfer */
    DFX_OFFLOAD_NONE  /* everything stays on the device, or DFX_E_NOFIT */
} dfx_offload;

typedef struct dfx_plan_page {
    const char *name;    /* borrowed */
    uint64_t bytes;      /* on the device */
    uint64_t disk_bytes; /* as stored; less when compressed */
    bool keep;           /* it must be permanent: something outside the timetable uses it, too */
} dfx_plan_page;

/* One region of a stage, in the order of execution. */
typedef struct dfx_plan_region {
    uint32_t page_idx;
    double seconds; /* computing */
} dfx_plan_region;

typedef struct dfx_plan_stage {
    const char *name;               /* string literal: "text", "cond", "denoise", "decode" */
    const dfx_plan_region *regions; /* borrowed; of one repetition */
    uint32_t n_regions, n_repeats;
    uint64_t activation_bytes;
} dfx_plan_stage;

/* What the planner is asked. All borrowed for the call. */
typedef struct dfx_plan_problem {
    const dfx_plan_page *pages;
    const dfx_plan_stage *stages;
    uint32_t n_pages, n_stages;
    uint64_t budget_bytes;    /* of the device, everything included */
    uint64_t workspace_bytes; /* held outside the arena: the backend's own, and */
    uint64_t driver_bytes;    /* of them the driver's: context, libraries, kernels, recordings */
    uint64_t state_bytes;     /* of the arena: what outlives a stage, and */
    uint64_t adapter_bytes;   /* of them the adapters' */
    uint64_t ram_budget_bytes;
    dfx_offload offload;
    const dfx_profile *profile;
    uint32_t
        n_together; /* pictures that the stages make; only words of the plan depend on it. 0: one */
} dfx_plan_problem;

typedef struct dfx_transfer {
    uint32_t page_idx;
    uint32_t after_visit; /* DFX_NO_VISIT: at once */
    uint32_t for_visit;
    bool once;    /* permanent: made in the first picture only */
    uint64_t off; /* in the arena */
} dfx_transfer;

typedef struct dfx_visit {
    uint32_t page_idx;
    uint32_t stage_idx;
    uint64_t off;   /* of the page, in the arena */
    double seconds; /* computing */
} dfx_visit;

typedef enum dfx_limit { DFX_LIMIT_COMPUTE, DFX_LIMIT_LINK, DFX_LIMIT_DISK } dfx_limit;

typedef struct dfx_plan_owner {
    const char *name; /* string literal */
    uint64_t bytes;
} dfx_plan_owner;

typedef struct dfx_plan {
    dfx_arena memory; /* owns the arrays */
    dfx_visit *visits;
    dfx_transfer *transfers;
    bool *in_ram;    /* [n_pages]: kept in pinned memory */
    bool *permanent; /* [n_pages] */
    bool *resident;  /* [n_pages]: stays for all visits of its stage; permanent ones included */
    uint32_t n_visits, n_transfers, n_pages, n_stages;
    uint32_t *stage_first_visit; /* [n_stages + 1] */
    uint32_t n_slots;            /* of the stage that repeats */
    uint64_t slot_bytes;
    uint64_t arena_bytes;        /* to allocate */
    uint64_t peak_bytes;         /* arena + workspace: what the ledger will show at the most */
    uint64_t least_budget_bytes; /* the smallest budget for which there is a plan */
    dfx_plan_owner owners[DFX_PLAN_OWNERS_MAX]; /* of peak_bytes */
    uint32_t n_owners;
    uint32_t n_resident;              /* pages of the stage that repeats most */
    uint64_t streamed_bytes_per_step; /* over the link, in a steady step */
    uint64_t host_bytes;              /* pinned: RAM tier and staging */
    uint32_t n_staging;     /* staging buffers of the largest streamed page; 0 on unified memory */
    uint64_t staging_bytes; /* of one */
    double step_seconds;    /* steady */
    double *stage_seconds;  /* [n_stages]: of a warm picture */
    double image_seconds, cold_image_seconds;
    dfx_limit limit; /* of the steady step */
} dfx_plan;

void dfx_plan_fini(dfx_plan *plan); /* zeroed plan is fine */

#endif
