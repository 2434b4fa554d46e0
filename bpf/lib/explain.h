/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where would this packet go, and why: the gateway's own questions asked in its own order, nothing bound or sent. */
#ifndef ANABRANCH_EXPLAIN_H
#define ANABRANCH_EXPLAIN_H

#include "outbound.h"

static __noinline int explain_new(struct packet *p, struct ab_explanation *e)
{
	const struct ab_settings *set = current_settings();
	struct ab_scratch *s = scratch();
	struct ab_decision d;
	union ab_addr host;
	if (!set || !s)
		return AB_REASON_NOT_CONFIGURED;
	int reason = gate(p);
	if (reason)
		return reason;
	map_ipv4(&host, p->src);
	reason = admit(set, &host);
	if (reason)
		return fall_back(set, reason);
	choose_link(p, 0, &d);
	e->why = d.why;
	e->link = d.target;
	e->seen = s->candidates;
	return d.target == AB_NO_TARGET ? AB_REASON_NO_LINK : AB_REASON_TRANSLATED_OUT;
}

static __always_inline void explain_packet(struct __sk_buff *skb, struct ab_explanation *e)
{
	struct packet p = {};
	struct ab_flow_key key;
	const struct ab_choice *now = current_choice();
	e->link = AB_NO_TARGET;
	e->usable = now ? now->usable : 0;
	e->reason = parse_packet(skb, &p, ETH_HLEN);
	if (e->reason || p.kind != PACKET_FLOW)
		return;
	e->hash = packet_hash(&p);
	make_key(&key, p.proto, AB_SIDE_LAN, p.src, p.sport, p.dst, p.dport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow) {
		e->reason = explain_new(&p, e);
		return;
	}
	if (is_mapping(p.proto) && is_kernels(&p)) {
		e->reason = AB_REASON_SPECIFIC_ROUTE;
		return;
	}
	e->bound = 1;
	e->link = flow->link;
	e->why = flow->why;
	e->reason = AB_REASON_TRANSLATED_OUT;
}

#endif
