// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A member: a server that has the virtual addresses of services, and answers clients itself. `member` is attached at the ingress of
 * the devices by which balancers reach it, and takes clients' packets out of their tunnels. `member_answer` is attached at their
 * egress, and has clients send segments that fit the tunnels.
 */
#include <linux/if_packet.h>

#include "lib/packet/fate.h"
#include "lib/member/answer.h"
#include "lib/member/tunnel.h"

static const __u8 fate_of[AB_MEMBER_REASON_COUNT] = {
#define AB_MEMBER_REASON_FATE(name, fate, words) [AB_MEMBER_REASON_##name] = AB_##fate,
	AB_MEMBER_REASONS(AB_MEMBER_REASON_FATE)
#undef AB_MEMBER_REASON_FATE
};

static __always_inline int leave(__u32 reason)
{
	__u64 *packets = bpf_map_lookup_elem(&member_reasons, &reason);
	if (packets)
		(*packets)++;
	return action_of(fate_of[reason < AB_MEMBER_REASON_COUNT ? reason : AB_MEMBER_REASON_UNTAKEN]);
}

SEC("classifier")
int member(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct ab_member *set = bpf_map_lookup_elem(&member_settings, &zero);
	if (!set || !set->gue_port)
		return leave(AB_MEMBER_REASON_NOT_CONFIGURED);
	return leave(leave_tunnel(skb, set));
}

SEC("classifier")
int member_answer(struct __sk_buff *skb)
{
	return fit_answer(skb) ? leave(AB_MEMBER_REASON_SYN_ACK) : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
