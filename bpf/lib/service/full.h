/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Servers with as many open connections as their limit. They are left out of the choice, and never forgiven: a backup takes the
 * connection, or nobody. CPUs that open connections at the same time may each open one before they see the others'.
 */
#ifndef ANABRANCH_SERVICE_FULL_H
#define ANABRANCH_SERVICE_FULL_H

#include "../../policy/choose.h"
#include "maps.h"

/*
 * After a connection was counted. A CPU that closes one may look before another has written that the server is full, and after it
 * has counted: so who writes that looks again. A server that is noted as full by mistake would get no connection any more; one that
 * is not gets one too many.
 */
static __always_inline void note_fullness(__u32 service, __u32 number, const struct ab_gauge *gauge)
{
	__u32 place = AB_SERVER_PLACE(service % AB_MAX_SERVICES, number % AB_MAX_TARGETS);
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	if (!server || !server->limit)
		return;
	struct ab_set *full = bpf_map_lookup_elem(&service_full, &service);
	if (!full)
		return;
	__u64 *word = &full->word[number % AB_MAX_TARGETS / 64], bit = 1ull << number % 64;
	if (ab_active_flows(gauge) >= server->limit && !(*word & bit))
		__sync_fetch_and_or(word, bit);
	if (ab_active_flows(gauge) < server->limit && *word & bit)
		__sync_fetch_and_and(word, ~bit);
}

static __always_inline void avoid_full(struct ab_request *q, __u32 service)
{
	const struct ab_set *full = bpf_map_lookup_elem(&service_full, &service);
	if (full)
		q->avoid = *full;
}

/* Why no server is chosen: the reason under which the packet is counted. */
static __always_inline __u32 why_unserved(const struct ab_choice *now, const struct ab_request *q)
{
	__u32 without = now->without <= AB_WITHOUT_KERNEL ? now->without : AB_WITHOUT_KERNEL;
	__u64 full = 0;
	for (__u32 w = 0; w < AB_SET_WORDS; w++)
		full |= q->avoid.word[w] & (now->usable.word[w] | now->spare[0].word[w]);
	return (full ? AB_SERVICE_REASON_FULL_REFUSED : AB_SERVICE_REASON_NO_SERVER_REFUSED) + without;
}

#endif
