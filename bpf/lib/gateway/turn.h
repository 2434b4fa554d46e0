/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hairpinning (RFC 4787 REQ-9): a packet of one LAN host to another's external address is translated, and sent back to the ingress
 * of the link of that address. What the gateway answers to it takes the same way, over the link of the sender's external address.
 */
#ifndef ANABRANCH_TURN_H
#define ANABRANCH_TURN_H

#include "../packet/mark.h"
#include "../packet/rewrite.h"
#include "flow.h"
#include "open.h"

/* One end of a hairpinned packet, in the key of a flow. */
AB_SCRATCH(turned_end, struct ab_flow_key)

/* The link on which the local end of turned_end() belongs to a flow, or AB_NO_TARGET. Sets the key's side accordingly. */
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

/* The link on which the packet's destination is the external endpoint of a mapping, or AB_NO_TARGET. */
__noinline int hairpin_link(struct packet *p)
{
	struct ab_flow_key *key = turned_end();
	if (!key || !p || !is_mapping(p->proto))
		return AB_NO_TARGET;
	make_key(key, p->proto, AB_SIDE_LAN, &p->dst, p->dport, &p->src, p->sport);
	return link_of_end();
}

/* The link on which the sender of a hairpinned packet has its external endpoint, or AB_NO_TARGET. */
__noinline int link_of_sender(struct packet *p)
{
	struct ab_flow_key *key = turned_end();
	if (!key || !p)
		return AB_NO_TARGET;
	make_usual_key(key, p);
	return link_of_end();
}

/* Sends to the ingress of a link. Negative if there is no such link. */
static __always_inline int turn_to(struct __sk_buff *skb, const struct packet *p, __u32 index)
{
	const struct ab_link *link = index < AB_MAX_LINKS ? link_at(index, p->family) : NULL;
	if (!link || add_ethernet(skb, p))
		return -1;
	mark_sent_back(skb, AB_HAIRPIN_MARK);
	return bpf_redirect(link->ifindex, BPF_F_INGRESS);
}

#endif
