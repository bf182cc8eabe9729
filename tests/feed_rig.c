/* See tests/feed_rig.h. The planner here knows one rule: pages that do not stay take the slots in turn, and a place is
 * free when the last visit that used it has ended. */
#include "tests/feed_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/builder.h"
#include "tests/stfile.h"

enum { BLOCK = DFX_DISK_ALIGN, COLS = 128, ROW_BYTES = 2 * COLS };

uint64_t feed_rig_random(feed_rig *rig, uint64_t below) {
    rig->random = rig->random * 6364136223846793005u + 1442695040888963407u;
    return (rig->random >> 33) % below;
}

static fake_device *device_of(dfx_backend *be) {
    return (fake_device *)be;
}

static dfx_status device_pinned_alloc(dfx_backend *be, size_t bytes, const char *tag,
                                      dfx_mem *out) {
    dfx_mem block;
    DFX_TRY(dfx_mem_alloc(device_of(be)->sink, bytes + 2 * BLOCK, tag, &block));
    uintptr_t aligned = dfx_align_up((uintptr_t)block.ptr + sizeof(block), BLOCK);
    memcpy((char *)aligned - sizeof(block), &block, sizeof(block));
    *out = (dfx_mem){(void *)aligned, bytes, DFX_SPACE_PINNED, tag};
    device_of(be)->pinned_bytes += bytes;
    return DFX_OK;
}

static void device_pinned_free(dfx_backend *be, dfx_mem *mem) {
    dfx_mem block;
    device_of(be)->pinned_bytes -= mem->bytes;
    memcpy(&block, (char *)mem->ptr - sizeof(block), sizeof(block));
    dfx_mem_free(&block);
    *mem = (dfx_mem){0};
}

static dfx_status device_pin(dfx_backend *be, void *ptr, size_t bytes) {
    fake_device *device = device_of(be);
    if ((uintptr_t)ptr % BLOCK != 0 || bytes % BLOCK != 0 || ++device->n_pins == device->pin_fault)
        return dfx_fail(device->sink, DFX_E_NOFIT, "the memory is not pinned");
    device->pinned_bytes += bytes;
    return DFX_OK;
}

static void device_unpin(dfx_backend *be, void *ptr, size_t bytes) {
    device_of(be)->pinned_bytes -= bytes;
}

static void end_visits(fake_device *device, uint32_t visit) {
    for (uint32_t v = 0; v <= visit && v < FEED_RIG_VISITS_MAX; v++)
        device->queued_from[v] = device->queued_to[v] = NULL;
}

/* Copies up to `copy`, under the lock. Each waits for the visits that it was told to wait for, and for no other. */
static void run_copies(fake_device *device, uint32_t copy) {
    for (; device->n_run <= copy; device->n_run++) {
        const fake_copy *c = &device->copies[device->n_run % DFX_COPIES_AHEAD];
        if (!c->is_held || c->number != device->n_run)
            continue;
        if (c->after_visit != DFX_NO_MARK)
            end_visits(device, c->after_visit);
        if (c->dst < device->pinned_to && c->dst + c->bytes > device->pinned_from)
            device->overwritten = true;
        for (uint32_t v = 0; v < FEED_RIG_VISITS_MAX; v++)
            if (c->dst < device->queued_to[v] && c->dst + c->bytes > device->queued_from[v])
                device->overwritten = true;
        memcpy(c->dst, c->src, c->bytes);
    }
}

/* Pages that are read to their place have numbers, too, but are not copied. */
static dfx_status device_copy_begin(dfx_backend *be, uint32_t copy, uint32_t after_visit, void *dst,
                                    const void *src, size_t bytes) {
    fake_device *device = device_of(be);
    if (++device->n_copies == device->copy_fault)
        return dfx_fail(device->sink, DFX_E_DEVICE, "the device is gone");
    if (device->copy_delay_us)
        usleep(device->copy_delay_us);
    pthread_mutex_lock(&device->lock);
    if (copy < device->n_run) /* a new picture */
        device->n_run = copy;
    device->too_far |= device->copies[copy % DFX_COPIES_AHEAD].is_held;
    device->copies[copy % DFX_COPIES_AHEAD] =
        (fake_copy){.is_held = true, copy, dst, src, bytes, after_visit};
    pthread_mutex_unlock(&device->lock);
    return DFX_OK;
}

static dfx_status device_copy_join(dfx_backend *be, uint32_t copy) {
    fake_device *device = device_of(be);
    pthread_mutex_lock(&device->lock);
    run_copies(device, copy);
    pthread_mutex_unlock(&device->lock);
    return DFX_OK;
}

static dfx_status device_copy_wait(dfx_backend *be, uint32_t copy) {
    DFX_TRY(device_copy_join(be, copy));
    device_of(be)->copies[copy % DFX_COPIES_AHEAD].is_held = false;
    return DFX_OK;
}

static dfx_status device_wait_mark(dfx_backend *be, uint32_t visit) {
    fake_device *device = device_of(be);
    pthread_mutex_lock(&device->lock);
    end_visits(device, visit);
    pthread_mutex_unlock(&device->lock);
    return DFX_OK;
}

static const dfx_backend_vtable device_vtable = {.pinned_alloc = device_pinned_alloc,
                                                 .pinned_free = device_pinned_free,
                                                 .pin = device_pin,
                                                 .unpin = device_unpin,
                                                 .copy_begin = device_copy_begin,
                                                 .copy_wait = device_copy_wait,
                                                 .copy_join = device_copy_join,
                                                 .wait_mark = device_wait_mark};

/* BF16, none of it infinite: noise, which LZ4 leaves alone, or every upper byte a zero. */
static void fill_page(feed_rig *rig, unsigned char *page, size_t bytes, bool compressed) {
    for (size_t i = 0; i < bytes; i += 2) {
        page[i] = (unsigned char)feed_rig_random(rig, 256);
        page[i + 1] = compressed ? 0 : (unsigned char)feed_rig_random(rig, 127);
    }
}

/* A checkpoint with one tensor a page: BF16 [rows, COLS] called p<page>.w.weight. */
static void write_source(feed_rig *rig, const feed_rig_shape *shape) {
    char header[FEED_RIG_PAGES_MAX * 100] = "{", *end = header + 1;
    size_t n_bytes = 0;
    unsigned char *data = NULL;
    for (uint32_t p = 0; p < shape->n_pages; p++) {
        size_t rows = 1 + feed_rig_random(rig, shape->small ? 60 : 12000);
        size_t bytes = rows * ROW_BYTES;
        rig->wanted[p] = malloc(bytes);
        data = realloc(data, n_bytes + bytes);
        assert_true(rig->wanted[p] && data);
        fill_page(rig, rig->wanted[p], bytes, shape->compressed >> p & 1);
        memcpy(data + n_bytes, rig->wanted[p], bytes);
        end += sprintf(
            end,
            "%s\"p%u.w.weight\":{\"dtype\":\"BF16\",\"shape\":[%zu,%d],\"data_offsets\":[%zu,%zu]}",
            p ? "," : "", p, rows, COLS, n_bytes, n_bytes + bytes);
        n_bytes += bytes;
    }
    *end = '}';
    stfile_write(rig->dir, "source", header, data, n_bytes);
    free(data);
}

static void write_pages(feed_rig *rig, const feed_rig_shape *shape) {
    const dfx_sink *sink = &rig->dir->log.sink;
    char source_path[TMPDIR_PATH];
    dfx_tensors *set;
    dfx_builder b;
    dfx_program program;
    dfx_pack_report report;
    write_source(rig, shape);
    tmpdir_join(rig->dir, "source", source_path);
    assert_int_equal(dfx_tensors_open_file(source_path, sink, &set), DFX_OK);
    dfx_build_env env = {.tensors = set, .act_dtype = DFX_DTYPE_F32, .sink = sink};
    dfx_builder_init(&b, "step", "transformer", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", 1, COLS, DFX_DTYPE_F32);
    for (uint32_t p = 0; p < shape->n_pages; p++) {
        char name[32];
        snprintf(name, sizeof(name), "p%u.w.weight", p);
        dfx_builder_page(&b, "p%u", p);
        dfx_linear(&b, &(dfx_linear_spec){.x = x,
                                          .name = "w",
                                          .n = dfx_tensors_find(set, name)->shape[0],
                                          .no_bias = true});
    }
    assert_int_equal(dfx_builder_finish(&b, &program), DFX_OK);
    dfx_pack_source source = {.programs = &(const dfx_program *){&program},
                              .components = (const char *const[]){"transformer"},
                              .n_programs = 1};
    dfx_pack_options options = {.quant = DFX_Q_STORED, .compress = true, .n_threads = 1};
    assert_int_equal(dfx_pack_write(&source, &options, rig->path, sink, &report), DFX_OK);
    assert_int_equal(dfx_packed_open(rig->path, sink, &rig->packed), DFX_OK);
    for (uint32_t p = 0; p < shape->n_pages; p++) {
        rig->page_idx[p] = (uint32_t)dfx_packed_page_of(rig->packed, &program, p);
        rig->pages[p] = *dfx_packed_page_at(rig->packed, rig->page_idx[p]);
        bool is_compressed = rig->pages[p].codec != DFX_CODEC_RAW;
        assert_int_equal(is_compressed, shape->compressed >> p & 1);
    }
    dfx_program_fini(&program);
    dfx_tensors_close(set);
}

/* Pages in turn, n_repeats times over; those that stay first in the arena, the slots behind them. */
static void make_plan(feed_rig *rig, const feed_rig_shape *shape) {
    dfx_plan *plan = &rig->plan;
    uint64_t places[FEED_RIG_PAGES_MAX], off = 0, slot_bytes = 0, staged_bytes = 0;
    uint32_t last_of_slot[FEED_RIG_PAGES_MAX], n_streamed = 0;
    for (uint32_t p = 0; p < shape->n_pages; p++) {
        rig->resident[p] = rig->permanent[p] = shape->resident >> p & 1;
        rig->in_ram[p] = shape->in_ram >> p & 1;
        if (!rig->in_ram[p] && rig->pages[p].bytes > staged_bytes)
            staged_bytes = rig->pages[p].bytes;
        if (rig->in_ram[p])
            plan->host_bytes += rig->pages[p].bytes;
        places[p] = off;
        if (rig->resident[p])
            off += rig->pages[p].bytes;
        else if (rig->pages[p].bytes > slot_bytes)
            slot_bytes = rig->pages[p].bytes;
    }
    for (uint32_t s = 0; s < shape->n_slots; s++)
        last_of_slot[s] = DFX_NO_VISIT;
    for (uint32_t v = 0; v < shape->n_pages * shape->n_repeats; v++) {
        uint32_t p = v % shape->n_pages, slot = n_streamed % shape->n_slots;
        uint64_t place = rig->resident[p] ? places[p] : off + slot * slot_bytes;
        rig->visits[v] = (dfx_visit){.page_idx = p, .off = place};
        if (rig->resident[p] && v >= shape->n_pages)
            continue;
        rig->transfers[plan->n_transfers++] =
            (dfx_transfer){.page_idx = p,
                           .after_visit = rig->resident[p] ? DFX_NO_VISIT : last_of_slot[slot],
                           .for_visit = v,
                           .once = rig->resident[p],
                           .off = place};
        if (!rig->resident[p]) {
            last_of_slot[slot] = v;
            n_streamed++;
        }
    }
    plan->visits = rig->visits;
    plan->transfers = rig->transfers;
    plan->in_ram = rig->in_ram;
    plan->permanent = rig->permanent;
    plan->resident = rig->resident;
    plan->n_visits = shape->n_pages * shape->n_repeats;
    plan->n_pages = shape->n_pages;
    plan->n_slots = shape->n_slots;
    plan->slot_bytes = slot_bytes;
    plan->arena_bytes = off + shape->n_slots * slot_bytes;
    plan->n_staging = shape->unified ? 0 : shape->n_staging;
    plan->staging_bytes = staged_bytes;
    plan->host_bytes += plan->n_staging * staged_bytes;
}

void feed_rig_init(feed_rig *rig, tmpdir *dir, uint64_t seed, const feed_rig_shape *shape) {
    *rig = (feed_rig){.dir = dir, .random = seed, .n_pages = shape->n_pages};
    tmpdir_join(dir, "model", rig->path);
    flaky_init(&rig->flaky);
    rig->device.backend = (dfx_backend){.vt = &device_vtable, .name = "fake"};
    rig->device.sink = &dir->log.sink;
    pthread_mutex_init(&rig->device.lock, NULL);
    write_pages(rig, shape);
    make_plan(rig, shape);
    void *arena = NULL;
    assert_int_equal(posix_memalign(&arena, BLOCK, rig->plan.arena_bytes + 1), 0);
    rig->arena = arena;
    rig->options = (dfx_feed_options){.plan = &rig->plan,
                                      .packed = rig->packed,
                                      .page_idx = rig->page_idx,
                                      .backend = &rig->device.backend,
                                      .arena = arena,
                                      .queue_depth = 4,
                                      .unified = shape->unified,
                                      .os = &rig->flaky.os};
}

void feed_rig_fini(feed_rig *rig) {
    feed_rig_close(rig);
    assert_int_equal(rig->device.pinned_bytes, 0);
    assert_false(rig->device.overwritten);
    assert_false(rig->device.too_far);
    pthread_mutex_destroy(&rig->device.lock);
    dfx_packed_close(rig->packed);
    for (uint32_t p = 0; p < rig->n_pages; p++)
        free(rig->wanted[p]);
    free(rig->arena);
}

dfx_status feed_rig_open(feed_rig *rig) {
    memset(rig->arena, 0xab, rig->plan.arena_bytes);
    dfx_status status = feed_rig_open_tier(rig);
    if (status == DFX_OK)
        status = dfx_feed_open(&rig->options, &rig->dir->log.sink, &rig->feed);
    if (status != DFX_OK)
        feed_rig_close(rig);
    return status;
}

dfx_status feed_rig_open_tier(feed_rig *rig) {
    dfx_tier_options options = {
        .packed = rig->packed, .os = rig->options.os, .timeline = rig->options.timeline};
    return rig->options.tier ? DFX_OK
                             : dfx_tier_open(&options, &rig->dir->log.sink, &rig->options.tier);
}

void feed_rig_close(feed_rig *rig) {
    dfx_feed_close(rig->feed);
    rig->feed = NULL;
    dfx_tier_close(rig->options.tier);
    rig->options.tier = NULL;
}

static void look(const feed_rig *rig, uint32_t visit, const unsigned char *base) {
    uint32_t p = rig->visits[visit].page_idx;
    const unsigned char *wanted = rig->wanted[p];
    if (memcmp(base, wanted, rig->pages[p].bytes) == 0)
        return;
    uint64_t at = 0;
    while (base[at] == wanted[at])
        at++;
    fail_msg("visit %u, page %u, byte %llu: found %02x, wanted %02x", visit, p,
             (unsigned long long)at, base[at], wanted[at]);
}

static void watch(feed_rig *rig, void *from, uint64_t bytes) {
    pthread_mutex_lock(&rig->device.lock);
    rig->device.pinned_from = from;
    rig->device.pinned_to = (char *)from + bytes;
    pthread_mutex_unlock(&rig->device.lock);
}

/* The executor has left the visit; the device has not. */
static void queue(feed_rig *rig, uint32_t visit, char *place) {
    watch(rig, NULL, 0);
    pthread_mutex_lock(&rig->device.lock);
    rig->device.queued_from[visit] = place;
    rig->device.queued_to[visit] = place + rig->pages[rig->visits[visit].page_idx].bytes;
    pthread_mutex_unlock(&rig->device.lock);
}

dfx_status feed_rig_visits(feed_rig *rig, uint32_t first, uint32_t end) {
    for (uint32_t v = first; v < end; v++) {
        void *base;
        DFX_TRY(dfx_feed_pin(rig->feed, v, NULL, NULL, &base));
        assert_ptr_equal(base, rig->arena + rig->visits[v].off);
        watch(rig, base, rig->pages[rig->visits[v].page_idx].bytes);
        look(rig, v, base);
        if (feed_rig_random(rig, 3) == 0) {
            usleep(200); /* computing */
            look(rig, v, base);
        }
        queue(rig, v, base);
        dfx_feed_unpin(rig->feed, v);
    }
    return DFX_OK;
}

dfx_status feed_rig_picture(feed_rig *rig, uint32_t first) {
    dfx_status status = dfx_feed_begin(rig->feed, &(dfx_feed_visits){.first = first});
    if (status == DFX_OK)
        status = feed_rig_visits(rig, first, rig->plan.n_visits);
    dfx_feed_end(rig->feed);
    return status;
}

uint64_t feed_rig_copied_bytes(const feed_rig *rig, bool first_picture) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < rig->plan.n_transfers; k++) {
        const dfx_transfer *t = &rig->transfers[k];
        bool to_place = rig->options.unified && !rig->in_ram[t->page_idx];
        if ((first_picture || !t->once) && !to_place)
            bytes += rig->pages[t->page_idx].bytes;
    }
    return bytes;
}

uint64_t feed_rig_read_bytes(const feed_rig *rig, bool first_picture) {
    uint64_t bytes = 0;
    bool is_read[FEED_RIG_PAGES_MAX] = {0};
    for (uint32_t k = 0; k < rig->plan.n_transfers; k++) {
        const dfx_transfer *t = &rig->transfers[k];
        if (rig->in_ram[t->page_idx] ? first_picture && !is_read[t->page_idx]
                                     : first_picture || !t->once)
            bytes += rig->pages[t->page_idx].stored_bytes;
        is_read[t->page_idx] = true;
    }
    return bytes;
}
