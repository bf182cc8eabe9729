/* The system under the disk with faults put in: offload/disk_internal.h's table, which fails when told to.
 *
 *     flaky_os flaky;
 *     flaky_init(&flaky);
 *     flaky.read_fault = -EIO;
 *     flaky.first_fault = 3;      the third read fails
 *     options.os = &flaky.os;
 *
 * One thread at a time uses it, as it does the disk. */
#ifndef DFX_TESTS_FLAKY_OS_H
#define DFX_TESTS_FLAKY_OS_H

#include "offload/disk_internal.h"

enum { FLAKY_SHORT = 1, FLAKY_FOR_EVER = UINT32_MAX };

typedef struct flaky_os {
    dfx_disk_os os;

    /* -errno; 0: leave alone. */
    int open_direct, ring_open, ring_buffers;
    int ring_submit;
    uint32_t n_ring_submit; /* so many of the first submissions fail */
    int direct_read;        /* of each direct read */
    int read_fault;         /* or FLAKY_SHORT */
    uint32_t first_fault;   /* counted from 1; 0: none */
    uint32_t fault_period;  /* then every so many reads; 0: never again */

    /* Seen. */
    uint32_t n_reads, n_faults, n_submits, n_registered;
    uint64_t n_asked_bytes;
} flaky_os;

void flaky_init(flaky_os *flaky);

#endif
