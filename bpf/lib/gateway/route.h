/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets that are sent over a link each by itself, without a flow or port: over links without NAT those of
 * classes that choose per packet, and those of protocols without flows; over links that translate the prefix, answers (prefix.h).
 */
#ifndef ANABRANCH_ROUTE_H
#define ANABRANCH_ROUTE_H

#include "frag.h"
#include "icmp.h"
#include "nat.h"
#include "open.h"
#include "prefix.h"
#include "tcp.h"

/* Makes the choice for `p` among links without NAT, with class s->opening.class and the sender in s->opening. The result is
 * s->decision. Returns whether there is one. */
__noinline int choose_routed(struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	if (!s || !set || !p || !routed_links(set, p->family))
		return 0;
	name_sender(s, p);
	begin_choice(p);
	choose_link(0, ~(__u64)routed_links(set, p->family));
	__u32 target = s->decision.target;
	const struct ab_link *link = target < AB_MAX_LINKS ? link_at(target, p->family) : NULL;
	return link && link->flags & AB_LINK_PRESENT && is_routed(set, target, p->family);
}

static __always_inline void count_routed(struct __sk_buff *skb, const struct packet *p, const struct flow_room *s)
{
	struct load load = packet_load(skb, p);
	struct ab_traffic *t = traffic_at(s->opening.class, s->decision.target, p->family);
	if (!t)
		return;
	t->tx_packets += load.packets;
	t->tx_bytes += load.bytes;
}

/* Sends `p` by s->decision. Returns the reason with which it leaves. */
__noinline int route_packet(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_link *link = s && p ? link_at(s->decision.target, p->family) : NULL;
	int bad = 0;
	if (!link || !p)
		return AB_REASON_NO_LINK;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	/* Its address is not shared, so its id is kept. */
	p->new_id = p->id;
	if (is_fragment(p) || exceeds_mtu(skb, p, link->mtu))
		bad = begin_datagram(skb, p, AB_SIDE_LAN) ?: fit_to_mtu(skb, p, link->mtu, AB_SIDE_LAN);
	p->new_id = p->id;
	if (!bad && p->proto == IPPROTO_TCP && p->tcp_flags & AB_TCP_SYN)
		bad = clamp_mss(skb, p, link->mtu);
	s->wan_key.local = p->src;
	__u32 kept = become_external(&s->wan_key.local, link, side_of_link(s->decision.target, p->family));
	bad = bad ?: rewrite_address(skb, p, OUTBOUND, &s->wan_key.local);
	if (bad)
		return bad;
	count_routed(skb, p, s);
	bad = send_bound(skb, p, p->l3, link, s->decision.target, s->decision.why);
	if (bad)
		return bad;
	if (kept & AB_STATE_PREFIX)
		return AB_REASON_PREFIX_OUT;
	gauge_add(s->decision.target, 1, 0, 0);
	remember_session(s, p, s->decision.target);
	return AB_REASON_ROUTED_OUT;
}

/* Answers what came by a link's prefix. */
__noinline int answer_by_prefix(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	__u32 link = p ? link_of_asked(p) : AB_NO_TARGET;
	if (!s || !p || link >= AB_MAX_LINKS)
		return AB_REASON_NO_LINK;
	s->opening.class = find_class(p);
	s->decision.target = link;
	/* If there is a route, its next hop is used. */
	s->decision.why = AB_WHY_ROUTE;
	return route_packet(skb, p);
}

/* The same for a class per packet, whose links all are without NAT. */
__noinline int route_by_itself(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s)
		return AB_REASON_NOT_CONFIGURED;
	return choose_routed(p) ? route_packet(skb, p) : refuse_class(s->opening.class, s->opening.family);
}

#endif
