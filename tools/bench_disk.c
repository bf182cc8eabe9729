/* See bench_disk.h. Reads go around the file, each from where the last one ended, so that whatever the disk or its host
 * remembers is used as late as can be. The depths take turns, so that a slow moment meets all of them. */
#include "tools/bench_disk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "offload/disk.h"

static const uint32_t DEPTHS[] = {8, 16, 32};

enum {
    N_DEPTHS = DFX_COUNT(DEPTHS),
    N_BUFFERS = 4,
    BUFFER_BYTES = 16 << 20, /* like a page of some size */
    OWN_FILE_BYTES = 1 << 30,
    FILE_BYTES_LEAST = 1 << 20,
    SMALL_READS = 32 /* of a run */
};

typedef struct bench {
    const dfx_sink *sink;
    bool (*cancelled)(void *user);
    const char *path; /* what is read */
    char own[64];     /* the path of a file without a name */
    dfx_file_writer writer;
    bool writing; /* the file is ours, and writer must be aborted */
    uint64_t file_bytes, next;
    dfx_mem memory, buffers; /* buffers: the aligned part of memory */
    dfx_disk *disks[N_DEPTHS];
} bench;

/* Numbers without a pattern: a file system that compresses gains nothing. */
static void make_noise(uint64_t *words, size_t n, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        words[i] = *state;
    }
}

static dfx_status write_own(bench *b) {
    uint64_t state = 1;
    DFX_TRY(dfx_file_write_room(&b->writer, b->sink, OWN_FILE_BYTES));
    for (uint64_t off = 0; off < OWN_FILE_BYTES; off += BUFFER_BYTES) {
        if (b->cancelled(NULL))
            return DFX_E_CANCELLED;
        make_noise(b->buffers.ptr, BUFFER_BYTES / sizeof(uint64_t), &state);
        DFX_TRY(dfx_file_write(&b->writer, b->sink, b->buffers.ptr, BUFFER_BYTES));
        DFX_TRY(dfx_file_write_start(&b->writer, b->sink, off, BUFFER_BYTES));
        if (off > 0)
            DFX_TRY(dfx_file_write_settle(&b->writer, b->sink, off - BUFFER_BYTES, BUFFER_BYTES));
    }
    DFX_TRY(
        dfx_file_write_settle(&b->writer, b->sink, OWN_FILE_BYTES - BUFFER_BYTES, BUFFER_BYTES));
    b->file_bytes = OWN_FILE_BYTES;
    return DFX_OK;
}

/* The writer's target gets its name at commit only, which never comes. */
static dfx_status make_own(bench *b, const char *folder) {
    char target[DFX_PATH_BYTES];
    DFX_TRY(dfx_path_join(b->sink, folder, "dfx-bench", target));
    DFX_TRY(dfx_file_write_begin_large(target, b->sink, &b->writer));
    b->writing = true;
    snprintf(b->own, sizeof(b->own), "/proc/self/fd/%d", b->writer.fd);
    b->path = b->writer.temp_path ? b->writer.temp_path : b->own;
    return write_own(b);
}

static dfx_status use_file(bench *b, const char *path) {
    dfx_file file;
    DFX_TRY(dfx_file_open(path, b->sink, &file));
    b->path = path;
    b->file_bytes = file.bytes / DFX_DISK_ALIGN * DFX_DISK_ALIGN;
    dfx_file_close(&file);
    if (b->file_bytes < FILE_BYTES_LEAST)
        return dfx_fail(b->sink, DFX_E_USAGE,
                        "%s: wanted a file of at least %d bytes to read, found %llu; a folder will "
                        "do, a file is written there",
                        path, FILE_BYTES_LEAST, (unsigned long long)file.bytes);
    if (b->file_bytes < OWN_FILE_BYTES)
        dfx_warn(b->sink,
                 "%s: a file below 1 GiB may lie in a cache of the disk; its rates may be too good",
                 path);
    return DFX_OK;
}

static dfx_status set_up(bench *b, const char *path) {
    size_t bytes = (size_t)N_BUFFERS * BUFFER_BYTES;
    DFX_TRY(dfx_mem_alloc(b->sink, bytes + DFX_DISK_ALIGN, "bench", &b->memory));
    b->buffers = (dfx_mem){.ptr = (void *)dfx_align_up((uintptr_t)b->memory.ptr, DFX_DISK_ALIGN),
                           .bytes = bytes,
                           .tag = "bench"};
    DFX_TRY(dfx_file_is_dir(path) ? make_own(b, path) : use_file(b, path));
    for (int i = 0; i < N_DEPTHS; i++)
        DFX_TRY(dfx_disk_open(
            &(dfx_disk_options){
                .path = b->path, .queue_depth = DEPTHS[i], .buffers = &b->buffers, .n_buffers = 1},
            b->sink, &b->disks[i]));
    return DFX_OK;
}

static void tear_down(bench *b) {
    for (int i = 0; i < N_DEPTHS; i++)
        dfx_disk_close(b->disks[i]);
    if (b->writing)
        dfx_file_write_abort(&b->writer);
    dfx_mem_free(&b->memory);
}

/* The next at most `most` bytes of the file; it begins anew at its end. */
static dfx_status submit(bench *b, dfx_disk *disk, uint64_t buffer, size_t most, size_t *bytes) {
    uint64_t left = b->file_bytes - b->next;
    *bytes = left < most ? (size_t)left : most;
    dfx_disk_range range = {.off = b->next,
                            .dst = (char *)b->buffers.ptr + buffer * BUFFER_BYTES,
                            .bytes = *bytes,
                            .room = BUFFER_BYTES};
    b->next = (b->next + *bytes) % b->file_bytes;
    return dfx_disk_submit(disk, &range);
}

/* Bytes a second. Ranges end in their order, so buffers are free again in theirs. */
static dfx_status read_stretch(bench *b, dfx_disk *disk, double *rate) {
    uint64_t n_submitted = 0, n_ended = 0, all_bytes = 0;
    double began = dfx_bench_seconds();
    for (;;) {
        bool more = dfx_bench_seconds() - began < DFX_BENCH_RUN_SECONDS;
        while ((more || n_submitted == 0) && n_submitted - n_ended < N_BUFFERS) {
            size_t bytes;
            DFX_TRY(submit(b, disk, n_submitted++ % N_BUFFERS, BUFFER_BYTES, &bytes));
            all_bytes += bytes;
        }
        if (n_ended == n_submitted)
            break;
        uint32_t n_done;
        DFX_TRY(dfx_disk_step(disk, &n_done));
        n_ended += n_done;
        if (b->cancelled(NULL))
            return DFX_E_CANCELLED;
    }
    *rate = (double)all_bytes / (dfx_bench_seconds() - began);
    return DFX_OK;
}

/* Seconds of a read of one block with nothing else in flight; each skips what a disk might have read ahead. */
static dfx_status read_alone(bench *b, dfx_disk *disk, double *seconds) {
    double began = dfx_bench_seconds();
    for (int i = 0; i < SMALL_READS; i++) {
        size_t bytes;
        DFX_TRY(submit(b, disk, 0, DFX_DISK_ALIGN, &bytes));
        for (uint32_t n_done = 0; n_done == 0;)
            DFX_TRY(dfx_disk_step(disk, &n_done));
        b->next = (b->next + (7 << 20)) / DFX_DISK_ALIGN * DFX_DISK_ALIGN % b->file_bytes;
    }
    *seconds = (dfx_bench_seconds() - began) / SMALL_READS;
    return DFX_OK;
}

static dfx_status measure(bench *b, uint32_t n_runs, dfx_bench_disk *out) {
    dfx_bench_sample rates[N_DEPTHS] = {0};
    double value, best = 0;
    int least = N_DEPTHS - 1;
    for (uint32_t run = 0; run < n_runs; run++)
        for (int i = 0; i < N_DEPTHS; i++) {
            DFX_TRY(read_stretch(b, b->disks[i], &value));
            dfx_bench_sample_add(&rates[i], value);
        }
    for (int i = 0; i < N_DEPTHS; i++)
        best = rates[i].median > best ? rates[i].median : best;
    while (least > 0 && rates[least - 1].median >= 0.97 * best)
        least--;
    for (uint32_t run = 0; run < n_runs; run++) {
        DFX_TRY(read_alone(b, b->disks[0], &value));
        dfx_bench_sample_add(&out->latency, value);
    }
    out->rate = rates[least];
    out->queue_depth = DEPTHS[least];
    out->mode = dfx_disk_mode(b->disks[least]);
    return DFX_OK;
}

dfx_status dfx_bench_disk_run(const char *path, uint32_t n_runs, bool (*cancelled)(void *user),
                              const dfx_sink *sink, dfx_bench_disk *out) {
    bench b = {.sink = sink, .cancelled = cancelled};
    *out = (dfx_bench_disk){0};
    dfx_status status = set_up(&b, path);
    if (status == DFX_OK)
        status = measure(&b, n_runs, out);
    out->file_bytes = b.file_bytes;
    tear_down(&b);
    return status;
}
