/* Budget ledger: every byte of the bounded memory has an owner, and the sum never passes the limit.
 * A reservation that does not fit fails before anything is allocated, with the table of owners and the
 * smallest limit that would have done for this reservation. Not thread safe: the executor's own. */
#ifndef DFX_CORE_BUDGET_H
#define DFX_CORE_BUDGET_H

#include "core/mem.h"

enum { DFX_BUDGET_OWNERS = 32 };

typedef struct dfx_budget_entry {
    const char *owner; /* string literal, or outlives the ledger */
    size_t bytes, peak_bytes;
} dfx_budget_entry;

typedef struct dfx_budget {
    size_t limit_bytes; /* SIZE_MAX: counted, not bounded */
    size_t used_bytes, peak_bytes;
    uint32_t n_owners;
    dfx_budget_entry owners[DFX_BUDGET_OWNERS];
} dfx_budget;

void dfx_budget_init(dfx_budget *budget, size_t limit_bytes);

/* Errors: DFX_E_NOFIT: the sentence lists the owners, the limit, and what it would have to be. */
dfx_status dfx_budget_reserve(dfx_budget *budget, const dfx_sink *sink, const char *owner,
                              size_t bytes);
void dfx_budget_release(dfx_budget *budget, const char *owner, size_t bytes);

/* "weights 20.1 MiB, activations 8.0 MiB" into text; always NUL-terminated. */
void dfx_budget_table(const dfx_budget *budget, char *text, size_t text_bytes);

/* "12.0 GiB", "64.5 MiB", "812 bytes" into text; returns text. */
enum { DFX_BYTES_TEXT = 32 };
char *dfx_bytes_text(uint64_t bytes, char text[DFX_BYTES_TEXT]);

#endif
