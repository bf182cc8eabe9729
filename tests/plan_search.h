/* The best steady step there is, by trying everything, on a simulation that shares nothing with the planner. */
#ifndef DFX_TESTS_PLAN_SEARCH_H
#define DFX_TESTS_PLAN_SEARCH_H

#include "offload/planner.h"

enum { PLAN_SEARCH_REGIONS = 40, PLAN_SEARCH_REPEATS = 4096 };

/* One repetition, played from transfer to visit. disk_s NULL: pages are in memory; else each transfer is read from the disk
 * first, through n_staging buffers. */
typedef struct plan_rhythm {
    double link_s[PLAN_SEARCH_REGIONS], seconds[PLAN_SEARCH_REGIONS];
    const double *disk_s;
    bool stays[PLAN_SEARCH_REGIONS];
    uint32_t n, n_slots, n_staging;
} plan_rhythm;

/* Mean seconds of one of the last half of n_repeats (even) repetitions, after the first half. */
double plan_rhythm_seconds(const plan_rhythm *rhythm, uint32_t n_repeats);

/* Over every set of residents and every number of slots that fit `room` bytes. bytes[n]: of each region's page. */
double plan_search_best(const plan_rhythm *rhythm, const uint64_t *bytes, uint64_t room,
                        uint32_t n_repeats);

#endif
