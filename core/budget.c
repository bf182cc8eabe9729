#include "core/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static dfx_budget_entry *find_owner(dfx_budget *budget, const char *owner) {
    for (uint32_t i = 0; i < budget->n_owners; i++)
        if (strcmp(budget->owners[i].owner, owner) == 0)
            return &budget->owners[i];
    return NULL;
}

void dfx_budget_init(dfx_budget *budget, size_t limit_bytes) {
    *budget = (dfx_budget){.limit_bytes = limit_bytes};
}

dfx_status dfx_budget_reserve(dfx_budget *budget, const dfx_sink *sink, const char *owner,
                              size_t bytes) {
    dfx_budget_entry *entry = find_owner(budget, owner);
    if (!entry) {
        if (budget->n_owners == DFX_BUDGET_OWNERS)
            return dfx_fail(sink, DFX_E_INTERNAL, "budget ledger: more than %d owners",
                            DFX_BUDGET_OWNERS);
        entry = &budget->owners[budget->n_owners++];
        *entry = (dfx_budget_entry){.owner = owner};
    }
    size_t used;
    if (!dfx_add_size(budget->used_bytes, bytes, &used) || used > budget->limit_bytes) {
        char table[512], want[DFX_BYTES_TEXT], have[DFX_BYTES_TEXT], need[DFX_BYTES_TEXT];
        dfx_budget_table(budget, table, sizeof(table));
        return dfx_fail(sink, DFX_E_NOFIT,
                        "does not fit the budget of %s: %s wants %s beside what is held (%s); "
                        "give at least %s (%zu bytes)",
                        dfx_bytes_text(budget->limit_bytes, have), owner,
                        dfx_bytes_text(bytes, want), table[0] ? table : "nothing",
                        dfx_bytes_text(budget->used_bytes + bytes, need),
                        budget->used_bytes + bytes);
    }
    budget->used_bytes = used;
    entry->bytes += bytes;
    if (entry->bytes > entry->peak_bytes)
        entry->peak_bytes = entry->bytes;
    if (used > budget->peak_bytes)
        budget->peak_bytes = used;
    return DFX_OK;
}

void dfx_budget_release(dfx_budget *budget, const char *owner, size_t bytes) {
    dfx_budget_entry *entry = find_owner(budget, owner);
    if (!entry || entry->bytes < bytes)
        return;
    entry->bytes -= bytes;
    budget->used_bytes -= bytes;
}

void dfx_budget_table(const dfx_budget *budget, char *text, size_t text_bytes) {
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < budget->n_owners; i++) {
        char bytes[DFX_BYTES_TEXT];
        if (!budget->owners[i].bytes || at >= text_bytes)
            continue;
        int len = snprintf(text + at, text_bytes - at, "%s%s %s", at ? ", " : "",
                           budget->owners[i].owner, dfx_bytes_text(budget->owners[i].bytes, bytes));
        at += len > 0 ? (size_t)len : 0;
    }
}

char *dfx_bytes_text(uint64_t bytes, char text[DFX_BYTES_TEXT]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(text, DFX_BYTES_TEXT, "%" PRIu64 " bytes", bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < DFX_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(text, DFX_BYTES_TEXT, "%.2f %s", value, units[unit]);
    return text;
}
