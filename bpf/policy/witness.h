/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Who says that a link carries nothing: the hosts that repeat SYNs over it, and the ends that do not answer them. Each is one witness
 * however often it says so, for AB_WITNESS_NS: a thousand SYNs of one host, or to one dead server, prove no more than one. Those that
 * share a place count as one, so there are never more witnesses than there are.
 */
#ifndef ANABRANCH_POLICY_WITNESS_H
#define ANABRANCH_POLICY_WITNESS_H

#include "../include/anabranch.h"
#include "inline.h"

/* Whether this place was not counted lately; now it is. Of two processors that ask at once, one is told so. */
static __always_inline int ab_is_new_witness(__u64 *seen_ns, __u64 now_ns)
{
	__u64 before = *seen_ns;

	if (before && now_ns - before < AB_WITNESS_NS)
		return 0;
	return __sync_val_compare_and_swap(seen_ns, before, now_ns) == before;
}

/* Which of host and end, by their hashes, are new witnesses: bits. */
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
