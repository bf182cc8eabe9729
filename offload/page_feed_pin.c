/* The executor's wait for a page: until it is in its place, or its copy is on its way there and ops can be made to wait for it;
 * and what the waiting was for. */
#include <time.h>

#include "offload/page_feed_internal.h"

enum { CANCEL_POLL_MS = 50 };

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a page is waited for, as things stand: a page that nobody reads yet has no place to be read to before others are
 * copied. */
static double *wait_seconds_of(dfx_feed *feed, uint32_t position) {
    bool is_copying = feed->copying || feed->n_placed < feed->n_begun;
    bool on_disk = position >= feed->n_read && (feed->n_jobs > 0 || !is_copying);
    return on_disk ? &feed->stats.disk_wait_seconds : &feed->stats.link_wait_seconds;
}

/* Until something changes. `until` NULL: however long it takes. */
static void wait_change(dfx_feed *feed, uint32_t position, const struct timespec *until) {
    double began = now_seconds(), *seconds = wait_seconds_of(feed, position);
    if (seconds == &feed->stats.disk_wait_seconds)
        feed->last_wait = DFX_FEED_WAIT_DISK;
    else if (feed->last_wait == DFX_FEED_NO_WAIT)
        feed->last_wait = DFX_FEED_WAIT_LINK;
    if (until)
        pthread_cond_timedwait(&feed->changed, &feed->lock, until);
    else
        pthread_cond_wait(&feed->changed, &feed->lock);
    *seconds += now_seconds() - began;
}

/* Under the lock, which is given up while waiting and while `cancelled` is asked. */
static dfx_status wait_begun(dfx_feed *feed, uint32_t position, bool (*cancelled)(void *user),
                             void *user) {
    while (feed->status == DFX_OK && position >= feed->n_begun) {
        if (!cancelled) {
            wait_change(feed, position, NULL);
            continue;
        }
        pthread_mutex_unlock(&feed->lock);
        bool cancel = cancelled(user);
        pthread_mutex_lock(&feed->lock);
        if (cancel)
            return DFX_E_CANCELLED;
        if (feed->status != DFX_OK || position < feed->n_begun)
            break;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CANCEL_POLL_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        wait_change(feed, position, &until);
    }
    return feed->status;
}

/* Copies end in order: what ops have waited for is what came before it, too. */
static dfx_status join(dfx_feed *feed, uint32_t position) {
    dfx_backend *be = feed->o.backend;
    if (position < feed->n_placed || position < feed->n_joined)
        return DFX_OK;
    feed->n_joined = position + 1;
    if (feed->last_wait == DFX_FEED_NO_WAIT)
        feed->last_wait = DFX_FEED_WAIT_LINK;
    return be->vt->copy_join(be, position);
}

dfx_status dfx_feed_pin(dfx_feed *feed, uint32_t visit, bool (*cancelled)(void *user), void *user,
                        void **base) {
    const dfx_plan *plan = feed->o.plan;
    dfx_status status = DFX_OK;
    pthread_mutex_lock(&feed->lock);
    bool in_order =
        visit < plan->n_visits && visit >= feed->n_ended && !dfx_feed_is_held(feed, visit);
    if (in_order && (!feed->stop || feed->status != DFX_OK)) {
        uint32_t position = feed->position[feed->transfer_of[visit]];
        double began = now_seconds();
        feed->last_wait = DFX_FEED_NO_WAIT;
        if (feed->status != DFX_OK)
            status = feed->status;
        else if (position != UINT32_MAX) /* else it came in an earlier picture, to stay */
            status = wait_begun(feed, position, cancelled, user);
        if (status == DFX_OK && position != UINT32_MAX)
            status = join(feed, position);
        feed->stats.wait_seconds += now_seconds() - began;
    } else {
        status = dfx_fail(feed->sink, DFX_E_INTERNAL,
                          "page feed: visit %u was pinned out of turn, held, or outside a picture",
                          visit);
    }
    pthread_mutex_unlock(&feed->lock);
    if (status == DFX_OK)
        *base = (char *)feed->o.arena + plan->visits[visit].off;
    return status;
}

dfx_feed_wait dfx_feed_last_wait(const dfx_feed *feed) {
    return feed->last_wait; /* which pin alone writes */
}
