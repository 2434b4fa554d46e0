/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The order of a host's unconfirmed flows. All but a few have a number, counted up for each host, and an entry in
 * `unconfirmed_order` until they are confirmed. If a host reaches its share, its oldest one is evicted, which takes a step or two.
 * Flows of other hosts are never evicted for it.
 */
#ifndef ANABRANCH_UNCONFIRMED_H
#define ANABRANCH_UNCONFIRMED_H

#include "flow.h"

/* Maximum of numbers that are tried to find the oldest one. There are more in the order only if user space raised the
 * share while flows were open. */
#define ROOM_STEPS 4096

/* Removes the flow at this position, unless it was confirmed. A global function; the key is in s->evicted_lan_key. */
__noinline int take_unconfirmed(const struct ab_unconfirmed_key *place)
{
	struct flow_room *s = flow_room();
	struct ab_flow *flow = s ? find_entry(&s->evicted_lan_key) : NULL;
	if (!flow || !place || flow->host != place->host || flow->unconfirmed != place->number)
		return 0;
	if (!claim_unconfirmed(&s->evicted_lan_key, flow, AB_STATE_LEAVING, AB_STATE_LEAVING | AB_STATE_CONFIRMED))
		return 0;
	take_flow(&s->evicted_lan_key, flow, 0, &s->evicted_wan_key);
	return 1;
}

/* Removes the flow at `place`, if there is one. Returns whether there was. */
static __always_inline int evict_unconfirmed(struct flow_room *s, struct ab_unconfirmed_key *place)
{
	struct ab_flow_key *found = bpf_map_lookup_elem(&unconfirmed_order, place);
	if (!found)
		return 0;
	s->evicted_lan_key = *found;
	if (!take_unconfirmed(place)) {
		bpf_map_delete_elem(&unconfirmed_order, place);
		return 0;
	}
	struct ab_table *counts = table_counts();
	if (counts)
		__sync_fetch_and_add(&counts->evicted, 1);
	return 1;
}

struct eviction {
	struct ab_host *host;
	__u32 evicted;
};

/* One step through the order, from the oldest. Stops at an unconfirmed flow, or at the end. */
static long evict_next(__u32 step, struct eviction *e)
{
	(void)step;
	struct ab_host *host = e->host;
	struct flow_room *s = flow_room();
	struct ab_unconfirmed_key place = { .host = host->id, .number = host->unconfirmed_tail };
	if (!s || place.number == host->unconfirmed_head)
		return 1;
	if (__sync_val_compare_and_swap(&host->unconfirmed_tail, place.number, place.number + 1) != place.number)
		return 0;
	e->evicted = evict_unconfirmed(s, &place);
	return e->evicted;
}

/* Evicts the oldest unconfirmed flow of the host, after at most `steps` steps. Returns whether there was one. */
__noinline int evict_oldest(struct ab_host *host, __u32 steps)
{
	struct eviction e = { .host = host };
	if (!host)
		return 0;
	bpf_loop(steps, evict_next, &e, 0);
	return e.evicted;
}

/* Counts the flow as one without a position, of which there are at most `limit`. Returns whether it was counted. */
static __always_inline int stays_unordered(__u32 host, __u32 limit)
{
	__u32 *count = unordered_of(host);
	if (!count || *count >= limit)
		return 0;
	if (__sync_fetch_and_add(count, 1) < limit)
		return 1;
	__sync_fetch_and_add(count, -1);
	return 0;
}

/* The next number of the host, after making room in its share. */
static __always_inline __u32 next_unconfirmed(struct ab_host *host, __u32 share)
{
	__u32 number = __sync_fetch_and_add(&host->unconfirmed_head, 1);
	if (number - host->unconfirmed_tail >= share)
		evict_oldest(host, 1);
	return number;
}

/* Gives the flow of s->lan_key its position in the host's share before it is inserted. The first `unordered` need none. Returns 0
 * if there is no room. */
static __always_inline int enqueue_unconfirmed(struct flow_room *s, struct ab_host *host, __u32 share, __u32 unordered)
{
	struct ab_unconfirmed_key place = { .host = host->id, .number = AB_UNORDERED };
	int has_room = stays_unordered(place.host, unordered);
	if (!has_room) {
		place.number = next_unconfirmed(host, share - unordered);
		has_room = place.number != AB_UNORDERED &&
			   !bpf_map_update_elem(&unconfirmed_order, &place, &s->lan_key, BPF_ANY);
	}
	s->lan.host = place.host;
	s->lan.unconfirmed = place.number;
	return has_room;
}

/* Undoes that. */
static __always_inline void dequeue_unconfirmed(const struct flow_room *s)
{
	struct ab_unconfirmed_key place = { .host = s->lan.host, .number = s->lan.unconfirmed };
	leave_place(&place);
}

#endif
