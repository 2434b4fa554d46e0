// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The trunk: one logical link between two nodes over k parallel sublinks (Jo 2002). `trunk` is attached at the egress of the
 * trunk device, which has the addresses, the routes and the MTU. Packets that the kernel sends there take one of the
 * sublinks instead. Only the Ethernet header is rewritten.
 */
#include "lib/packet/fate.h"
#include "lib/trunk/spread.h"

static const __u8 fate_of[AB_TRUNK_REASON_COUNT] = {
#define AB_TRUNK_REASON_FATE(name, fate, words) [AB_TRUNK_REASON_##name] = AB_##fate,
	AB_TRUNK_REASONS(AB_TRUNK_REASON_FATE)
#undef AB_TRUNK_REASON_FATE
};

static __always_inline int leave(__u32 reason)
{
	__u64 *packets = bpf_map_lookup_elem(&trunk_reasons, &reason);
	if (packets)
		(*packets)++;
	return action_of(fate_of[reason < AB_TRUNK_REASON_COUNT ? reason : AB_TRUNK_REASON_UNSENT]);
}

SEC("classifier")
int trunk(struct __sk_buff *skb)
{
	struct trunk_packet p = {};
	__u32 zero = 0;
	const struct ab_spreading *set = bpf_map_lookup_elem(&spreading, &zero);
	if (!set || !set->sublinks[AB_IPV4].count)
		return leave(AB_TRUNK_REASON_NOT_TOLD);
	__u32 reason = read_packet(skb, &p);
	if (reason)
		return leave(reason);
	return leave(spread_packet(skb, set, &p));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
