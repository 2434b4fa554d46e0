// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The gateway: `lan` is attached at the ingress of the LAN devices, `lan_layer3` at that of LAN devices without Ethernet, `wan` at
 * the ingress of the links. Each parses, lets outbound.h or inbound.h decide, and returns with one counted reason. `forwarded`, at
 * the egress of the LAN devices, records what the kernel forwards there by itself, if it does (stray.h). The other programs are not
 * attached; user space runs them: `explain` answers where a packet would go, `sweep_flows` and `end_link` keep the tables clean.
 */
#define AB_AMONG_LINKS

#include "lib/gateway/addressee.h"
#include "lib/gateway/answer.h"
#include "lib/gateway/explain.h"
#include "lib/gateway/inbound.h"
#include "lib/gateway/outbound.h"
#include "lib/gateway/race_copy.h"
#include "lib/gateway/sweep.h"
#include "lib/packet/fate.h"

static const __u8 fate_of[AB_REASON_COUNT] = {
#define AB_REASON_FATE(name, fate, words) [AB_REASON_##name] = AB_##fate,
	AB_REASONS(AB_REASON_FATE)
#undef AB_REASON_FATE
};

/* Marks a packet for the kernel's NAT, with the link that it must take, if there is one. */
static __always_inline void mark_fallback(struct __sk_buff *skb, __u32 link)
{
	const struct ab_settings *set = current_settings();
	if (set)
		skb->mark = set->fallback_mark | link << AB_FALLBACK_LINK_SHIFT;
}

/* `link`: packet.kernel_link. */
static __always_inline int leave_by(struct __sk_buff *skb, __u32 reason, __u32 link)
{
	__u32 fate = fate_of[reason < AB_REASON_COUNT ? reason : AB_REASON_MALFORMED];
	count_reason(reason);
	if (fate == AB_TO_NAT)
		mark_fallback(skb, link);
	else if (fate == AB_STRAY_TO_NAT)
		skb->mark = AB_STRAY_MARK;
	return action_of(fate & AB_FATE_MASK);
}

static __always_inline int leave(struct __sk_buff *skb, __u32 reason)
{
	return leave_by(skb, reason, 0);
}

/* Answers a refused packet if the rate limit allows; otherwise returns TC_ACT_SHOT. */
static __noinline int refuse(struct __sk_buff *skb, struct packet *p, __u32 reason)
{
	int action;
	switch (reason) {
	case AB_REASON_NO_FLOW_OUT:
	case AB_REASON_LATE_ANSWER:
		action = answer_rst(skb, p);
		break;
	case AB_REASON_RACE_LOST:
		action = reset_losing_copy(skb, p);
		break;
	case AB_REASON_PROBE_ANSWERED:
		action = send_held(skb, p);
		break;
	case AB_REASON_TTL_OUT:
		action = answer_icmp(skb, p, ICMP_TIME_EXCEEDED << 8 | ICMP_EXC_TTL);
		break;
	case AB_REASON_TOO_BIG_OUT:
	case AB_REASON_TOO_BIG_IN:
	case AB_REASON_TOO_LONG_TO_FRAGMENT:
		action = answer_icmp(skb, p, ICMP_DEST_UNREACH << 8 | ICMP_FRAG_NEEDED);
		break;
	case AB_REASON_NO_LINK:
	case AB_REASON_NO_CLASS_LINK:
		action = answer_icmp(skb, p, ICMP_DEST_UNREACH << 8 | ICMP_NET_UNREACH);
		break;
	default:
		action = answer_icmp(skb, p, ICMP_DEST_UNREACH << 8 | ICMP_PKT_FILTERED);
	}
	return action < 0 ? TC_ACT_SHOT : action;
}

/* Nearly all packets leave with the reason `usual`, whose fate the compiler then knows. */
static __always_inline int leave_or_answer(struct __sk_buff *skb, struct packet *p, __u32 reason, __u32 usual)
{
	if (reason == usual)
		return leave(skb, usual);
	int action = leave_by(skb, reason, p->kernel_link);
	if (action == TC_ACT_SHOT && fate_of[reason < AB_REASON_COUNT ? reason : 0] == AB_REFUSED)
		return refuse(skb, p, reason);
	return action;
}

/* Removes the mark of a packet that was sent back, and handles it. Returns 0, or the reason why it goes no further. */
static __always_inline int take_mark(struct __sk_buff *skb, struct packet *p, __u32 l3)
{
	int accounted = is_tail(skb) ? cut_tail(skb, l3) : 0;
	if (accounted < 0)
		return AB_REASON_REWRITE_FAILED;
	p->flags = (accounted ? PACKET_ACCOUNTED : 0) | (skb->mark == AB_HAIRPIN_MARK ? PACKET_HAIRPINNED : 0);
	take_race_mark(skb, p);
	return 0;
}

/* Fills `p` from the packet. Returns 0, or the reason why it goes no further. */
static __always_inline int take_packet(struct __sk_buff *skb, struct packet *p, __u32 l3)
{
	int bad = skb->mark ? take_mark(skb, p, l3) : 0;
	return bad ?: parse_packet(skb, p, l3);
}

/* Handles a packet from the LAN, with its IP header at `l3`. */
static __always_inline int from_lan(struct __sk_buff *skb, __u32 l3)
{
	if (stands_by())
		return TC_ACT_UNSPEC;
	take_foreign_mark_off(skb);
	struct packet_room *room = fresh_room();
	if (!room)
		return leave(skb, AB_REASON_NOT_CONFIGURED);
	struct packet *p = &room->packet;
	p->ifindex = skb->ifindex;
	__u32 reason = (l3 ? is_for_others(skb) : 0) ?: take_packet(skb, p, l3) ?: outbound(skb, p, &room->key, l3);
	return leave_or_answer(skb, p, reason, AB_REASON_TRANSLATED_OUT);
}

SEC("classifier")
int lan(struct __sk_buff *skb)
{
	return from_lan(skb, ETH_HLEN);
}

SEC("classifier")
int lan_layer3(struct __sk_buff *skb)
{
	return from_lan(skb, 0);
}

SEC("classifier")
int wan(struct __sk_buff *skb)
{
	if (stands_by())
		return TC_ACT_UNSPEC;
	take_foreign_mark_off(skb);
	const struct ab_device *device = device_of(skb->ifindex);
	if (!device || device->role != AB_ROLE_LINK)
		return leave(skb, AB_REASON_NOT_CONFIGURED);
	struct packet_room *room = fresh_room();
	if (!room)
		return leave(skb, AB_REASON_NOT_CONFIGURED);
	struct packet *p = &room->packet;
	p->mtu = device->mtu;
	__u32 reason = (device->layer3 ? take_packet(skb, p, 0) : is_for_others(skb) ?: take_packet(skb, p, ETH_HLEN))
			       ?: inbound(skb, p, &room->key, device->link & (AB_MAX_LINKS - 1));
	return leave_or_answer(skb, p, reason, AB_REASON_TRANSLATED_IN);
}

/* At the egress of a LAN device, if the kernel may forward connections of its own. It changes nothing. */
SEC("classifier")
int forwarded(struct __sk_buff *skb)
{
	if (skb->tc_index != FORWARD_TAG || skb->vlan_present)
		return TC_ACT_UNSPEC;
	const struct ab_device *device = device_of(skb->ifindex);
	struct packet_room *room = fresh_room();
	if (!room || !device || device->role != AB_ROLE_LAN)
		return TC_ACT_UNSPEC;
	struct packet *p = &room->packet;
	if (!(device->layer3 ? parse_packet(skb, p, 0) : parse_packet(skb, p, ETH_HLEN)))
		remember_forward(p);
	return TC_ACT_UNSPEC;
}

/* The answer is written over the packet, after the headers that the question was about. */
SEC("classifier")
int explain(struct __sk_buff *skb)
{
	struct ab_explanation *answer = explanation();
	if (!answer)
		return TC_ACT_SHOT;
	__builtin_memset(answer, 0, sizeof(*answer));
	__u32 header = ip_header_of(explain_packet(skb, answer));
	return bpf_skb_store_bytes(skb, ETH_HLEN + header + sizeof(struct tcphdr), answer, sizeof(*answer), 0);
}

SEC("raw_tp/sweep_flows")
int sweep_flows(void *ctx)
{
	(void)ctx;
	sweep_visited();
	return 0;
}

SEC("raw_tp/end_link")
int end_link(void *ctx)
{
	(void)ctx;
	end_flows_of_link();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
