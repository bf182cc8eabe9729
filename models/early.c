/* Pages are read in the order in which a first picture wants them. How many: a session is there half a second after the
 * process, or a second when its programs are recorded, and disks of today bring some 2 GB in that time. More would take memory
 * from others for pages whose turn has not come. */
#include "models/early.h"

#include <string.h>

#include "models/cache.h"
#include "offload/planner.h"

static const uint64_t EARLY_BYTES_MAX = (uint64_t)2 << 30;

/* Every picture runs these, in this order. */
static const char *const PROGRAMS[] = {"clip", "t5", "cond", "step", "decode"};

/* Of what has been packed before. The device, which is not known yet, decides between two files; mostly there is one. Any fault
 * is found again by who packs. */
static dfx_status find_in_cache(const dfx_checkpoint_options *from, char path[DFX_PATH_BYTES]) {
    dfx_checkpoint_options o = *from;
    dfx_status status = DFX_E_IO;
    for (int i = 0; i < (from->automatic ? 2 : 1); i++) {
        o.without_fp8 = i > 0;
        status = dfx_cache_path(&o, NULL, path);
        if (status != DFX_OK || (dfx_file_exists(path) && dfx_packed_is(path)))
            return status;
        status = DFX_E_IO;
    }
    return status;
}

static dfx_status open_quietly(dfx_model *m, const dfx_checkpoint_options *from) {
    bool is_checkpoint;
    char found[DFX_PATH_BYTES];
    const char *path = from->paths.model;
    DFX_TRY(dfx_checkpoint_ask(&from->paths, NULL, &is_checkpoint));
    if (is_checkpoint) {
        DFX_TRY(find_in_cache(from, found));
        path = found;
    }
    DFX_TRY(dfx_packed_open(path, NULL, &m->packed));
    m->path = dfx_strdup(path, "model");
    return m->path ? DFX_OK : DFX_E_NOFIT;
}

dfx_status dfx_early_open(dfx_model *m, const dfx_checkpoint_options *from) {
    dfx_status status = open_quietly(m, from);
    if (status == DFX_E_NOFIT)
        return dfx_fail(&m->sink, status, "out of memory opening %s", from->paths.model);
    return status == DFX_OK ? dfx_early_begin(m) : DFX_OK;
}

void dfx_early_drop(dfx_model *m) {
    dfx_tier_close(m->tier);
    dfx_packed_close(m->packed);
    dfx_free(m->path);
    m->tier = NULL;
    m->packed = NULL;
    m->path = NULL;
}

static bool is_of(const dfx_packed_page *page, const char *program) {
    size_t len = strlen(program);
    return strncmp(page->name, program, len) == 0 && page->name[len] == '/';
}

/* page_idx: room for all pages of the file. *largest: the bytes of one. */
static uint32_t list_pages(const dfx_packed *packed, uint32_t *page_idx, uint64_t *largest) {
    uint32_t n = 0;
    *largest = 0;
    for (size_t i = 0; i < DFX_COUNT(PROGRAMS); i++)
        for (uint32_t p = 0; p < dfx_packed_n_pages(packed); p++) {
            const dfx_packed_page *page = dfx_packed_page_at(packed, p);
            if (!is_of(page, PROGRAMS[i]))
                continue;
            page_idx[n++] = p;
            uint64_t bytes = page->bytes > page->stored_bytes ? page->bytes : page->stored_bytes;
            *largest = bytes > *largest ? bytes : *largest;
        }
    return n;
}

/* Staging is taken while early reading goes on, and both are within the budget. Where nothing but staging is to be held, that is
 * what pages come into. */
static uint64_t most_bytes(const dfx_model *m, uint64_t largest) {
    uint64_t budget = m->ram_budget_bytes, staging = dfx_plan_staging_most(largest, budget);
    if (staging > budget)
        return 0; /* there will be room for no session */
    if (m->offload == DFX_OFFLOAD_NVME)
        return staging;
    return budget - staging < EARLY_BYTES_MAX ? budget - staging : EARLY_BYTES_MAX;
}

dfx_status dfx_early_begin(dfx_model *m) {
    dfx_tier_options options = {.packed = m->packed, .timeline = m->timeline};
    uint32_t *page_idx;
    uint64_t largest;
    if (m->tier)
        return DFX_OK;
    DFX_TRY(dfx_tier_open(&options, &m->sink, &m->tier));
    DFX_TRY(dfx_new_array(&m->sink, dfx_packed_n_pages(m->packed), "early pages", &page_idx));
    dfx_tier_early early = {.page_idx = page_idx,
                            .n_pages = list_pages(m->packed, page_idx, &largest),
                            .most_bytes = most_bytes(m, largest),
                            .in_block = m->offload == DFX_OFFLOAD_NVME};
    dfx_status status = dfx_tier_read_early(m->tier, &early);
    dfx_free(page_idx);
    return status;
}

uint64_t dfx_early_spare_bytes(const dfx_model *m, uint64_t ram_budget_bytes, uint64_t host_bytes) {
    return m->offload != DFX_OFFLOAD_NVME && !m->profile.unified && ram_budget_bytes > host_bytes
               ? ram_budget_bytes - host_bytes
               : 0;
}
