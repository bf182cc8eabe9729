/* Which visits a picture makes, and so which of the plan's transfers it has: a list, in the order of the timetable. All calls
 * are made under the feed's lock. */
#include "offload/page_feed_internal.h"

uint32_t dfx_feed_last_made(const dfx_feed *feed, uint32_t visit) {
    const dfx_feed_visits *v = &feed->visits;
    if (visit != DFX_NO_VISIT && visit >= v->skip_from && visit < v->skip_to)
        visit = v->skip_from == 0 ? DFX_NO_VISIT : v->skip_from - 1;
    return visit == DFX_NO_VISIT || visit < v->first ? DFX_NO_VISIT : visit;
}

bool dfx_feed_is_held(const dfx_feed *feed, uint32_t visit) {
    return feed->visits.hold_from > 0 && visit >= feed->visits.hold_from;
}

void dfx_feed_set_n_ended(dfx_feed *feed, uint32_t n_ended) {
    feed->n_ended = n_ended == feed->visits.skip_from ? feed->visits.skip_to : n_ended;
}

/* What the visits of the picture use and is not there from an earlier one, in the order of the timetable. */
void dfx_feed_list_make(dfx_feed *feed) {
    const dfx_plan *plan = feed->o.plan;
    for (uint32_t k = 0; k < plan->n_transfers; k++)
        feed->position[k] = UINT32_MAX;
    for (uint32_t v = feed->visits.first; v < plan->n_visits; v++)
        if (dfx_feed_last_made(feed, v) == v && !feed->is_made[feed->transfer_of[v]])
            feed->position[feed->transfer_of[v]] = 0;
    feed->n_list = 0;
    for (uint32_t k = 0; k < plan->n_transfers; k++)
        if (feed->position[k] != UINT32_MAX) {
            feed->position[k] = feed->n_list;
            feed->list[feed->n_list++] = k;
        }
}

/* Under the lock. Of what nobody has asked for, only what a visit to come will use stays in the list. */
void dfx_feed_list_drop(dfx_feed *feed) {
    uint32_t n = feed->n_asked;
    for (uint32_t i = n; i < feed->n_list; i++)
        feed->position[feed->list[i]] = UINT32_MAX;
    for (uint32_t v = feed->n_ended; v < feed->o.plan->n_visits; v++)
        if (dfx_feed_last_made(feed, v) == v && !feed->is_made[feed->transfer_of[v]] &&
            feed->position[feed->transfer_of[v]] == UINT32_MAX)
            feed->position[feed->transfer_of[v]] = 0; /* its own is set below */
    for (uint32_t i = n; i < feed->n_list; i++)
        if (feed->position[feed->list[i]] != UINT32_MAX) {
            feed->list[n] = feed->list[i];
            feed->position[feed->list[n]] = n;
            n++;
        }
    feed->n_list = n;
}
