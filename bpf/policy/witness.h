/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Evidence that a link carries nothing: hosts that retransmit SYNs over it, and remote ends that do not answer them. Each is
 * counted once in AB_WITNESS_NS: a thousand SYNs of one host, or to one dead server, prove no more than one. Hosts or ends that
 * share a place by their hash count as one, so the count is never too high.
 */
#ifndef ANABRANCH_POLICY_WITNESS_H
#define ANABRANCH_POLICY_WITNESS_H

#include "../include/anabranch.h"
#include "inline.h"

/* Whether this place was not counted recently, and counts it. If two CPUs ask at once, only one gets 1. */
static __always_inline int ab_is_new_witness(__u64 *seen_ns, __u64 now_ns)
{
	__u64 before = *seen_ns;

	if (before && now_ns - before < AB_WITNESS_NS)
		return 0;
	return __sync_val_compare_and_swap(seen_ns, before, now_ns) == before;
}

/* Returns, as bits, which of host and end (given by their hashes) are new. */
AB_GLOBAL int ab_witness(struct ab_witnesses *of_link, __u32 host, __u32 end, __u64 now_ns)
{
	int news = 0;

	if (!of_link)
		return 0;
	if (ab_is_new_witness(&of_link->host_ns[host % AB_WITNESSES], now_ns))
		news |= AB_WITNESS_HOST;
	if (ab_is_new_witness(&of_link->end_ns[end % AB_WITNESSES], now_ns))
		news |= AB_WITNESS_END;
	return news;
}

#endif
