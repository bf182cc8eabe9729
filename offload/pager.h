/* Pager: brings pages from their files into device memory and says where they are.
 *
 *   ABSENT --pin--> PINNED --unpin--> RESIDENT (KEEP)  or back to ABSENT, its slot free (STREAM)
 *   RESIDENT --pin--> PINNED          RESIDENT --drop--> ABSENT
 *
 * It has no policy of its own: offload/placement.h decides per program whether pages are kept or share one slot. */
#ifndef DFX_OFFLOAD_PAGER_H
#define DFX_OFFLOAD_PAGER_H

#include "core/budget.h"
#include "kernels/backend.h"
#include "offload/program.h"

typedef enum dfx_residency {
    DFX_KEEP,   /* loaded at first use, held until dropped */
    DFX_STREAM, /* one slot of the largest page; each use reads the page again */
} dfx_residency;

/* The pages of one program. */
typedef struct dfx_pager {
    const dfx_program *program; /* borrowed */
    dfx_backend *backend;       /* borrowed */
    dfx_budget *budget;         /* borrowed */
    const dfx_sink *sink;
    dfx_residency residency;
    dfx_mem *pages;      /* owned; [n_pages], KEEP only */
    dfx_mem slot;        /* owned; STREAM only */
    dfx_mem staging;     /* owned; host memory on the way to a device that the host cannot write */
    uint64_t read_bytes; /* from files so far */
} dfx_pager;

dfx_status dfx_pager_init(dfx_pager *pager, const dfx_program *program, dfx_backend *backend,
                          dfx_budget *budget, const dfx_sink *sink);
void dfx_pager_fini(dfx_pager *pager); /* zeroed pager is fine */

/* How pages are held from now on; drops what is loaded. */
void dfx_pager_set_residency(dfx_pager *pager, dfx_residency residency);

/* *base: where the page's bytes are, until unpin. One page at a time. Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_pager_pin(dfx_pager *pager, uint32_t page_idx, void **base);
void dfx_pager_unpin(dfx_pager *pager, uint32_t page_idx);

/* KEEP: are all pages in device memory? */
bool dfx_pager_is_loaded(const dfx_pager *pager);

/* Free all device memory of the program's pages. */
void dfx_pager_drop(dfx_pager *pager);

#endif
