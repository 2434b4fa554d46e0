/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packet by packet over all sublinks: deficit round robin (Shreedhar, Varghese 1996), reversed so that it distributes
 * a load over lines instead of queues over one line (Adiseshu, Parulkar, Varghese 1996).
 *
 * The sublinks are visited in turn. Each visit grants a sublink its quantum. Packets take it as long as the grant
 * covers them, and the rest of the grant is kept for its next visit; a sublink that is passed over as unusable keeps
 * nothing. Going on to the next sublink is a *step*. The number of steps until a sublink can take a packet is
 * computed, so no loop over rounds is needed: the sublink with the fewest steps wins, and all visits on the way are granted at
 * once. A superpacket that needs many rounds takes no longer to assign than a small packet.
 */
#ifndef ANABRANCH_POLICY_DRR_H
#define ANABRANCH_POLICY_DRR_H

#include "../include/bins.h"
#include "set.h"

/* Steps until the sublink `ahead` of the visited one covers `length` bytes. */
static __always_inline __u64 ab_drr_steps(__u64 deficit, __u64 quantum, __u64 length, __u64 ahead, __u64 count)
{
	__u64 missing = (length - deficit) * ab_is_less(deficit, length);
	__u64 grants = (missing + quantum - 1) / quantum;
	__u64 arrival = ab_is_less(0, ahead); /* brings a grant, needed or not */

	grants = ab_select(ab_is_less(grants, arrival), arrival, grants);
	return (grants - arrival) * count + ahead;
}

/* How often the sublink is visited in this many steps. */
static __always_inline __u64 ab_drr_visits(__u64 steps, __u64 ahead, __u64 count)
{
	return (steps + count - ab_select(ab_is_less(0, ahead), ahead, count)) / count;
}

static __always_inline __u64 ab_drr_ahead(__u64 i, __u64 visited, __u64 count)
{
	return i + count * ab_is_less(i, visited) - visited;
}

/* The quantum of sublink i: at least a byte, so that every round ends. */
static __always_inline __u64 ab_drr_quantum(const __u32 *quantum, __u32 i)
{
	__u64 bytes = quantum[i];

	return bytes + ab_is_less(bytes, 1);
}

/* The sublink of a packet of `length` bytes among the first `count`; AB_NO_TARGET if none of them is usable. */
static __always_inline __u16 ab_sublink_by_deficit(struct ab_drr *d, const __u32 *quantum, __u32 count, __u32 length,
						   __u64 usable)
{
	__u64 sublinks = count < AB_MAX_LINKS ? count : AB_MAX_LINKS;
	__u64 pool = usable & ((1u << sublinks) - 1);
	__u64 visited = d->visited, best = 0, steps = 1ull << 62;

	if (!pool)
		return AB_NO_TARGET;
	visited *= ab_is_less(visited, sublinks);
	visited &= AB_MAX_LINKS - 1;
	if (!d->begun)
		d->deficit[visited] += ab_drr_quantum(quantum, visited);
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 ahead = ab_drr_ahead(i, visited, sublinks);
		__u64 wait = ab_drr_steps(d->deficit[i], ab_drr_quantum(quantum, i), length, ahead, sublinks);
		__u64 sooner = ab_is_less(wait, steps) & (pool >> i & 1);

		best = ab_select(sooner, i, best);
		steps = ab_select(sooner, wait, steps);
	}
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 ahead = ab_drr_ahead(i, visited, sublinks);
		__u64 is_sublink = ab_is_less(i, sublinks);
		__u64 visits = ab_drr_visits(steps, ahead, sublinks) * is_sublink;
		__u64 keeps = (pool >> i & 1) | (ab_is_less(visits, 1) & ab_is_less(0, ahead));

		d->deficit[i] = (d->deficit[i] + visits * ab_drr_quantum(quantum, i)) * keeps;
	}
	best &= AB_MAX_LINKS - 1;
	d->deficit[best] -= length;
	d->visited = best;
	d->begun = 1;
	return best;
}

#endif
