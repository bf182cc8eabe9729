/* One picture is a list of transfers, in the order of the timetable, and five cursors into it, under one lock:
 *
 *   COLD --ask_all--> READING --read_some--> PINNED or STAGED --begin_copy, verified--> COMING --end_copy--> PLACED
 *              n_asked                          n_read                       n_begun              n_placed
 *
 *   n_placed <= n_begun <= n_read <= n_asked <= n_list;   n_ended counts visits
 *   reader   asks for a page when it has a place to read to: its own of the RAM tier; a staging buffer, free again when
 *            the page that was in it is placed; on unified memory the place itself, free after `after_visit`. Pages that
 *            are in the RAM tier already pass without a read.
 *   copier   checks the next page that is read and begins its copy when the end of `after_visit` is marked, a few copies ahead,
 *            and otherwise waits for the oldest of them to end. A page that was read to its place passes.
 *   pin      of a page that is coming makes the ops wait, not the caller.
 *
 * A visit ends twice: unpinned, its ops are queued and their end is marked; some time later they have run. A copy to its
 * place is queued after the first and begins after the second: the device waits for that, not the host.
 *
 * Staging buffers are used in turn, so the number of staged transfers says which. A failure or dfx_feed_end sets `stop`:
 * both threads then let go of what they hold and wait for the next picture. Whoever changes a cursor wakes the others;
 * nobody polls but a pin that can be cancelled.
 * Every wait ends because the plan cannot wait for itself, which dfx_feed_plan_check has made sure of. */
#include "offload/page_feed_internal.h"

static void *reader_main(void *raw);
static void *copier_main(void *raw);
static dfx_status start_threads(dfx_feed *feed);
static void settle(dfx_feed *feed);
static void wait_ops(const dfx_feed *feed);

dfx_status dfx_feed_open(const dfx_feed_options *options, const dfx_sink *sink, dfx_feed **out) {
    dfx_feed *feed;
    dfx_status status;
    DFX_TRY(dfx_new(sink, "page feed", &feed));
    feed->o = *options;
    feed->sink = sink;
    feed->stop = true; /* until a picture begins */
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, &clock);
    pthread_condattr_destroy(&clock);
    DFX_TRY_OUT(status, dfx_feed_plan_check(feed));
    DFX_TRY_OUT(status, dfx_feed_memory_init(feed));
    DFX_TRY_OUT(status, start_threads(feed));
    *out = feed;
    return DFX_OK;
out:
    dfx_feed_close(feed);
    return status;
}

void dfx_feed_close(dfx_feed *feed) {
    if (!feed)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->stop = feed->closing = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
    for (int i = 0; i < feed->n_threads; i++)
        pthread_join(feed->threads[i], NULL);
    wait_ops(feed);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
    dfx_feed_memory_fini(feed);
    dfx_free(feed);
}

static dfx_status start_threads(dfx_feed *feed) {
    static void *(*const mains[])(void *) = {reader_main, copier_main};
    for (size_t i = 0; i < DFX_COUNT(mains); i++) {
        if (pthread_create(&feed->threads[i], NULL, mains[i], feed) != 0)
            return dfx_fail(feed->sink, DFX_E_NOFIT,
                            "could not start the threads that read and copy pages; raise the limit "
                            "of processes (ulimit -u)");
        feed->n_threads++;
    }
    return DFX_OK;
}

dfx_status dfx_feed_begin(dfx_feed *feed, const dfx_feed_visits *visits) {
    const dfx_plan *plan = feed->o.plan;
    if (visits->first > plan->n_visits || visits->skip_from > visits->skip_to ||
        visits->skip_to > plan->n_visits)
        return dfx_fail(feed->sink, DFX_E_INTERNAL,
                        "page feed: wanted some of %u visits, found %u, without %u to %u",
                        plan->n_visits, visits->first, visits->skip_from, visits->skip_to);
    settle(feed);
    pthread_mutex_lock(&feed->lock);
    feed->stats.read_bytes += dfx_tier_take_read_bytes(feed->o.tier);
    feed->visits = *visits;
    dfx_feed_list_make(feed);
    feed->n_asked = feed->n_read = feed->n_begun = feed->n_placed = feed->n_joined = 0;
    feed->n_staging_asked = feed->n_staging_begun = feed->n_staging_placed = 0;
    dfx_feed_set_n_ended(feed, visits->first);
    feed->status = DFX_OK;
    feed->stop = false;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
    return DFX_OK;
}

dfx_status dfx_feed_decide(dfx_feed *feed, uint32_t skip_from, uint32_t hold_from) {
    dfx_status status = DFX_OK;
    pthread_mutex_lock(&feed->lock);
    dfx_feed_visits *v = &feed->visits;
    bool later = hold_from == 0 || (v->hold_from > 0 && hold_from >= v->hold_from);
    if (!later || skip_from > v->skip_from ||
        (skip_from < v->skip_from && (v->hold_from == 0 || skip_from < v->hold_from))) {
        status = dfx_fail(feed->sink, DFX_E_INTERNAL,
                          "page feed: visits from %u on were held, those from %u on skipped; "
                          "wanted later than the first, found %u and %u",
                          v->hold_from, v->skip_from, hold_from, skip_from);
    } else {
        v->hold_from = hold_from;
        if (skip_from < v->skip_from) {
            v->skip_from = skip_from;
            dfx_feed_set_n_ended(feed, feed->n_ended);
            dfx_feed_list_drop(feed);
        }
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

/* Whoever has the arena next may write anywhere at once, so ops of an abandoned picture must have run. A device that
 * fails now has told so, and fails the next picture too. Executor's thread, which alone changes n_ended. */
static void wait_ops(const dfx_feed *feed) {
    dfx_backend *be = feed->o.backend;
    uint32_t last = feed->n_ended > 0 ? dfx_feed_last_made(feed, feed->n_ended - 1) : DFX_NO_VISIT;
    if (last != DFX_NO_VISIT)
        be->vt->wait_mark(be, last);
}

void dfx_feed_unpin(dfx_feed *feed, uint32_t visit) {
    pthread_mutex_lock(&feed->lock);
    dfx_feed_set_n_ended(feed, visit + 1);
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

/* Nothing is in flight any more. */
static void settle(dfx_feed *feed) {
    pthread_mutex_lock(&feed->lock);
    feed->stop = true;
    pthread_cond_broadcast(&feed->changed);
    while (feed->n_jobs > 0 || feed->copying || feed->n_placed < feed->n_begun)
        pthread_cond_wait(&feed->changed, &feed->lock);
    feed->status = DFX_OK;
    pthread_mutex_unlock(&feed->lock);
    wait_ops(feed);
}

void dfx_feed_end(dfx_feed *feed) {
    settle(feed);
    dfx_tier_drop_early(feed->o.tier);
}

void dfx_feed_get_stats(const dfx_feed *feed, dfx_feed_stats *out) {
    dfx_feed *open = (dfx_feed *)feed; /* the lock changes, nothing else */
    pthread_mutex_lock(&open->lock);
    *out = feed->stats;
    pthread_mutex_unlock(&open->lock);
}

/* From here to the reader: under the lock. */

static void fail(dfx_feed *feed, dfx_status status) {
    if (feed->status == DFX_OK)
        feed->status = status;
    feed->stop = true;
}

static bool place_is_free(const dfx_feed *feed, const dfx_transfer *transfer) {
    return transfer->after_visit == DFX_NO_VISIT || transfer->after_visit < feed->n_ended;
}

static const dfx_transfer *transfer_at(const dfx_feed *feed, uint32_t position) {
    return &feed->o.plan->transfers[feed->list[position]];
}

static dfx_feed_way way_at(const dfx_feed *feed, uint32_t position) {
    return feed->way[feed->list[position]];
}

static void *staging_buffer(const dfx_feed *feed, uint64_t nth) {
    return (char *)feed->staging.ptr + nth % feed->o.plan->n_staging * feed->staging_stride;
}

/* Is there a place to read the next page to? */
static bool may_ask(dfx_feed *feed) {
    if (feed->stop || feed->n_asked == feed->n_list)
        return false;
    const dfx_transfer *transfer = transfer_at(feed, feed->n_asked);
    if (dfx_feed_is_held(feed, transfer->for_visit))
        return false;
    uint32_t page_idx = transfer->page_idx;
    dfx_feed_way way = dfx_feed_way_of(feed, page_idx);
    if (dfx_feed_held(feed, page_idx)->loaded) /* kept, or early */
        return true;
    if (feed->n_jobs == DFX_DISK_RANGES_MAX)
        return false;
    if (dfx_feed_page(feed, page_idx)->codec != DFX_CODEC_RAW &&
        feed->n_stored_used == FEED_STORED_BUFFERS)
        return false;
    if (way == FEED_WAY_STAGED)
        return feed->n_staging_asked - feed->n_staging_placed < feed->o.plan->n_staging &&
               dfx_feed_buffer_is_empty(feed, staging_buffer(feed, feed->n_staging_asked));
    return way == FEED_WAY_RAM || place_is_free(feed, transfer);
}

/* Which mark says that the place is free. */
static uint32_t mark_of(const dfx_feed *feed, const dfx_transfer *transfer) {
    uint32_t visit = dfx_feed_last_made(feed, transfer->after_visit);
    return visit == DFX_NO_VISIT ? DFX_NO_MARK : visit;
}

/* The ops that used the place have run. */
static dfx_status wait_place(const dfx_feed *feed, const dfx_transfer *transfer) {
    dfx_backend *be = feed->o.backend;
    uint32_t mark = mark_of(feed, transfer);
    return mark == DFX_NO_MARK ? DFX_OK : be->vt->wait_mark(be, mark);
}

/* Where the bytes of the page shall be, and how much may be written there. */
static void *reading_place(dfx_feed *feed, const dfx_transfer *transfer, dfx_feed_way way,
                           size_t *room) {
    if (way == FEED_WAY_RAM) {
        *room = dfx_tier_page_bytes(feed->o.tier, feed->o.page_idx[transfer->page_idx]);
        return dfx_feed_held(feed, transfer->page_idx)->mem.ptr;
    }
    if (way == FEED_WAY_STAGED) {
        *room = feed->staging_stride;
        return staging_buffer(feed, feed->n_staging_asked++);
    }
    *room = (size_t)dfx_feed_page(feed, transfer->page_idx)->bytes; /* others live behind it */
    return (char *)feed->o.arena + transfer->off;
}

/* A page that is there is not read. One that came early is so for the first that asks: it will be gone. */
static bool take_loaded(dfx_feed *feed, const dfx_transfer *transfer) {
    dfx_tier_page *held = dfx_feed_held(feed, transfer->page_idx);
    dfx_feed_way *way = &feed->way[feed->list[feed->n_asked]];
    *way = dfx_feed_way_of(feed, transfer->page_idx);
    if (!held->loaded)
        return false;
    if (*way != FEED_WAY_RAM) {
        *way = FEED_WAY_EARLY;
        held->loaded = false;
    }
    feed->n_asked++;
    return true;
}

static dfx_status ask(dfx_feed *feed) {
    const dfx_transfer *transfer = transfer_at(feed, feed->n_asked);
    const dfx_packed_page *page = dfx_feed_page(feed, transfer->page_idx);
    if (take_loaded(feed, transfer))
        return DFX_OK;
    dfx_feed_way way = way_at(feed, feed->n_asked);
    if (way == FEED_WAY_RAM) /* for those that ask later: jobs end in order */
        dfx_feed_held(feed, transfer->page_idx)->loaded = true;
    if (way == FEED_WAY_PLACE)
        DFX_TRY(wait_place(feed, transfer));
    feed_job *job = &feed->jobs[(feed->first_job + feed->n_jobs++) % DFX_DISK_RANGES_MAX];
    *job = (feed_job){
        .position = feed->n_asked++, .page_idx = transfer->page_idx, .asked_ns = dfx_clock_ns()};
    size_t room;
    job->dst = reading_place(feed, transfer, way, &room);
    dfx_disk_range range = {
        .off = page->off, .dst = job->dst, .bytes = (size_t)page->stored_bytes, .room = room};
    if (page->codec != DFX_CODEC_RAW) {
        job->stored = (char *)feed->stored.ptr + feed->next_stored * feed->stored_stride;
        feed->next_stored = (feed->next_stored + 1) % FEED_STORED_BUFFERS;
        feed->n_stored_used++;
        range.dst = job->stored;
        range.room = feed->stored_stride;
    }
    return dfx_disk_submit(feed->disk, &range);
}

/* All up to the oldest page that is still being read is read. */
static void set_n_read(dfx_feed *feed) {
    feed->n_read = feed->n_jobs > 0 ? feed->jobs[feed->first_job].position : feed->n_asked;
    pthread_cond_broadcast(&feed->changed);
}

static void ask_all(dfx_feed *feed) {
    dfx_status status = DFX_OK;
    while (status == DFX_OK && may_ask(feed))
        status = ask(feed);
    if (status != DFX_OK)
        fail(feed, status);
    set_n_read(feed);
}

/* Several pages are read at once and are ready one after the other: each takes what passed since the one before. */
static void note_read(dfx_feed *feed, const feed_job *job) {
    const dfx_packed_page *page = dfx_feed_page(feed, job->page_idx);
    uint64_t begin_ns = job->asked_ns > feed->read_ns ? job->asked_ns : feed->read_ns;
    feed->read_ns = dfx_clock_ns();
    dfx_timeline_span(feed->o.timeline, DFX_TRACK_DISK, page->name, begin_ns, feed->read_ns,
                      page->stored_bytes);
}

/* The lock is given up while reading. The jobs are the reader's own; others only look whether there are any. */
static void read_some(dfx_feed *feed) {
    uint32_t n_done;
    pthread_mutex_unlock(&feed->lock);
    dfx_status status = dfx_disk_step(feed->disk, &n_done);
    pthread_mutex_lock(&feed->lock);
    feed->stats.io = dfx_disk_mode(feed->disk);
    for (uint32_t i = 0; status == DFX_OK && i < n_done && !feed->stop; i++) {
        feed_job job = feed->jobs[feed->first_job];
        pthread_mutex_unlock(&feed->lock);
        if (job.stored)
            status = dfx_packed_expand(dfx_feed_page(feed, job.page_idx), feed->sink, job.stored,
                                       job.dst, feed->scratch.ptr);
        note_read(feed, &job);
        pthread_mutex_lock(&feed->lock);
        if (status != DFX_OK)
            break;
        feed->stats.read_bytes += dfx_feed_page(feed, job.page_idx)->stored_bytes;
        feed->n_stored_used -= job.stored != NULL;
        feed->first_job = (feed->first_job + 1) % DFX_DISK_RANGES_MAX;
        feed->n_jobs--;
        set_n_read(feed);
    }
    if (status != DFX_OK)
        fail(feed, status);
}

/* The picture has ended early: nothing may write to memory when this returns, and no page half read counts as loaded. */
static void drop_jobs(dfx_feed *feed) {
    pthread_mutex_unlock(&feed->lock);
    dfx_disk_drain(feed->disk);
    pthread_mutex_lock(&feed->lock);
    for (uint32_t i = 0; i < feed->n_jobs; i++) {
        const feed_job *job = &feed->jobs[(feed->first_job + i) % DFX_DISK_RANGES_MAX];
        if (way_at(feed, job->position) == FEED_WAY_RAM)
            dfx_feed_held(feed, job->page_idx)->loaded = false;
    }
    feed->n_jobs = feed->n_stored_used = 0;
    pthread_cond_broadcast(&feed->changed);
}

static void *reader_main(void *raw) {
    dfx_feed *feed = raw;
    pthread_mutex_lock(&feed->lock);
    while (!feed->closing || feed->n_jobs > 0) {
        if (may_ask(feed))
            ask_all(feed);
        if (feed->n_jobs == 0)
            pthread_cond_wait(&feed->changed, &feed->lock);
        else if (feed->stop)
            drop_jobs(feed);
        else
            read_some(feed);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

static bool may_copy(const dfx_feed *feed) {
    return !feed->stop && feed->n_begun < feed->n_read &&
           feed->n_begun - feed->n_placed < DFX_COPIES_AHEAD &&
           place_is_free(feed, transfer_at(feed, feed->n_begun));
}

static void note_copy(const dfx_feed *feed, const dfx_transfer *transfer, uint64_t begin_ns,
                      uint64_t end_ns) {
    const dfx_packed_page *page = dfx_feed_page(feed, transfer->page_idx);
    dfx_timeline_span(feed->o.timeline, DFX_TRACK_COPY, page->name, begin_ns, end_ns, page->bytes);
}

/* What was read is what was packed, and a page in RAM is pinned. */
static dfx_status check_page(dfx_feed *feed, uint32_t page_idx, dfx_feed_way way, char *bytes) {
    dfx_tier_page *held = dfx_feed_held(feed, page_idx);
    if (!held->verified || (feed->o.verify == DFX_VERIFY_ALWAYS && way != FEED_WAY_RAM)) {
        held->verified = false;
        DFX_TRY(
            dfx_packed_verify(feed->o.packed, dfx_feed_page(feed, page_idx), bytes, feed->sink));
        held->verified = true;
    }
    return way == FEED_WAY_RAM || way == FEED_WAY_EARLY
               ? dfx_tier_pin(feed->o.tier, feed->o.page_idx[page_idx])
               : DFX_OK;
}

static dfx_status queue_copy(dfx_feed *feed, const dfx_transfer *transfer, uint32_t mark,
                             void *place, const void *src) {
    dfx_backend *be = feed->o.backend;
    uint64_t begin_ns = dfx_clock_ns();
    DFX_TRY(be->vt->copy_begin(be, feed->n_begun, mark, place, src,
                               (size_t)dfx_feed_page(feed, transfer->page_idx)->bytes));
    if (!be->vt->copy_times) /* it has been made */
        note_copy(feed, transfer, begin_ns, dfx_clock_ns());
    return DFX_OK;
}

/* The lock is given up while the page is looked at and the backend is asked; n_begun is the copier's own. */
static void begin_copy(dfx_feed *feed) {
    const dfx_transfer *transfer = transfer_at(feed, feed->n_begun);
    dfx_tier_page *held = dfx_feed_held(feed, transfer->page_idx);
    dfx_feed_way way = way_at(feed, feed->n_begun);
    uint32_t mark = mark_of(feed, transfer);
    char *place = (char *)feed->o.arena + transfer->off;
    char *src = way == FEED_WAY_STAGED  ? staging_buffer(feed, feed->n_staging_begun)
                : way == FEED_WAY_PLACE ? place
                                        : held->mem.ptr;
    feed->copying = true;
    pthread_mutex_unlock(&feed->lock);
    dfx_status status = check_page(feed, transfer->page_idx, way, src);
    if (status == DFX_OK && way != FEED_WAY_PLACE)
        status = queue_copy(feed, transfer, mark, place, src);
    pthread_mutex_lock(&feed->lock);
    feed->copying = false;
    if (status == DFX_OK) {
        feed->n_staging_begun += way == FEED_WAY_STAGED;
        feed->n_begun++;
    } else {
        if (way == FEED_WAY_RAM)
            held->loaded = held->verified;
        fail(feed, status);
    }
    pthread_cond_broadcast(&feed->changed);
}

/* The lock is given up while waiting for the oldest copy. After a failure the copies that were begun are still waited for:
 * nothing may write to the arena when the picture has ended. */
static void end_copy(dfx_feed *feed) {
    const dfx_transfer *transfer = transfer_at(feed, feed->n_placed);
    dfx_backend *be = feed->o.backend;
    dfx_feed_way way = way_at(feed, feed->n_placed);
    dfx_status status = DFX_OK;
    if (way != FEED_WAY_PLACE) {
        uint32_t copy = feed->n_placed;
        feed->copying = true;
        pthread_mutex_unlock(&feed->lock);
        status = be->vt->copy_wait(be, copy);
        dfx_times at;
        if (status == DFX_OK && be->vt->copy_times) {
            status = be->vt->copy_times(be, copy, &at);
            if (status == DFX_OK)
                note_copy(feed, transfer, (uint64_t)at.begin_ns, (uint64_t)at.end_ns);
        }
        if (way == FEED_WAY_EARLY)
            dfx_tier_drop_taken(feed->o.tier, feed->o.page_idx[transfer->page_idx]);
        pthread_mutex_lock(&feed->lock);
        feed->copying = false;
        feed->stats.copied_bytes += dfx_feed_page(feed, transfer->page_idx)->bytes;
        feed->n_staging_placed += way == FEED_WAY_STAGED;
    }
    if (status != DFX_OK)
        fail(feed, status);
    else
        feed->is_made[feed->list[feed->n_placed]] = transfer->once;
    feed->n_placed++;
    pthread_cond_broadcast(&feed->changed);
}

static void *copier_main(void *raw) {
    dfx_feed *feed = raw;
    pthread_mutex_lock(&feed->lock);
    while (!feed->closing || feed->n_placed < feed->n_begun) {
        if (may_copy(feed))
            begin_copy(feed);
        else if (feed->n_placed < feed->n_begun)
            end_copy(feed);
        else
            pthread_cond_wait(&feed->changed, &feed->lock);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}
