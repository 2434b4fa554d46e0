/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The least expected time of a flow (docs/adaptive.md): over link i it waits for the round trips that no other flow can fill, each of
 * which is what flows have met for its destination (paths.h), and then shares the link with the n_i flows that are there,
 *
 *	rounds * response_us_i + flow_us * (n_i + 1) * greatest weight / weight_i
 *
 * where weights are as capacities. The count of flows is that of this very moment: of two flows that open at once the second sees
 * the first, so that no measurement, however old, sends all flows to one link.
 */
#ifndef ANABRANCH_POLICY_SOONEST_H
#define ANABRANCH_POLICY_SOONEST_H

#include "paths.h"
#include "pick.h"

/* What keeps the product below 2^63. */
#define AB_POLICY_AHEAD_MAX 0xffffull

/* In us. */
static __always_inline __u64 ab_time_over(const struct ab_choice *now, __u64 response_us, __u64 active, __u64 weight)
{
	__u64 ahead = ab_select(ab_is_less(active, AB_POLICY_AHEAD_MAX), active, AB_POLICY_AHEAD_MAX);

	return now->rounds * response_us + now->flow_us * (ahead + 1) * AB_WEIGHT_MAX / ab_clamp_weight(weight);
}

/* Out of q->pool, links all; of equal ones the first. Of links whose response time is not known none is: they have none alike. */
AB_GLOBAL __u32 ab_pick_soonest(const struct ab_choice *now, const struct ab_gauges *gauges, const struct ab_request *q)
{
	__u64 leader = AB_NO_TARGET, least = ~0ull >> 1;

	if (!now || !gauges || !q)
		return AB_NO_TARGET;
	for (__u64 i = 0; i < AB_MAX_LINKS; i++) {
		const struct ab_target *target = ab_target_at(now, &i);
		__u64 response_us = q->response_us[i] * (q->fresh >> i & 1);
		__u64 takes_us = ab_time_over(now, response_us, ab_active_flows(&gauges->target[i]), target->weight);
		__u64 is_sooner = ab_is_less(takes_us, least) & (q->pool.word[0] >> i);

		leader = ab_select(is_sooner & 1, i, leader);
		least = ab_select(is_sooner & 1, takes_us, least);
	}
	return leader;
}

/* A link that is not known for the destination is asked, as ever, unless races do. Of those that are known, if any, that of the least
 * time; with nothing known, of all. */
static __always_inline void ab_choose_soonest(const struct ab_choice *now, const struct ab_gauges *gauges,
					      struct ab_request *q, struct ab_decision *d)
{
	__u32 fresh = ab_known_links(q);

	if (!now->races && ab_ask_path(q, d))
		return;
	if (fresh)
		q->pool.word[0] = fresh;
	d->target = ab_pick_soonest(now, gauges, q);
	d->why = AB_WHY_SOONEST;
}

#endif
