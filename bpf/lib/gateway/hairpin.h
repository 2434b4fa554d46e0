/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * TCP between LAN hosts by their external endpoints (hairpinning, RFC 5382 REQ-8).
 *
 * Each of the two hosts has a flow of its own, with its own external endpoint and against its own quota, whose remote end is the
 * other's external endpoint. What one sends is translated, and sent back to the ingress of the link of the other's
 * endpoint, where it is translated again. So each host sees the other as if from outside.
 *
 * The caller opens its flow by its SYN. The other host's flow opens by its own SYN (simultaneous open), or by its SYN/ACK. Before
 * that, the SYN is delivered to the host that has any live flow at that endpoint, whatever its remote end: LAN hosts need no
 * permission, as in UDP (RFC 4787 REQ-9), and nobody on a link can pretend to be one. A RST in answer is dropped: the host that has
 * not called yet may be about to (REQ-4).
 */
#ifndef ANABRANCH_HAIRPIN_H
#define ANABRANCH_HAIRPIN_H

#include "nat.h"
#include "tcp.h"

/* Finds a live flow with this external endpoint. Its link key is s->endpoint_key, its LAN key s->called_key. Returns whether
 * there is one. */
static __noinline int find_external(struct flow_room *s, __u32 link, const union ab_addr *address, __be16 port)
{
	make_key(&s->endpoint_key, IPPROTO_TCP, AB_SIDE_LINK(link), address, port, address, 0);
	const struct ab_flow *wan = flow_of_external_endpoint(s);
	const struct ab_flow *lan = wan ? find_other(&s->endpoint_key, wan, &s->called_key) : NULL;
	return lan && !(lan->state & AB_STATE_CLOSED);
}

/* The search for the link over which a segment reaches its destination. */
struct call {
	const struct packet *packet;
	__u32 link; /* AB_NO_TARGET: none yet */
};

/* Whether a LAN host called the sender, at the sender's present external endpoint, from the external endpoint that the segment is
 * sent to. */
static __always_inline int was_called_from(struct flow_room *s, const struct packet *p, __u32 link)
{
	const struct ab_link *own = link_at(s->opening.kept_link, p->family);
	if (!own)
		return 0;
	make_key(&s->wan_key, IPPROTO_TCP, AB_SIDE_LINK(link), &p->dst, p->dport, &own->external, s->opening.kept_port);
	const struct ab_flow *call = find_flow(&s->wan_key);
	return call && call->state & AB_STATE_HAIRPIN && !(call->state & AB_STATE_CLOSED);
}

static long try_called(__u32 index, struct call *call)
{
	struct flow_room *s = flow_room();
	const struct packet *p = call->packet;
	const struct ab_link *link = link_at(index, p->family);
	if (!s || !link || !(link->flags & AB_LINK_PRESENT) || !is_same_addr(&link->external, &p->dst))
		return 0;
	if (!was_called_from(s, p, index) && !(is_first_syn(p) && find_external(s, index, &p->dst, p->dport)))
		return 0;
	call->link = index;
	return 1;
}

/* For a segment of no flow, to a destination that the kernel routes, with a valid source. Returns TO_OPEN if it calls another LAN
 * host, or answers such a call; otherwise the reason why it does not. */
__noinline int meet_call(struct packet *p)
{
	struct flow_room *s = flow_room();
	struct call call = { .packet = p, .link = AB_NO_TARGET };
	if (!s || !p || !(p->tcp_flags & (AB_TCP_SYN | AB_TCP_RST)))
		return AB_REASON_SPECIFIC_ROUTE;
	find_kept();
	bpf_loop(AB_MAX_LINKS, try_called, &call, 0);
	if (call.link >= AB_MAX_LINKS)
		return AB_REASON_SPECIFIC_ROUTE;
	if (p->tcp_flags & AB_TCP_RST)
		return AB_REASON_HAIRPIN_RST;
	s->opening.is_hairpin = 1;
	s->opening.is_answer = !is_first_syn(p);
	s->opening.hairpin_link = call.link;
	return TO_OPEN;
}

/*
 * For a segment of a LAN host to another's endpoint on `link`, if the two have no flow open: a SYN is delivered to the host with a
 * live flow there, whose link key is written to `key`, and opens nothing. Whether that host answers from this endpoint is its
 * decision. Returns 0, or the reason to drop.
 */
__noinline int find_called(struct packet *p, __u32 link, struct ab_flow_key *key)
{
	struct flow_room *s = flow_room();
	if (!p || !s || !key || p->proto != IPPROTO_TCP || !is_first_syn(p))
		return AB_REASON_FILTERED_IN;
	if (!find_external(s, link, &p->dst, p->dport))
		return AB_REASON_FILTERED_IN;
	*key = s->endpoint_key;
	leave_remote(&s->called_key);
	return 0;
}

/*
 * The way of a segment of a flow between LAN hosts: HAIRPIN, or, if the other host's flow has ended, the reason. In that case the
 * sender is notified, and its flow ends.
 */
__noinline int follow_hairpin(struct packet *p, struct ab_flow *flow)
{
	struct flow_room *s = flow_room();
	if (!s || !p || !flow)
		return AB_REASON_MALFORMED;
	make_key(&s->wan_key, IPPROTO_TCP, AB_SIDE_LINK(flow->hairpin_link), &p->dst, p->dport, &flow->other_local,
		 flow->other_port);
	if (is_first_syn(p) || find_flow(&s->wan_key))
		return AB_REASON_HAIRPIN;
	make_usual_key(&s->lan_key, p);
	close_flow(&s->lan_key, flow);
	return AB_REASON_NO_FLOW_OUT;
}

#endif
