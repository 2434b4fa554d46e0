/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets from a link: those of a flow go to its LAN host; stray.h decides about the others. */
#ifndef ANABRANCH_INBOUND_H
#define ANABRANCH_INBOUND_H

#include "frag.h"
#include "hairpin.h"
#include "icmp.h"
#include "nat.h"
#include "permission.h"
#include "race_copy.h"
#include "stray.h"
#include "tcp.h"

/*
 * Address-dependent filtering (RFC 4787 REQ-8). Returns 0 if this remote address may send to the mapping, or the reason why not.
 * Hosts of the LAN need no permission (REQ-9), and nobody on a link can pretend to be one.
 */
__noinline int filter_mapping(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *wan_key, struct ab_flow *wan)
{
	if (!p || !wan_key || !wan)
		return AB_REASON_MALFORMED;
	const struct ab_settings *set = current_settings();
	struct ab_flow_key key;
	if (p->flags & PACKET_HAIRPINNED)
		return 0;
	if (is_of_site(&p->src))
		return AB_REASON_SPOOFED_WAN;
	if (is_never_forwarded(&p->src))
		return AB_REASON_BAD_SOURCE;
	if (set && set->udp_filter_open && p->proto == IPPROTO_UDP)
		return 0;
	make_permission_key(&key, wan_key, &p->src);
	const struct ab_flow *permission = find_permission(&key);
	/* This remote end was asked by another mapping of the endpoint, which is for it alone. */
	if (permission && is_granted_to(permission, wan) && !(permission->state & AB_STATE_APART))
		return 0;
	return (wan->state & AB_STATE_PREFIX ? let_in(skb, p) : 0) ?: AB_REASON_FILTERED_IN;
}

/* Handles the answer to an unconfirmed mapping. The first one marks the LAN entry, the second one confirms the flow, so that a
 * single query stays unconfirmed. */
static __noinline void answer_mapping(struct ab_flow_key *wan_key, struct ab_flow *wan)
{
	struct flow_room *s = flow_room();
	struct ab_flow *lan = s ? find_other(wan_key, wan, &s->lan_key) : NULL;
	if (!lan)
		return;
	if (wan->state & AB_STATE_REPLIED)
		confirm_flow(lan);
	else
		learn_reply(&s->lan_key, lan, wan);
}

static __always_inline void learn_progress(struct ab_flow *flow, const struct packet *p, struct ab_traffic *t,
					   __u32 link)
{
	/* Without NAT it may have come over a link other than the flow's. That proves nothing about the flow's link. */
	if (follow_tcp(flow, p) && t && flow->link == link)
		t->rx_progress++;
}

/* Follows a TCP segment from a link. Returns 0, or the reason to drop. */
static __always_inline int follow_tcp_in(struct packet *p, struct ab_flow_key *key, struct ab_flow *flow,
					 struct ab_traffic *t, __u32 link)
{
	if (!p->has_ports_header)
		return 0;
	if (!(flow->state & AB_STATE_CONFIRMED) && !(p->tcp_flags & AB_TCP_RST)) {
		int misfit = follow_handshake_in(p, flow, key);
		if (misfit || p->flags & PACKET_UNPROVEN)
			return misfit;
	}
	if (p->tcp_flags & (AB_TCP_RST | AB_TCP_FIN)) {
		int false_end = follow_end_in(p, flow, key);
		if (false_end || p->flags & PACKET_UNPROVEN)
			return false_end;
	}
	/* The host answers whether its connection still exists (RFC 5961 section 4). */
	if (is_first_syn(p)) {
		p->flags |= PACKET_UNPROVEN;
		return 0;
	}
	learn_progress(flow, p, t, link);
	return 0;
}

/* Whether the packet is too long for some LAN device. */
static __always_inline int is_too_long_for_some(const struct __sk_buff *skb, const struct packet *p)
{
	return exceeds_mtu(skb, p, p->mtu) && p->mtu;
}

/* Splits a packet that is too long for its LAN device, or answers it. Devices are only checked for packets that are too long for
 * the smallest one. Returns 0, or the reason. */
static __always_inline int fit_to_lan(struct __sk_buff *skb, struct packet *p, const struct ab_flow *flow, __u32 side)
{
	if (!is_too_long_for_some(skb, p))
		return 0;
	const struct ab_device *device = device_of(flow->lan_ifindex);
	return device ? fit_to_mtu(skb, p, device->mtu, side) : 0;
}

/* Like begin_datagram and fit_to_lan. While other packets were sent, the memory of the flow may have been reused, so it is looked
 * up again. */
static __always_inline int take_for_lan(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *key,
					struct ab_flow **flow, __u32 side)
{
	if (!is_fragment(p) && !is_too_long_for_some(skb, p))
		return 0;
	int bad = begin_datagram(skb, p, side) ?: fit_to_lan(skb, p, *flow, side);
	if (bad || !is_fragment(p))
		return bad;
	*flow = find_flow(key);
	return *flow ? 0 : AB_REASON_FRAGMENT_ORPHAN;
}

/* Only packets that a flow receives count as traffic: packets of no flow prove nothing about a link. */
static __always_inline void count_rx(struct ab_traffic *t, struct ab_flow *flow, struct load load)
{
	touch_flow(flow, tick_ns(), load.packets, load.bytes);
	if (!t)
		return;
	t->rx_packets += load.packets;
	t->rx_bytes += load.bytes;
}

static __always_inline int send_in(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow)
{
	int bad = rewrite_packet(skb, p, INBOUND, &flow->other_local, flow->other_port);
	return bad ?: send_to_lan(skb, p, flow, &flow->other_local);
}

__noinline int forward_in(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow, __u32 link_index)
{
	int bad = 0;
	if (!p || !flow)
		return AB_REASON_MALFORMED;
	if (p->proto == IPPROTO_TCP && p->tcp_flags & AB_TCP_SYN) {
		const struct ab_link *link = link_at(link_index, p->family);
		bad = link ? clamp_mss(skb, p, link->mtu) : 0;
	}
	return bad ?: send_in(skb, p, flow);
}

/* The reason with which a TCP segment to the LAN leaves. */
static __always_inline int way_in(const struct packet *p)
{
	if (p->flags & PACKET_CALL)
		return AB_REASON_HAIRPIN_SYN;
	return p->flags & PACKET_CHALLENGE ? AB_REASON_CHALLENGE : AB_REASON_TRANSLATED_IN;
}

/* A fragment after the first, whose first fragment was not seen: it belongs to the host, or is early. It is left to the host, and a
 * copy waits. */
static __always_inline int stray_fragment(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	int reason = stray_inbound(skb, p);
	if (reason == AB_REASON_NO_FLOW_IN)
		hold_early(skb, p, side);
	return reason;
}

/* Whether the packet is the usual case: complete, of a confirmed flow, and without anything to check. */
static __always_inline int is_usual_in(const struct __sk_buff *skb, const struct packet *p, struct ab_flow *flow)
{
	if (p->flags & PACKET_HAIRPINNED || !is_under_way(flow) || p->ttl <= 1 || is_too_long_for_some(skb, p))
		return 0;
	return is_mapping(p->proto) ? is_same_addr(ab_first_remote(flow), &p->src)
				    : !(p->tcp_flags & (AB_TCP_SYN | AB_TCP_FIN | AB_TCP_RST));
}

static __always_inline int pass_in(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow, __u32 link)
{
	struct ab_traffic *t = traffic_at(flow->class, link, p->family);
	if (!is_mapping(p->proto))
		learn_progress(flow, p, t, link);
	count_rx(t, flow, packet_load(skb, p));
	return send_in(skb, p, flow);
}

struct sharing {
	struct packet *packet;
	__u32 link;
};

/* Whether a link shares its segment with others and has the packet's destination address. */
static long ask_sharing(__u32 index, struct sharing *s)
{
	const struct ab_link *link = link_at(index, s->packet->family);
	if (!link || !(link->flags & AB_LINK_SHARES_SEGMENT) || !is_same_addr(&link->external, &s->packet->dst))
		return 0;
	s->link = index;
	return 1;
}

/* The link for which a packet is that came from `link`. If links share a segment, hosts on it may have learned one link's
 * hardware address for the other's address. */
__noinline int link_of_packet(struct packet *p, __u32 link)
{
	const struct ab_link *own = p ? link_at(link, p->family) : NULL;
	if (!own || !(own->flags & AB_LINK_SHARES_SEGMENT) || is_same_addr(&own->external, &p->dst))
		return link;
	struct sharing s = { .packet = p, .link = link };
	bpf_loop(AB_MAX_LINKS, ask_sharing, &s, 0);
	return s.link;
}

/* Handles all but the usual case. `flow` is what the table has, if it was looked up. */
static __always_inline int inbound_unusual(struct __sk_buff *skb, struct packet *p, __u32 link, __u8 side,
					   struct ab_flow_key *key, struct ab_flow *flow)
{
	if (p->flags & PACKET_LOSING_COPY)
		return AB_REASON_RACE_LOST;
	if (!flow) {
		link = link_of_packet(p, link) & (AB_MAX_LINKS - 1);
		side = side_of_link(link, p->family);
	}
	if (p->kind == PACKET_ICMP_ERROR)
		return translate_error_in(skb, p, side) ?: stray_inbound(skb, p);
	if (p->kind == PACKET_OTHER || (is_icmp(p->proto) && p->has_ports_header && p->icmp_type != ICMP_ECHOREPLY))
		return stray_inbound(skb, p);
	if (is_later_fragment(p)) {
		int bad = learn_fragment(p, side);
		if (bad)
			return bad == AB_REASON_FRAGMENT_ORPHAN ? stray_fragment(skb, p, side) : bad;
	}
	if (!flow) {
		make_key(key, p->proto, side, &p->dst, p->dport, &p->src, p->sport);
		flow = find_flow(key);
	}
	if (!flow && p->flags & PACKET_HAIRPINNED) {
		int refused = find_called(p, link, key);
		if (refused)
			return refused;
		flow = find_flow(key);
		p->flags |= PACKET_CALL;
	}
	if (!flow)
		return answers_losing_copy(p, key) ?: hear_survey(p, link) ?: stray_inbound(skb, p);
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	/* A packet of another LAN host does not count as traffic of the link. */
	struct ab_traffic *t = p->flags & PACKET_HAIRPINNED ? NULL : traffic_at(flow->class, link, p->family);
	struct load load = packet_load(skb, p);
	if (!is_mapping(p->proto)) {
		if (flow->state & AB_STATE_HAIRPIN && !(p->flags & PACKET_HAIRPINNED))
			return AB_REASON_SPOOFED_WAN;
		if (!(p->flags & PACKET_CALL)) {
			int refused = take_for_lan(skb, p, key, &flow, side) ?: follow_tcp_in(p, key, flow, t, link);
			if (refused)
				return refused;
		}
		if (p->losing_copies)
			send_losing_copies(skb, p);
		if (!(p->flags & (PACKET_CALL | PACKET_UNPROVEN)))
			count_rx(t, flow, load);
		int way = forward_in(skb, p, flow, link);
		return way == AB_REASON_TRANSLATED_IN ? way_in(p) : way;
	}
	__u32 is_first = is_same_addr(ab_first_remote(flow), &p->src) && !(flow->state & AB_STATE_HAIRPIN);
	int filtered = is_first ? 0 : filter_mapping(skb, p, key, flow);
	/* The host itself may use an ICMP id that a LAN host has here. Without NAT everybody may send to everybody. */
	if (filtered == AB_REASON_FILTERED_IN && (is_icmp(p->proto) || side == AB_SIDE_ROUTED))
		return stray_inbound(skb, p);
	filtered = filtered ?: take_for_lan(skb, p, key, &flow, side);
	if (filtered)
		return filtered;
	if (!(flow->state & AB_STATE_CONFIRMED))
		answer_mapping(key, flow);
	count_rx(t, flow, load);
	return forward_in(skb, p, flow, link);
}

static __always_inline int inbound(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *key, __u32 link)
{
	__u8 side = side_of_link(link, p->family);
	struct ab_flow *flow = NULL;
	if (p->kind == PACKET_FLOW && !is_fragment(p) && !(is_icmp(p->proto) && p->icmp_type != ICMP_ECHOREPLY)) {
		make_key(key, p->proto, side, &p->dst, p->dport, &p->src, p->sport);
		flow = find_entry(key);
		if (flow && is_usual_in(skb, p, flow))
			return pass_in(skb, p, flow, link);
	}
	return inbound_unusual(skb, p, link, side, key, flow);
}

#endif
