/* Machine profile: what the planner knows of a machine. A text file of `name = value` lines, '#' for comments.
 * Rates are what was measured or what the vendor states for dense arithmetic; offload/profiles/ holds those we ship. */
#ifndef DFX_OFFLOAD_PROFILE_H
#define DFX_OFFLOAD_PROFILE_H

#include "core/mem.h"

enum {
    DFX_PROFILE_NAME = 64,
    DFX_PROFILE_TEXT = 128,
    /* Of what `bench machine` does; profiles of another one are measured again. */
    DFX_PROFILE_METHOD = 3,
};

typedef struct dfx_profile {
    char name[DFX_PROFILE_NAME]; /* "rtx4090" */
    bool unified;                /* host and device memory are one: no link copy */
    bool has_fp8;
    uint32_t
        sm; /* compute capability of a GPU, 89 is 8.9; 0 where a file leaves it out: not known */
    double link_bytes_per_s; /* pinned host to device */
    double link_latency_s;   /* per transfer */
    /* By this share computing takes longer while the link copies: 0.02, 2 %. 0 where a file leaves it out. */
    double link_slows_compute;
    double disk_bytes_per_s; /* sequential, direct */
    double disk_latency_s;
    uint32_t disk_queue_depth;
    double bf16_flops, int8_flops,
        fp8_flops;             /* of products, multiply-add = 2; what kernels reach, not the peak */
    double attention_flops;    /* in 16 bits */
    double memory_bytes_per_s; /* device memory */
    double launch_s;           /* per op */
    uint64_t device_bytes;     /* memory of the device */
    uint64_t context_bytes;    /* what driver, context and libraries take of it */
    uint64_t host_bytes;       /* RAM */
    /* Only in a profile that was measured: on what, and how. "" and 0 else; files may leave them out. */
    char device[DFX_PROFILE_TEXT], driver[DFX_PROFILE_TEXT]; /* as the backend describes itself */
    uint32_t method;
} dfx_profile;

/* A name of a shipped profile or a path. Errors: DFX_E_USAGE (no such profile: lists those there are), DFX_E_FORMAT (line,
 * name, wanted, found; a missing or unknown name). */
dfx_status dfx_profile_load(const char *name_or_path, const dfx_sink *sink, dfx_profile *out);

/* As a file that dfx_profile_load reads; *out is owned by the caller (dfx_free). */
dfx_status dfx_profile_print(const dfx_profile *profile, const dfx_sink *sink, char **out);

#endif
