/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hairpinning (RFC 4787 REQ-9): what one LAN host sends to another's external address is translated, and comes back as if
 * the link of that address had brought it. What the gateway answers to it takes the same way, by the link of the sender's.
 */
#ifndef ANABRANCH_TURN_H
#define ANABRANCH_TURN_H

#include "../packet/mark.h"
#include "../packet/rewrite.h"
#include "flow.h"
#include "open.h"

/* One end of a packet that is turned, as a flow's there. */
AB_SCRATCH(turned_end, struct ab_flow_key)

/* The link on which the local end of turned_end() is a flow's, or AB_NO_TARGET. The key's side is given by that. */
__noinline int link_of_end(void)
{
	struct ab_flow_key *key = turned_end();
	if (!key)
		return AB_NO_TARGET;
	const struct ab_route *route = find_route(&key->local);
	if (route && route->verdict == AB_VERDICT_PREFIX) {
		key->side = AB_SIDE_LINK(route->link);
		return find_entry(key) || stood_formerly(key) ? route->link : AB_NO_TARGET;
	}
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		const struct ab_link *link = link_at(i, ab_family_of(&key->local));
		if (!link || !(link->flags & AB_LINK_PRESENT) || !is_same_addr(&link->external, &key->local))
			continue;
		key->side = AB_SIDE_LINK(i);
		if (find_entry(key) || stood_formerly(key))
			return i;
	}
	return AB_NO_TARGET;
}

/* The link whose external address and port stand for a mapping and are this packet's destination, or AB_NO_TARGET. */
__noinline int hairpin_link(struct packet *p)
{
	struct ab_flow_key *key = turned_end();
	if (!key || !p || !is_mapping(p->proto))
		return AB_NO_TARGET;
	make_key(key, p->proto, AB_SIDE_LAN, &p->dst, p->dport, &p->src, p->sport);
	return link_of_end();
}

/* The link that the sender of a turned packet has its external endpoint on, or AB_NO_TARGET. */
__noinline int link_of_sender(struct packet *p)
{
	struct ab_flow_key *key = turned_end();
	if (!key || !p)
		return AB_NO_TARGET;
	make_usual_key(key, p);
	return link_of_end();
}

/* To the ingress of a link. Below zero if there is no such link. */
static __always_inline int turn_to(struct __sk_buff *skb, const struct packet *p, __u32 index)
{
	const struct ab_link *link = index < AB_MAX_LINKS ? link_at(index, p->family) : NULL;
	if (!link || add_ethernet(skb, p))
		return -1;
	mark_sent_back(skb, AB_HAIRPIN_MARK);
	return bpf_redirect(link->ifindex, BPF_F_INGRESS);
}

#endif
